"""Measures of `faithfulness`: maps of images, their curves and errors, a few images at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from capsviz.analyses.faithfulness import curves, randomised
from capsviz.analyses.faithfulness.explained import Explained
from capsviz.analyses.faithfulness.maps import RANDOM, Method, methods, own_quantity
from capsviz.experiments.attacks import frozen
from capsviz.nn.images import like_of
from capsviz.statistics.comparison import compare_means, draw_resamples
from capsviz.statistics.estimate import Estimate
from capsviz.tracing import scores

AT_A_TIME = 8  # images, each of which is shown in a few hundred forms
TARGETS = ("read", "true")
DRAWS, PER_DRAW = 5, 2  # of random weights, and images under each


class Example(NamedTuple):
    """One image under M maps."""

    names: list[str]
    left_out: list[str]
    target: int
    shares: Tensor  # (S,)
    maps: Tensor  # (M, H, W) as they are looked at, places as rectangles
    curves: Tensor  # (2, M, S)
    infidelity: Tensor  # (M,)
    random_maps: Tensor  # (M, H, W) of the network with random weights
    correlation: Tensor  # (M,) of ranks, with those; NaN for the random order
    quantity: dict[str, str] | None  # what the routing map shows, where it is no length


class Survey(NamedTuple):
    """N images under M maps."""

    names: list[str]
    left_out: list[str]
    shares: Tensor  # (S,)
    curves: Tensor  # (2, M, N, S)
    infidelity: Tensor  # (M, N)
    stages: list[str]  # (L,)
    correlations: Tensor  # (DRAWS, M, L) means over the images of a draw
    quantity: dict[str, str] | None  # what the routing map shows, where it is no length


def example(
    model, image: Tensor, label: int | None, *, target: str, steps: int, seed: int
) -> Example:
    """Maps of image (1, C, H, W), their curves and errors, and maps of random weights."""
    generator = torch.Generator().manual_seed(seed)
    labels = None if label is None else torch.tensor([label])
    classes = _classes(model, image, labels, target)
    like = image.to(like_of(model))
    with frozen(model):
        some, left_out = methods(model, like[:1], seed)
        maps = [method.maps(like, classes.to(like.device)) for method in some]
        shares = curves.grid_of(steps)
        drawn, errors = _judged(model, image, classes, maps, shares, generator)
        parts = randomised.stages(model, like[:1])
        weights = [weight for part in parts for weight in part.weights]
        with randomised.randomised(weights, generator):
            again = like.clone()
            later = [method.maps(again, classes.to(like.device)).own for method in some]
    names = [method.name for method in some]
    correlation = torch.stack(
        [
            (randomised.centred_ranks(a.own) * randomised.centred_ranks(b).nan_to_num(0.0)).sum()
            for a, b in zip(maps, later, strict=True)
        ]
    )
    correlation[names.index(RANDOM)] = torch.nan
    return Example(
        names, left_out, int(classes[0]), shares, enlarged([one.own[0] for one in maps], image),
        drawn[:, :, 0], errors[:, 0], enlarged([one[0] for one in later], image), correlation,
        own_quantity(model, like[:1], names),
    )  # fmt: skip


def survey(
    model, images: Tensor, labels: Tensor, *, target: str, steps: int, seed: int, progress=iter
) -> Survey:
    """The same of images (N, C, H, W), and correlations with maps of random weights of some."""
    generator = torch.Generator().manual_seed(seed)
    classes = _classes(model, images, labels, target)
    like, shares = like_of(model), curves.grid_of(steps)
    drawn, errors = [], []
    with frozen(model):
        some, left_out = methods(model, images[:1].to(like), seed)
        for rows in progress(torch.arange(len(images)).split(AT_A_TIME)):
            batch, targets = images[rows].to(like), classes[rows]
            maps = [method.maps(batch, targets.to(batch.device)) for method in some]
            pair = _judged(model, images[rows], targets, maps, shares, generator)
            drawn.append(pair[0])
            errors.append(pair[1])
        parts = randomised.stages(model, images[:1].to(like))
        correlated = _under_draws(model, some, images, classes, parts, generator)
    names = [method.name for method in some]
    stages = [part.name for part in parts]
    return Survey(
        names, left_out, shares, torch.cat(drawn, 2), torch.cat(errors, 1), stages, correlated,
        own_quantity(model, images[:1].to(like), names),
    )  # fmt: skip


def _judged(model, images, classes, maps, shares, generator) -> tuple[Tensor, Tensor]:
    """Curves (2, M, B, S) and infidelity (M, B) of `Maps`."""
    ranks = torch.stack([curves.ranks(one.order, generator) for one in maps])
    drawn = curves.curves(lambda some: scores(model, some), images, ranks, classes, shares)
    sides = tuple(images.shape[2:])
    count = curves.PATCHES if len(images) > 1 else curves.OF_ONE
    masks = [curves.patches(count, sides, generator) for _ in images]
    masks = torch.stack(masks)
    losses = curves.lost(lambda some: _values(model, some), images, classes, masks)
    contributions = torch.stack([one.contributions for one in maps])
    return drawn, curves.infidelity(contributions, masks, losses)


def _under_draws(
    model, some: Sequence[Method], images: Tensor, classes: Tensor, parts, generator
) -> Tensor:
    """Mean correlations (DRAWS, M, L), each draw of weights with images of its own."""
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


def _classes(model, images: Tensor, labels: Tensor | None, target: str) -> Tensor:
    """Classes (B,) whose scores are explained."""
    if target not in TARGETS:
        raise ValueError(f"expected the class read or the true one, 'read' or 'true', got {target}")
    if target == "read":
        return scores(model, images).argmax(1)
    if labels is None:
        raise ValueError("the true class of this picture is not known: take --target read")
    return labels.cpu()


def enlarged(maps: Sequence[Tensor], image: Tensor) -> Tensor:
    """Maps (h, w) of unlike size, each place as a rectangle, at that of image: (M, H, W)."""
    sides = tuple(image.shape[2:])
    return torch.cat([interpolate(one[None, None], sides)[0] for one in maps])


def of_some(values: np.ndarray, seed: int) -> Estimate:
    """Means of (M, N) under resamples; NaN of fewer than 2 images."""
    if values.shape[1] < 2:
        none = np.full(len(values), np.nan)
        return Estimate(none, np.stack([none, none], 1), values.shape[1])
    compared = compare_means(values, draw_resamples(values.shape[1], seed=seed), shares=False)
    return Estimate(compared.value, compared.ci95, values.shape[1], compared.difference)


def require_steps(steps: int) -> None:
    """ValueError for fewer than 2 steps of the curves."""
    if steps < 2:
        raise ValueError(f"curves need at least 2 steps, got {steps}")
