"""Training: a loop that resumes to the same weights, and a record of every epoch."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import torch
from torch import nn

from capsviz import checkpoint, data, memory, models
from capsviz.augment import cut, draw_offsets, to_float
from capsviz.evaluate import evaluate
from capsviz.files import write_text
from capsviz.functional import predict
from capsviz.provenance import commit
from capsviz.recipe import Recipe, learning_rate, resolve_precision

STATE = "state.safetensors"


@dataclass(frozen=True)
class Epoch:
    """One line of the record; losses and accuracies are means over images."""

    epoch: int  # from 1
    train_loss: float
    train_accuracy: float
    validation_accuracy: float
    validation_margin_loss: float
    validation_sse: float | None
    learning_rate: float  # at the end of the epoch
    seconds: float
    commit: str | None = None  # of the code that trained it, if it ran from a checkout


def build_model(recipe: Recipe, dataset: data.Dataset) -> nn.Module:
    """The recipe's network for this data set, initialised from the recipe's seed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(recipe.seed)
        shape, classes = dataset.image_shape, len(dataset.classes)
        return models.build(recipe.model, shape, classes, **recipe.options)


def fit(
    recipe: Recipe,
    train: data.Dataset,
    validation: data.Dataset,
    output: Path,
    *,
    model: nn.Module | None = None,
    device: torch.device | str = "cpu",
    resume: bool = False,
    report: Callable[[str], None] = lambda line: None,
    on_step: Callable[[int, int, int, float, float], None] | None = None,
    on_epoch: Callable[[Epoch, nn.Module], None] | None = None,
) -> tuple[nn.Module, list[Epoch]]:
    """Train by a recipe; every finished epoch is on disk and can be resumed from.

    The randomness of an epoch depends on the seed and the epoch's number alone, so a resumed run
    reaches the weights of an uninterrupted one (bit-equal on a CPU with as many threads, unless
    memory was short for one of them).

    Parameters
    ----------
    output    folder for `epochs.csv`, the state to resume from and the best weights so far.
    model     a network to train instead of the recipe's own.
    resume    go on from the state in `output`, if there is one.
    report    is given a line when memory is short: batches are then computed in parts, whose
              gradients add up to the same step, but for rounding.
    on_step   called with (epoch, step, steps, loss, accuracy of the epoch so far).
    on_epoch  called with the record of the epoch and the network.

    Returns
    -------
    The network with the weights that `recipe.keep` asks for, and the record.

    Raises
    ------
    ValueError       if `output` holds a run by another recipe, or one and `resume` is false.
    ArithmeticError  if the loss is not finite.
    MemoryError      if not even one image at a time would fit.
    """
    device = torch.device(device)
    train = train.first(recipe.limit)
    model = (build_model(recipe, train) if model is None else model).to(device)
    part = _images_at_a_time(model, min(recipe.batch_size, len(train)), device, report)
    optimiser = torch.optim.Adam(model.parameters(), lr=recipe.learning_rate, fused=True)
    output.mkdir(parents=True, exist_ok=True)
    code = commit()
    for stray in (*output.glob(f".{STATE}.*"), *output.glob(".best-*")):
        stray.unlink()  # of a run that was killed while it wrote
    history = _restore(output, recipe, model, optimiser, resume)
    train = replace(train, images=train.images.to(device), labels=train.labels.to(device))
    for epoch in range(len(history) + 1, recipe.epochs + 1):
        start = time.perf_counter()
        loss, accuracy = _one_epoch(recipe, model, optimiser, train, epoch, part, on_step)
        found = evaluate(model, validation)
        history.append(
            Epoch(
                epoch=epoch,
                train_loss=loss,
                train_accuracy=accuracy,
                validation_accuracy=found.accuracy,
                validation_margin_loss=found.margin_loss,
                validation_sse=found.reconstruction_sse,
                learning_rate=learning_rate(recipe, epoch),
                seconds=time.perf_counter() - start,
                commit=code,
            )
        )
        best = _best_path(output, history)
        if best_epoch(history) == epoch:
            checkpoint.write_tensors(best, model.state_dict())
        _save(output, recipe, model, optimiser, history)
        for old in set(output.glob("best-*.safetensors")) - {best}:
            old.unlink()
        if on_epoch is not None:
            on_epoch(history[-1], model)
    if recipe.keep == "best":
        model.load_state_dict(checkpoint.read_tensors(_best_path(output, history))[0])
    return model.eval(), history


