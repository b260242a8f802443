"""Measures of `parts`: how suspect intact and broken images are, by networks and by pixels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from capsviz.analyses.parts.broken import KINDS
from capsviz.statistics.detection import auroc, auroc_resampled
from capsviz.statistics.estimate import Estimate
from capsviz.tracing import reconstructs, scores, trace
from capsviz.tracing.reconstruction import distance

LONGEST, RECONSTRUCTION = "largest score", "reconstruction error"
PIXELS = ("pixels: edges", "pixels: ink", "pixels: nearest image")


def suspicion(models: Sequence, names: Sequence[str], images: Tensor, intact: Tensor):
    """Scores (S, N) of images (N, C, H, W), higher for the more suspect, and their names.

    1 less the largest score of each network; the distance to its reconstruction, where it draws
    one; and of pixels alone the length of all edges, how far the ink is from the mean of the intact
    images, and the distance to the nearest intact image at another place in the set.
    """
    values, labels = [], []
    for model, name in zip(models, names, strict=True):
        if reconstructs(model):
            traced = trace(model, images, keep=("lengths", "reconstruction"))
            values += [1 - traced.lengths.amax(1), distance(images, traced.reconstruction)]
            labels += [f"{name}: {LONGEST}", f"{name}: {RECONSTRUCTION}"]
        else:
            values.append(1 - scores(model, images).amax(1))
            labels.append(f"{name}: {LONGEST}")
    pixels = _of_pixels(images, intact)
    return torch.stack([*(one.double() for one in values), *pixels]).numpy(), [*labels, *PIXELS]


def _of_pixels(images: Tensor, intact: Tensor) -> list[Tensor]:
    images, intact = images.double(), intact.double()
    edges = sum(images.diff(dim=axis).abs().flatten(1).sum(1) for axis in (2, 3))
    brightness = images.flatten(1).sum(1)
    away = (brightness - intact.flatten(1).sum(1).mean()).abs()
    apart = torch.cdist(images.flatten(1), intact.flatten(1))
    return [edges, away, apart.fill_diagonal_(torch.inf).amin(1)]


def told_apart(clean: np.ndarray, suspect: Sequence[np.ndarray], *, seed: int) -> Estimate:
    """AUROC (S, B) of each of B kinds of suspect images (S, N) against clean ones.

    Intervals are 95 % percentiles under resamples of the images, an intact one together with what
    was made of it; the difference is to the first score, under the same resamples.
    """
    value, ends, less, apart = [], [], [], []
    for one in suspect:
        area = auroc(clean, one)
        drawn = auroc_resampled(clean, one, paired=True, seed=seed)
        value.append(area)
        ends.append(np.percentile(drawn, [2.5, 97.5], axis=0).T)
        less.append(area - area[0])
        apart.append(np.percentile(drawn - drawn[:, :1], [2.5, 97.5], axis=0).T)
    n = clean.shape[1]
    difference = Estimate(np.stack(less, 1), np.stack(apart, 1), n)
    return Estimate(np.stack(value, 1), np.stack(ends, 1), n, difference)


def broken(images: Tensor, labels: Tensor, *, seed: int) -> dict[str, Tensor]:
    """The images (N, C, H, W), broken in each way, and as the controls have them."""
    return {
        name: make(images, labels, torch.Generator().manual_seed(seed))
        for name, (make, _) in KINDS.items()
    }
