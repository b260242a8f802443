"""Training: a loop that resumes to the same weights, and a record of every epoch."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path

import torch
from torch import Tensor, nn

from capsviz import checkpoint, data, memory
from capsviz.nn import models
from capsviz.provenance import commit, hardware
from capsviz.training import history
from capsviz.training.distributed import Team
from capsviz.training.evaluate import all_right, evaluate
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
from capsviz.training.recipe import Recipe, as_begun, resolve_precision
from capsviz.training.transfer import start_from
from capsviz.transforms.augment import Augmentation


def build_model(recipe: Recipe, dataset: data.Dataset) -> nn.Module:
    """The recipe's network for this data set, initialised from the recipe's seed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(recipe.seed)
        shape = dataset.first(1).crop(recipe.crop_px).image_shape
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
    train       whole images, which `recipe.crop_px` cuts out of at random.
    validation  images of the size that the network sees.
    output      folder for `epochs.csv`, the state to resume from and the best weights so far.
    model       a network to train instead of the recipe's own.
    average     of its weights, to look at while it is trained, instead of one by `recipe.ema`.
    resume      go on from the state in `output`, if there is one.
    team        the processes that share each batch, all of which call this; the first one reads,
                evaluates, calls `on_epoch` and writes.
    card        what is said of the run before it is evaluated: with it the state of a run that has
                not ended can be opened as a checkpoint.
    report      is given a line when memory is short: batches are then computed in parts, whose
                gradients add up to the same step, but for rounding. And a line for what
                `recipe.init_from` gave, and one if the run stops early.
    on_step     called with (epoch, step, steps, loss, accuracy of the epoch so far).
    on_epoch    called with the record of the epoch and the network: the weights that were
                evaluated, and the gradients of the last step.

    Returns
    -------
    The network with the weights that `recipe.keep` asks for, and the record.

    Raises
    ------
    ValueError       if batch norm would be left with one image; if `output` holds a run by another
                     recipe, or one and `resume` is false; if `recipe.init_from` does not fit.
    ArithmeticError  if the loss is not finite.
    MemoryError      if not even one image at a time would fit.
    """
    device, team = torch.device(device), team or Team()
    train = _put(train.first(recipe.limit), device)
    model = (build_model(recipe, train) if model is None else model).to(device)
    part = _images_at_a_time(recipe, model, len(train), team, device, report)
    optimiser = build_optimiser(model, recipe)
    code, state = commit(), None
    if team.leads:
        history.clear(output)
        state = history.read(output)
    state = team.agree(state)
    if state is not None:
        recipe = as_begun(recipe, state[1]["recipe"])
    if state is not None and not resume:
        raise ValueError(
            f"{output} holds an earlier run: go on with --resume, or choose another --output"
        )
    if recipe.init_from is not None and state is None:
        start_from(model, recipe.init_from, report)
    if average is None and recipe.ema is not None:
        average = Average(model, recipe.ema)
    record = []
    if state is not None:
        record = history.restore(state, output, recipe, model, optimiser, average)
        if team.leads:
            history.write_csv(output, record)
    elif team.leads:
        output.mkdir(parents=True, exist_ok=True)
    del state  # its tensors
    shared = team.prepare(model)
    steps = -(-len(train) // recipe.batch_size)

    while not finished(recipe, record):
        epoch, start = len(record) + 1, time.perf_counter()
        trained = _one_epoch(
            recipe, model, shared, team, optimiser, average, train, epoch, part, on_step
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
                        learning_rate=learning_rate(recipe, epoch, steps),
                        seconds=time.perf_counter() - start,
                        commit=code,
                        hardware=hardware(device),
                    )
                )
                history.keep_best(output, model, record)
            history.save(output, recipe, model, optimiser, average, record, card)
            if on_epoch is not None:
                with weights_that_count(model, average):
                    on_epoch(record[-1], model)
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


def _put(dataset: data.Dataset, device: torch.device) -> data.Dataset:
    kept = {name: getattr(dataset, name) for name in ("images", "labels", "parts")}
    return replace(dataset, **{k: None if v is None else v.to(device) for k, v in kept.items()})


def _images_at_a_time(recipe, model, images: int, team: Team, device, report) -> int:
    whole = min(recipe.batch_size, images)
    batch, left = -(-whole // team.size), images % recipe.batch_size or whole
    if getattr(model, "whole_batches", False):
        if min(team.smallest(whole), team.smallest(left)) < 2:
            raise ValueError(
                f"batch norm needs at least 2 images at a time, but batches of {recipe.batch_size} "
                f"from {images} images, for {team.size} processes, leave one: choose another "
                "--batch-size, or no batch norm"
            )
        what = f"a training step of {batch} images"
        memory.require(model.training_bytes(batch), what, "choose a smaller --batch-size", device)
        return batch
    if not hasattr(model, "training_bytes"):
        return batch
    free = memory.available(device)
    if recipe.ema is not None:  # the average, and the weights in its place while it is evaluated
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


def _one_epoch(
    recipe, model, shared, team, optimiser, average, train, epoch, part, on_step
) -> dict[str, float | None]:
    """Train for an epoch; the losses and the accuracy of its record."""
    device = train.images.device
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + epoch)
    order = torch.randperm(len(train), generator=generator).to(device)
    batches = order.split(recipe.batch_size)
    augmentation = Augmentation(
        recipe.shift_px, recipe.crop_px, recipe.flip, recipe.brightness, recipe.contrast
    )
    draws = augmentation.draw(len(train), train.image_shape, generator=generator).to(device)
    bf16 = resolve_precision(recipe.precision, device) == "bf16"
    total, right, trained = torch.zeros(3, device=device), torch.zeros((), device=device), 0
    model.train()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(recipe.seed * 1_000_003 + epoch + (team.rank << 40))  # dropout
        for step, whole in enumerate(batches):
            progress = epoch - 1 + step / len(batches)
            batch, weight = team.share(whole)
            set_learning_rates(optimiser, recipe, progress, len(batches))
            terms = {
                "reconstruction_factor": reconstruction_factor(recipe, progress),
                "progress": progress / recipe.epochs,
            }
            labels, alone = train.labels[batch], None if train.parts is None else train.parts[batch]
            images, alone = augmentation.apply_with_parts(
                train.images[batch], alone, draws.take(batch)
            )
            targets = images if alone is None else alone
            pieces = zip(images.split(part), targets.split(part), labels.split(part), strict=True)
            optimiser.zero_grad(set_to_none=True)
            means, read_right = _gradients(model, shared, team, list(pieces), weight, terms, bf16)
            total += means * len(whole)
            right += read_right * (weight > 0)
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
        raise ArithmeticError(
            f"the loss is {loss} in epoch {epoch}: the last good epoch is kept; "
            "try a lower --learning-rate or --precision fp32"
        )
    return {
        "train_loss": loss,
        "train_accuracy": float(team.sum(right)) / trained,
        "train_margin_loss": margin,
        "train_reconstruction_loss": None if math.isnan(reconstruction) else reconstruction,
    }


def _gradients(model, shared, team, pieces, weight: float, terms: dict, bf16: bool):
    """Add up the gradients of this process's part of a step, a piece of its images at a time.

    Parameters
    ----------
    pieces  images, what is to be reconstructed of them, and labels, of each piece.
    weight  of this process's mean loss in the sum of all.
    terms   of `objective`: the reconstruction's factor, the share of training that is done.

    Returns
    -------
    What `_means` gives, of the whole part and times its weight; how many images are read right.
    """
    images, means, right = sum(len(some) for some, _, _ in pieces), 0, 0
    for number, (some, target, truth) in enumerate(pieces, 1):
        of_step = weight * len(some) / images
        with contextlib.nullcontext() if number == len(pieces) else team.alone(shared):
            with torch.autocast(some.device.type, torch.bfloat16, enabled=bf16):
                output = shared(some)
                objective = _objective(model, output, target, truth, terms)
            (objective.loss * of_step).backward()
        means = means + _means(objective) * of_step
        right = right + all_right(output.lengths, truth).sum()
    return means, right


def _means(objective: models.Objective) -> Tensor:
    """Loss, margin loss and reconstruction loss (3,), means over images; NaN without the last."""
    parts = objective.loss, objective.margin, objective.reconstruction
    return torch.stack(
        [objective.loss.new_full((), math.nan) if p is None else p.detach().mean() for p in parts]
    )


def _objective(model, output, images: Tensor, labels: Tensor, terms: dict) -> models.Objective:
    """A network's objective; `terms` that its signature does not name it need not know of."""
    known = signature(model.objective).parameters
    return model.objective(output, images, labels, **{k: v for k, v in terms.items() if k in known})
