"""Train a network; finished epochs are on disk, and training resumes to the same weights."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from capsviz import checkpoint, data, memory
from capsviz.checkpoint.containers import fitted
from capsviz.discovery import some
from capsviz.nn import models
from capsviz.nn.computation import in_bfloat16, seeded
from capsviz.provenance import commit, hardware
from capsviz.tracing.network import plugin_routings
from capsviz.tracing.verification import verify_once
from capsviz.training import history
from capsviz.training.distributed import Team
from capsviz.training.evaluate import evaluate
from capsviz.training.gradients import Gradients
from capsviz.training.history import Epoch, best_epoch, best_path, finished, stopped_early
from capsviz.training.optimisation import (
    Average,
    build_optimiser,
    learning_rate,
    parameters,
    reconstruction_factor,
    set_learning_rates,
    weights_that_count,
)
from capsviz.training.recipe import Recipe, resolve_precision
from capsviz.transforms.augment import Augmentation, to_float

NAMED = 4  # tensors that a message lists
LEARNED = 50  # steps after which the loss has fallen if the network learns


def build_model(recipe: Recipe, dataset: data.Dataset) -> nn.Module:
    """Build the recipe's network for a data set, initialised from the recipe's seed.

    ValueError if `shift_px` is not smaller than the images, and as from the network's `build`.
    """
    with seeded(recipe.seed):
        shape = dataset.first(1).crop(recipe.crop_px).image_shape
        if len(shape) == 3 and recipe.shift_px >= min(shape[1:]):
            raise ValueError(
                f"shift_px must be below the {min(shape[1:])} pixels of an image's side, "
                f"got {recipe.shift_px}"
            )
        return models.build(recipe.model, shape, len(dataset.classes), **recipe.options)


def fit(
    recipe: Recipe,
    train: data.Dataset,
    validation: data.Dataset,
    output: Path,
    *,
    model: nn.Module | None = None,
    average: Average | None = None,
    device: torch.device | str = "cpu",
    resume: bool = False,
    team: Team | None = None,
    card: Mapping | None = None,
    keep: Callable[[Epoch, nn.Module], None] | None = None,
    report: Callable[[str], None] = lambda line: None,
    on_step: Callable[[int, int, int, float, float], None] | None = None,
    on_epoch: Callable[[Epoch, nn.Module], None] | None = None,
) -> tuple[nn.Module, list[Epoch]]:
    """Train by a recipe; return the network with the weights to keep, and the history.

    Training can resume from the last finished epoch. The randomness of an epoch depends only on the
    seed and the epoch's number, so a resumed run reaches the weights of an uninterrupted one. They
    are bit-equal on a CPU with the same number of threads, unless short memory split the batches of
    only one of the two runs.

    Parameters
    ----------
    train       whole images; `recipe.crop_px` crops them at random.
    validation  images of the network's input size.
    output      folder for `epochs.csv`, the state to resume from and the best weights so far.
    model       a network to train instead of the recipe's.
    average     moving average of its weights, instead of the one of `recipe.ema`.
    team        the processes that share each batch; all of them call `fit`. The first one reads,
                evaluates, calls `on_epoch` and writes.
    card        the run's card before its evaluation, so that the state opens as a checkpoint.
    keep        called like `on_epoch`, but before the epoch counts as finished.
    report      called with a line of information for the user, e.g. if memory is short.
    on_step     called with (epoch, step, steps, loss, accuracy), means over the epoch so far.
    on_epoch    called with the record of the epoch and the network, which has the evaluated
                weights and the gradients of the last step.

    Raises
    ------
    ValueError          if batch norm would get a single image; if `output` holds a run and `resume`
                        is false, the run is by another recipe, or its best weights are missing; if
                        `recipe.init_from` does not fit.
    FloatingPointError  if the loss is not finite.
    MemoryError         if not even one image at a time fits.
    """
    device, team = torch.device(device), team or Team()
    train = train.first(recipe.limit)
    parts = None if train.parts is None else train.parts.to(device)
    images, labels = train.images.to(device), train.labels.to(device)
    train = replace(train, images=images, labels=labels, parts=parts)
    model = (build_model(recipe, train) if model is None else model).to(device)
    if plugin_routings(model):  # find mistakes of a plug-in before hours of training
        with seeded(recipe.seed):
            verify_once(model, to_float(train.first(2).crop(recipe.crop_px).images))
    bf16 = resolve_precision(recipe.precision, device) == "bf16"
    with in_bfloat16(device, bf16):  # the memory needed depends on the precision
        part = _images_at_a_time(recipe, model, len(train), team, device, report)
    optimiser = build_optimiser(model, recipe)
    code, state = commit(), None
    if team.leads:
        history.clear(output, card["name"] if card is not None else None)
        state = history.read(output)
    state = team.agree(state)
    if state is not None and not resume:
        raise ValueError(
            f"{output} holds an earlier run: go on with --resume, or choose another --output"
        )
    if recipe.init_from is not None and state is None:
        start_from(model, recipe.init_from, report, train.classes)
    if average is None and recipe.ema is not None:
        average = Average(model, recipe.ema)
    record = []
    if state is not None:
        record = history.restore(state, output, recipe, model, optimiser, average, card)
        if team.leads:
            if recipe.keep == "best":
                checkpoint.best_weights(output / checkpoint.STATE, state[1], best_epoch(record))
            history.write_csv(output, record)
    elif team.leads:
        output.mkdir(parents=True, exist_ok=True)
    del state  # free its tensors
    with in_bfloat16(device, bf16):
        needed, room = models.training_bytes(model, recipe.batch_size), memory.available(device)
    # a CUDA graph keeps its memory during evaluation
    batch = recipe.batch_size if needed is None or not room or 2 * needed <= room else None
    gradients = Gradients(
        model, team.prepare(model), team, part=part, batch=batch, bf16=bf16, report=report
    )
    steps = -(-len(train) // recipe.batch_size)

    while not finished(recipe, record):
        epoch, start = len(record) + 1, time.perf_counter()
        trained = _train_epoch(
            recipe, model, gradients, team, optimiser, average, train, epoch, on_step
        )
        if team.leads:
            with weights_that_count(model, average):
                validated = evaluate(model, validation)
                record.append(
                    Epoch(
                        epoch=epoch,
                        **trained,
                        validation_accuracy=validated.accuracy,
                        validation_margin_loss=validated.margin_loss,
                        validation_sse=validated.reconstruction_sse,
                        learning_rate=learning_rate(recipe, epoch - 1 / steps, steps),
                        seconds=time.perf_counter() - start,
                        commit=code,
                        hardware=hardware(device),
                    )
                )
                if best_epoch(record) == epoch:
                    checkpoint.write_tensors(best_path(output, record), model.state_dict())
                if keep is not None:
                    keep(record[-1], model)
            history.save(output, recipe, model, optimiser, average, record, card)
            if on_epoch is not None:
                with weights_that_count(model, average):
                    on_epoch(record[-1], model)
            if epoch < recipe.epochs and (epoch - 1) * steps < LEARNED <= epoch * steps:
                for line in validated.doubts({"recipe": vars(recipe)}):
                    report(line.replace("WARN ", f"WARN validation, epoch {epoch}: ", 1))
        record = team.agree(record)
    if stopped_early(recipe, record):
        report(
            f"stopped early, after epoch {len(record)} of {recipe.epochs}: "
            f"none was better than epoch {best_epoch(record)}"
        )
    if recipe.keep == "best":
        best = checkpoint.read_tensors(best_path(output, record))[0] if team.leads else None
        model.load_state_dict(team.agree(best))
    elif average is not None:
        model.load_state_dict(average.tensors)
    return model.eval(), record


def _train_epoch(recipe, model, gradients, team, optimiser, average, train, epoch, on_step) -> dict:
    """Train for one epoch; return its losses and accuracy as fields of `Epoch`."""
    device = train.images.device
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + epoch)
    order = torch.randperm(len(train), generator=generator).to(device)
    batches = order.split(recipe.batch_size)
    augmentation = Augmentation(
        recipe.shift_px, recipe.crop_px, recipe.flip, recipe.brightness, recipe.contrast,
        recipe.rotation_deg, recipe.scale, recipe.shear_deg, recipe.fill,
    )  # fmt: skip
    draws = augmentation.draw(len(train), train.image_shape, generator=generator).to(device)
    total, right, trained = torch.zeros(3, device=device), torch.zeros((), device=device), 0
    sums: list[torch.Tensor] = []  # of each step; read at the end, because reading waits for a GPU
    model.train()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(recipe.seed * 1_000_003 + epoch + (team.rank << 40))  # for dropout
        for step, whole in enumerate(batches):
            progress = epoch - 1 + step / len(batches)
            batch, weight = team.share(whole)
            set_learning_rates(optimiser, recipe, progress, len(batches))
            terms = {
                "reconstruction_factor": reconstruction_factor(recipe, progress),
                "progress": progress / recipe.epochs,
            }
            parts = None if train.parts is None else train.parts[batch]
            images, parts = augmentation.apply(train.images[batch], draws.take(batch), parts)
            targets = images if parts is None else parts
            optimiser.zero_grad(set_to_none=True)
            means, correct = gradients(images, targets, train.labels[batch], weight, terms)
            sums.append(means * len(whole))
            total += sums[-1]
            if team.size == 1 and device.type == "cpu":  # before the step spoils the weights
                _require_finite([sums[-1]], epoch, step + 1, model, images)
            right += correct * (weight > 0)
            if recipe.clip_norm is not None:
                nn.utils.clip_grad_norm_(parameters(optimiser), recipe.clip_norm)
            optimiser.step()
            if average is not None:
                average.update(model, (epoch - 1) * len(batches) + step + 1)
            trained += len(whole)
            if on_step is not None:
                on_step(
                    epoch, step + 1, len(batches), total[0] / trained, team.size * right / trained
                )
    loss, margin, reconstruction = (team.sum(total) / team.size / trained).tolist()
    if not math.isfinite(loss):
        _require_finite(sums, epoch, 1, model, images)
        require_finite_loss(loss, epoch)
    return {
        "train_loss": loss,
        "train_accuracy": float(team.sum(right)) / trained,
        "train_margin_loss": margin,
        "train_reconstruction_loss": None if math.isnan(reconstruction) else reconstruction,
    }


def card_of_start(name: str) -> dict:
    """Return the card of a checkpoint or weight file to start from; {} if it has none."""
    try:
        return checkpoint.read_card(_start_path(name))
    except ValueError:
        return {}


def _start_path(name: str) -> Path:
    return Path(name) if Path(name).is_file() else checkpoint.find(name)


def start_from(
    model: nn.Module, name: str, report: Callable[[str], None] = lambda line: None,
    classes: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """Copy the weights of a checkpoint that fit into a network; return their names.

    `report` is called with lines about the copied tensors. ValueError if the checkpoint is
    missing, has no weights that fit, or has the same `classes` in another order.
    """
    own = model.state_dict()
    path = _start_path(name)
    stored_classes = card_of_start(name).get("dataset", {}).get("classes", [])
    if stored_classes != list(classes) and sorted(stored_classes) == sorted(classes):
        raise ValueError(
            f"{path} has the same classes in another order ({some(stored_classes)}): name the "
            "classes of the data in that order"
        )
    stored, note = fitted(path, own)
    names = [k for k, v in own.items() if k in stored and stored[k].shape == v.shape]
    if not set(names) & {k for k, _ in model.named_parameters()}:
        both = ([f"{k} {tuple(v.shape)}" for k, v in of.items()] for of in (own, stored))
        raise ValueError(
            f"no weights of {path} fit this network: expected names and shapes such as "
            f"{', got '.join(some(shapes, NAMED) for shapes in both)}"
        )
    with torch.no_grad():
        for k in names:
            own[k].copy_(stored[k])
    if notice := checkpoint.shadowed(name):
        report(notice)
    line = f"{len(names)} of {len(own)} tensors start from {path}" + (note and f" ({note})")
    if fresh := [k for k in own if k not in names]:
        line += f"; initialised at random, as no shape or name fits: {some(fresh, NAMED)}"
    if unused := [k for k in stored if k not in own]:
        line += f"; not used, as only the file has them: {some(unused, NAMED)}"
    report(line)
    return names


def require_finite_loss(loss: float, epoch: int) -> None:
    """Raise FloatingPointError for an infinite or NaN loss."""
    if not math.isfinite(loss):
        raise FloatingPointError(f"the loss is {loss} in epoch {epoch}")


def _require_finite(sums, epoch: int, first: int, model: nn.Module, images: torch.Tensor) -> None:
    """Raise FloatingPointError if a step's loss is not finite; `sums` begin at step `first`."""
    for step, (loss, *_) in enumerate(sums, first):
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss is {float(loss)} in step {step} of epoch {epoch}; not finite: "
                f"{_first_not_finite(model, images)}. The last good epoch is kept. Try, in this "
                "order, a lower --learning-rate, --option clip_norm=1, --precision fp32"
            )


