"""Curves and errors of maps, and their correlation with maps of random weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from capsviz.analyses.faithfulness import curves, randomised
from capsviz.analyses.faithfulness.explained import Explained
from capsviz.analyses.faithfulness.maps import Method
from capsviz.nn.images import like_of
from capsviz.statistics.comparison import compare_means, draw_resamples
from capsviz.statistics.estimate import Estimate
from capsviz.tracing import scores

AT_A_TIME = 8  # images, each of which is given in a few hundred forms
DRAWS, PER_DRAW = 5, 2  # of random weights, and images under each


def generator_of(seed: int) -> torch.Generator:
    """Return the generator of everything random."""
    return torch.Generator().manual_seed(seed)


def judged(model, images, classes, maps, shares, generator) -> tuple[Tensor, Tensor]:
    """Return curves (2, M, B, S) and infidelity (M, B) of `Maps`."""
    ranks = torch.stack([curves.ranks(one.order, generator) for one in maps])
    drawn = curves.curves(lambda some: scores(model, some), images, ranks, classes, shares)
    sides = tuple(images.shape[2:])
    count = curves.PATCHES if len(images) > 1 else curves.OF_ONE
    masks = [curves.patches(count, sides, generator) for _ in images]
    masks = torch.stack(masks)
    losses = curves.lost(lambda some: _values(model, some), images, classes, masks)
    contributions = torch.stack([one.contributions for one in maps])
    return drawn, curves.infidelity(contributions, masks, losses)


def under_draws(
    model, some: Sequence[Method], images: Tensor, classes: Tensor, parts, generator
) -> Tensor:
    """Return mean correlations (DRAWS, M, L), each draw of weights with its own images."""
    like = like_of(model)
    picked = torch.randperm(len(images), generator=generator)
    picked = picked.repeat(-(-DRAWS * PER_DRAW // len(images)))[: DRAWS * PER_DRAW]
    result = []
    for rows in picked.view(DRAWS, PER_DRAW):
        batch = images[rows].to(like)
        targets = classes[rows].to(batch.device)
        correlated = randomised.correlations(model, some, batch, targets, parts, generator)
        result.append(correlated.nanmean(2))
    return torch.stack(result)


def _values(model, images: Tensor) -> Tensor:
    """The explained number, on the CPU, of images a few at a time."""
    explained, like = Explained(model), like_of(model)
    with torch.no_grad():
        return torch.cat([explained(part.to(like)).cpu() for part in images.split(64)])


def explained_classes(model, images: Tensor, labels: Tensor | None, target: str) -> Tensor:
    """Return the classes (B,) whose scores are explained; ValueError without a true class."""
    if target == "read":
        return scores(model, images).argmax(1)
    if labels is None:
        raise ValueError("the true class of this picture is not known: take --target read")
    return labels.cpu()


def enlarged(maps: Sequence[Tensor], image: Tensor) -> Tensor:
    """Return maps (h, w) of any sizes at that of the image, positions as rectangles: (M, H, W)."""
    sides = tuple(image.shape[2:])
    return torch.cat([interpolate(one[None, None], sides)[0] for one in maps])


def of_some(values: np.ndarray, seed: int) -> Estimate:
    """Return means of (M, N) with intervals from resamples; NaN for fewer than 2 images."""
    if values.shape[1] < 2:
        none = np.full(len(values), np.nan)
        return Estimate(none, np.stack([none, none], 1), values.shape[1])
    compared = compare_means(values, draw_resamples(values.shape[1], seed=seed), shares=False)
    return Estimate(compared.value, compared.ci95, values.shape[1], compared.difference)
