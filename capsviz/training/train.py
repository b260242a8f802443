"""Training: a loop that resumes to the same weights, and a record of every epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from capsviz import data, memory
from capsviz.checkpoint.tensors import read_tensors
from capsviz.nn import models
from capsviz.nn.random_state import seeded
from capsviz.provenance import commit, hardware
from capsviz.training import history
from capsviz.training.distributed import Team
from capsviz.training.epoch import train_epoch
from capsviz.training.evaluate import evaluate
from capsviz.training.gradients import Gradients
from capsviz.training.history import best_path
from capsviz.training.optimisation import (
    Average,
    build_optimiser,
    learning_rate,
    weights_that_count,
)
from capsviz.training.recipe import Recipe, as_begun, resolve_precision
from capsviz.training.record import Epoch, best_epoch, finished, stopped_early
from capsviz.training.transfer import start_from


def build_model(recipe: Recipe, dataset: data.Dataset) -> nn.Module:
    """The recipe's network for this data set, initialised from the recipe's seed.

    ValueError for shifts that may leave nothing of an image, and as `build` of the network says.
    """
    with seeded(recipe.seed):
        shape = dataset.first(1).crop(recipe.crop_px).image_shape
        if recipe.shift_px >= min(shape[1:]):
            raise ValueError(
                f"shift_px must be below the {min(shape[1:])} pixels of a side of the images, "
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
    keep        called as `on_epoch`, but before the epoch counts as finished: what it writes is
                there of every epoch that is not trained again.
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
        history.clear(output, card["name"] if card is not None else None)
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
        record = history.restore(state, output, recipe, model, optimiser, average, card)
        if team.leads:
            history.write_csv(output, record)
    elif team.leads:
        output.mkdir(parents=True, exist_ok=True)
    del state  # its tensors
    bf16 = resolve_precision(recipe.precision, device) == "bf16"
    gradients = Gradients(
        model, team.prepare(model), team, part=part, batch=_graphed(recipe, model, device),
        bf16=bf16, report=report,
    )  # fmt: skip
    steps = -(-len(train) // recipe.batch_size)

    while not finished(recipe, record):
        epoch, start = len(record) + 1, time.perf_counter()
        trained = train_epoch(
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
                history.keep_best(output, model, record)
                if keep is not None:
                    keep(record[-1], model)
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
        best = read_tensors(best_path(output, record))[0] if team.leads else None
        model.load_state_dict(team.agree(best))
    elif average is not None:
        model.load_state_dict(average.tensors)
    return model.eval(), record


def _put(dataset: data.Dataset, device: torch.device) -> data.Dataset:
    parts = None if dataset.parts is None else dataset.parts.to(device)
    images, labels = dataset.images.to(device), dataset.labels.to(device)
    return replace(dataset, images=images, labels=labels, parts=parts)


def _graphed(recipe, model, device) -> int | None:
    """Images of a step that is to be one graph: it holds its memory while others are evaluated."""
    batch = recipe.batch_size
    needed, room = models.training_bytes(model, batch), memory.available(device)
    return batch if needed is None or not room or 2 * needed <= room else None


def _images_at_a_time(recipe, model, images: int, team: Team, device, report) -> int:
    whole = min(recipe.batch_size, images)
    batch, left = -(-whole // team.size), images % recipe.batch_size or whole
    if models.needs_whole_batches(model):
        if min(team.smallest(whole), team.smallest(left)) < 2:
            raise ValueError(
                f"batch norm needs at least 2 images at a time, but batches of {recipe.batch_size} "
                f"from {images} images, for {team.size} processes, leave one: choose another "
                "--batch-size, or no batch norm"
            )
        what = f"a training step of {batch} images"
        memory.require(model.training_bytes(batch), what, "choose a smaller --batch-size", device)
        return batch
    if models.training_bytes(model, batch) is None:
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