def _first_not_finite(model: nn.Module, images: torch.Tensor) -> str:
    """Name the first tensor of a forward pass that is not finite."""
    known = {"the images": images, **{f"the weights {k}": v for k, v in model.named_parameters()}}
    found = [name for name, value in known.items() if not value.isfinite().all()]
    names = {module: name for name, module in model.named_modules()}

    def look(module, inputs, output):
        parts = output if isinstance(output, tuple) else (output,)
        if any(isinstance(one, torch.Tensor) and not one.isfinite().all() for one in parts):
            found.append(f"the output of {names.get(module) or 'the network'}")

    with register_module_forward_hook(look):
        model(images)
    return next(iter(found), "the loss alone")


def _images_at_a_time(recipe, model, images: int, team: Team, device, report) -> int:
    """Return how many images of a process's share of a batch fit into memory at once."""
    whole = min(recipe.batch_size, images)
    batch, left = -(-whole // team.size), images % recipe.batch_size or whole
    if getattr(model, "whole_batches", False):
        if min(whole, left) // team.size < 2:
            raise ValueError(
                f"batch norm needs at least 2 images at a time, but batches of {recipe.batch_size} "
                f"from {images} images, for {team.size} processes, leave one: choose another "
                "--batch-size, or no batch norm"
            )
        if (needed := models.training_bytes(model, batch)) is not None:
            what = f"a training step of {batch} images"
            memory.require(needed, what, "choose a smaller --batch-size", device)
        return batch
    if models.training_bytes(model, batch) is None:
        return batch
    free = memory.available(device)
    if recipe.ema is not None:  # the average, and a copy of the weights during evaluation
        free -= 8 * sum(p.numel() for p in model.parameters())
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
