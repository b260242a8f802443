"""Evaluation: accuracy with its interval, confusion, and losses per image, over a whole split."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from capsviz.augment import to_float
from capsviz.data import Dataset
from capsviz.functional import margin_loss, predict, reconstruction_loss
from capsviz.intervals import wilson
from capsviz.tracing import images_at_a_time, inference


class Evaluation(NamedTuple):
    """What a network does on n images. Nothing here is given the true class but the scores."""

    n: int
    accuracy: float
    accuracy_ci95: tuple[float, float]  # Wilson score interval
    error_percent: float
    per_class: dict[str, float]  # accuracy of the images of each class; absent classes left out
    confusion: list[list[int]]  # row: true class, column: predicted
    margin_loss: float  # mean over images
    reconstruction_sse: float | None  # mean over images, decoded from the predicted class


def evaluate(
    model: nn.Module, dataset: Dataset, *, batch_size: int | None = None, progress=iter
) -> Evaluation:
    """Run a network over a split; it is left in the mode it was found in.

    Parameters
    ----------
    model       any of `capsviz.models`.
    dataset     the split; its images must have the size the network was built for.
    batch_size  images at a time; the result does not depend on it. None: by their size.
    progress    wraps the batches, for a progress bar.
    """
    predicted, margins, sses = [], [], []
    batch_size = batch_size or images_at_a_time(model)
    device = next(model.parameters()).device
    classes = len(dataset.classes)
    with inference(model):
        for start in progress(range(0, len(dataset), batch_size)):
            images = to_float(dataset.images[start : start + batch_size].to(device))
            labels = dataset.labels[start : start + batch_size].to(device)
            output = model(images)
            if output.lengths.shape[1] != classes:
                raise ValueError(
                    f"the network knows {output.lengths.shape[1]} classes, "
                    f"but {dataset.name} has {classes}"
                )
            winner = predict(output.lengths)
            predicted.append(winner.cpu())
            margins.append(margin_loss(output.lengths, labels).cpu())
            if getattr(model, "decoder", None) is not None:
                made = model.decode(output.poses, winner)
                sses.append(reconstruction_loss(images, made).cpu())
    table = confusion_matrix(dataset.labels, torch.cat(predicted), classes)
    right, n = int(table.diagonal().sum()), len(dataset)
    totals = table.sum(1)
    return Evaluation(
        n=n,
        accuracy=right / n,
        accuracy_ci95=wilson(right, n),
        error_percent=100 * (n - right) / n,
        per_class={
            name: int(table[k, k]) / int(totals[k])
            for k, name in enumerate(dataset.classes)
            if totals[k] > 0
        },
        confusion=table.tolist(),
        margin_loss=float(torch.cat(margins).double().mean()),
        reconstruction_sse=float(torch.cat(sses).double().mean()) if sses else None,
    )


def confusion_matrix(labels: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """Counts (classes, classes): row true, column predicted."""
    return torch.bincount(labels.cpu() * classes + predicted.cpu(), minlength=classes**2).view(
        classes, classes
    )
