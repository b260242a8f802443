"""One epoch: batches drawn, augmented, shared out, and a step of the optimiser for each."""

from __future__ import annotations

import contextlib
import math
from inspect import signature

import torch
from torch import Tensor, nn

from capsviz.nn import models
from capsviz.training.evaluate import all_right
from capsviz.training.optimisation import (
    parameters,
    reconstruction_factor,
    set_learning_rates,
)
from capsviz.training.recipe import resolve_precision
from capsviz.transforms.augment import Augmentation


def train_epoch(
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
    require_loss(
        loss,
        epoch,
        ": the last good epoch is kept; try a lower --learning-rate or --precision fp32",
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


def require_loss(loss: float, epoch: int, advice: str = "") -> None:
    """ArithmeticError for a loss of an epoch that is no number."""
    if not math.isfinite(loss):
        raise ArithmeticError(f"the loss is {loss} in epoch {epoch}{advice}")
