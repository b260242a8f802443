"""One epoch: batches drawn, augmented, shared out, and a step of the optimiser for each."""

from __future__ import annotations

import math
from typing import TypedDict

import torch
from torch import nn

from capsviz.training.optimisation import (
    parameters,
    reconstruction_factor,
    set_learning_rates,
)
from capsviz.transforms.augment import Augmentation


class Losses(TypedDict):
    """What training leaves in the record of an epoch, means over its images."""

    train_loss: float
    train_accuracy: float
    train_margin_loss: float
    train_reconstruction_loss: float | None  # None without a decoder


def train_epoch(
    recipe, model, gradients, team, optimiser, average, train, epoch, on_step
) -> Losses:
    """Train for an epoch; the losses and the accuracy of its record."""
    device = train.images.device
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + epoch)
    order = torch.randperm(len(train), generator=generator).to(device)
    batches = order.split(recipe.batch_size)
    augmentation = Augmentation(
        recipe.shift_px, recipe.crop_px, recipe.flip, recipe.brightness, recipe.contrast
    )
    draws = augmentation.draw(len(train), train.image_shape, generator=generator).to(device)
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
            optimiser.zero_grad(set_to_none=True)
            means, read_right = gradients(images, targets, labels, weight, terms)
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


def require_loss(loss: float, epoch: int, advice: str = "") -> None:
    """ArithmeticError for a loss of an epoch that is no number."""
    if not math.isfinite(loss):
        raise ArithmeticError(f"the loss is {loss} in epoch {epoch}{advice}")