def _images_at_a_time(model, batch: int, device: torch.device, report) -> int:
    if not hasattr(model, "training_bytes"):
        return batch
    free = memory.available(device)
    part = batch
    while part > 1 and model.training_bytes(part) > free:
        part = -(-part // 2)
    if part == 1:
        advice = "choose fewer --types, fewer --channels or smaller images"
        memory.require(model.training_bytes(1), "a training step of 1 image", advice, device)
    if part < batch:
        report(
            f"a batch of {batch} needs {memory.gib(model.training_bytes(batch))}, "
            f"but {memory.gib(free)} are free: it is computed {part} images at a time"
        )
    return part


def best_epoch(history: list[Epoch]) -> int:
    """Number of the epoch with the highest validation accuracy; of equals, the lowest loss."""
    best = max(history, key=lambda e: (e.validation_accuracy, -e.validation_margin_loss))
    return best.epoch


def read_history(output: Path) -> list[Epoch]:
    """The finished epochs of the run in a folder; none if there is no run."""
    path = output / STATE
    if not path.exists():
        return []
    run = json.loads(checkpoint.read_tensors(path)[1]["run"])
    return [Epoch(**line) for line in run["history"]]


def _one_epoch(recipe, model, optimiser, train, epoch, part, on_step) -> tuple[float, float]:
    device = train.images.device
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + epoch)
    order = torch.randperm(len(train), generator=generator).to(device)
    batches = order.split(recipe.batch_size)
    offsets = draw_offsets(len(train), recipe.shift_px, generator=generator).to(device)
    bf16 = resolve_precision(recipe.precision, device) == "bf16"
    total, right, seen = torch.zeros((), device=device), torch.zeros((), device=device), 0
    model.train()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(recipe.seed * 1_000_003 + epoch)  # dropout
        for step, batch in enumerate(batches):
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(recipe, epoch - 1 + step / len(batches))
            labels = train.labels[batch]
            images = to_float(cut(train.images[batch], offsets[:, batch], recipe.shift_px))
            optimiser.zero_grad(set_to_none=True)
            for some, truth in zip(images.split(part), labels.split(part), strict=True):
                with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                    output = model(some)
                    loss = model.objective(output, some, truth).loss * (len(some) / len(batch))
                loss.backward()
                total += loss.detach() * len(batch)
                right += (predict(output.lengths) == truth).sum()
            optimiser.step()
            seen += len(batch)
            if on_step is not None:
                on_step(epoch, step + 1, len(batches), total / seen, right / seen)
    mean = float(total) / seen
    if not math.isfinite(mean):
        raise ArithmeticError(
            f"the loss is {mean} in epoch {epoch}: the last good epoch is kept; "
            "try a lower --learning-rate or --precision fp32"
        )
    return mean, float(right) / seen


def _best_path(output: Path, history: list[Epoch]) -> Path:
    """Weights of the best epoch so far; each epoch's have their own name, so none stands for it."""
    return output / f"best-{best_epoch(history)}.safetensors"


def _save(output: Path, recipe: Recipe, model, optimiser, history: list[Epoch]) -> None:
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for number, state in optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{number}.{key}": value for key, value in state.items()}
    about = {"recipe": asdict(recipe), "history": [asdict(epoch) for epoch in history]}
    checkpoint.write_tensors(output / STATE, tensors, {"run": json.dumps(about)})
    write_text(output / "epochs.csv", _csv(history))


def _restore(output: Path, recipe: Recipe, model, optimiser, resume: bool) -> list[Epoch]:
    path = output / STATE
    if not path.exists():
        return []
    if not resume:
        raise ValueError(
            f"{output} holds an earlier run: go on with --resume, or choose another --output"
        )
    tensors, about = checkpoint.read_tensors(path)
    run = json.loads(about["run"])
    earlier = {**asdict(Recipe()), **run["recipe"]}  # a field may be younger than the run
    differing = {k for k, v in asdict(recipe).items() if earlier[k] != v}
    if recipe.schedule == "exponential":
        differing -= {"epochs"}  # no epoch depends on how many follow: a run can be lengthened
    if differing:
        names = ", ".join(sorted(differing))
        raise ValueError(
            f"{output} holds a run by another recipe (it differs in {names}): "
            "resume with the same settings, or choose another --output"
        )
    weights, adam, parameters = {}, {}, list(model.parameters())
    for key, value in tensors.items():
        kind, _, name = key.partition(".")
        if kind == "model":
            weights[name] = value
        else:
            number, _, field = name.partition(".")
            if value.dim():  # laid out in memory as its parameter, which the file does not tell
                value = torch.empty_like(parameters[int(number)]).copy_(value)
            adam.setdefault(int(number), {})[field] = value
    model.load_state_dict(weights)
    optimiser.load_state_dict({**optimiser.state_dict(), "state": adam})
    history = [Epoch(**line) for line in run["history"]]
    write_text(output / "epochs.csv", _csv(history))  # a kill may have come before its last line
    return history


def _csv(history: list[Epoch]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Epoch)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(epoch) for epoch in history)
    return text.getvalue()
