"""Favourite parents, frozen couplings, and trees of moved images."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsviz import checkpoint
from capsviz.analyses.parse_tree.variance import NOTHING, preferences
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.intervals import mean_interval
from capsviz.tracing import CHUNK_IMAGES, abilities, even_couplings, trace, under_couplings
from capsviz.tracing.many import couples, require_all_to_all
from capsviz.transforms.augment import cut

TRAINED, UNKNOWN, FRESH = "trained", "this network", "freshly initialised"
CHOICES = (
    "differ, unlike classes",
    "differ, same class",
    "not the usual one",
    "the class that is read",
    "another image's class",
)
FROZEN = (
    "its own",
    "mean of other images",
    "one tree: each class's column",
    "mean of the class it reads",
    "mean of another class",
    "even",
)
TREES = ("whole tree", "less its class's")
MOVED = ("at the place that it moved to", "at the same place", "one place the other way")


class Observation(NamedTuple):
    """Couplings and predicted classes of N images."""

    couplings: Tensor  # (N, I, J) of the last iteration
    even: Tensor  # (I, J)
    read: Tensor  # (N,)
    grid: tuple[int, int, int] | None


def known_as(model) -> str:
    """Return what a network is called: trained only where its card says so."""
    return TRAINED if checkpoint.is_trained(model) else UNKNOWN


def untrained(model, images, seeds: int, seed: int) -> tuple[list, list[str]]:
    """Return untrained networks, and a note where the network cannot be built anew."""
    try:
        return [checkpoint.fresh(model, seed + k, images=images) for k in range(seeds)], []
    except ValueError as error:
        return [], [f"no untrained network: {error}"]


def observe(model, images: Tensor, progress=iter) -> Observation:
    """Return couplings of images (N, C, H, W); ValueError for a layer that is not all to all."""
    couplings, read = [], []
    for batch in progress(images.split(CHUNK_IMAGES)):
        traced = trace(model, batch, keep=("couplings", "lengths"))
        require_all_to_all(traced.couplings)
        couplings.append(traced.couplings[-1].clone())
        read.append(traced.lengths.argmax(1))
    even = even_couplings(traced.couplings)
    return Observation(torch.cat(couplings), even, torch.cat(read), traced.grid)


def favourites(couplings: Tensor) -> Tensor:
    """Return the parent (..., I) with each child's largest coupling; -1 for uniform couplings."""
    values = preferences(couplings)
    strength, favourite = values.max(-1)
    scale = couplings.abs().amax(-1)
    return torch.where(strength > NOTHING * scale, favourite, -1)


def usual(favourite: Tensor, parents: int) -> Tensor:
    """Return the most common favourite (I,) of each child over images (N, I)."""
    hits = [(favourite == j).sum(0) for j in range(-1, parents)]
    return torch.stack(hits).argmax(0) - 1


def choices(favourite: Tensor, known: Tensor, labels: Tensor, read: Tensor, generator) -> Estimate:
    """Return shares of children (5,), means over pairs of images or over images: see `CHOICES`.

    Intervals are by Student's t; no image is in two couples of a kind. NaN where there are
    fewer than two couples, or images, and where no child favours any parent.

    Parameters
    ----------
    favourite  (N, I) of the images.
    known      (I,) the usual favourites, of other images.
    labels     (N,) true classes.
    read       (N,) predicted classes.
    """
    if (favourite < 0).all():  # none favours any: there is nothing to compare
        nothing = np.full(len(CHOICES), np.nan)
        return Estimate(nothing, np.stack([nothing, nothing], -1), None)
    unlike, like = couples(labels, generator), _like(labels, generator)
    shares = [(favourite[a] != favourite[b]).double().mean(1) for a, b in (unlike.T, like.T)]
    shares.append((favourite != known).double().mean(1))
    shares.append((favourite == read[:, None]).double().mean(1))
    voting, other = unlike.flatten(), unlike.flip(1).flatten()
    shares.append((favourite[voting] == read[other][:, None]).double().mean(1))
    return stack([_mean(one.numpy()) for one in shares])


def _mean(values) -> Estimate:
    if len(values) < 2:
        return Estimate(np.nan, np.full(2, np.nan), len(values))
    value, ends = mean_interval(values)
    return Estimate(value, ends.clip(0, 1), len(values))


def _like(labels: Tensor, generator) -> Tensor:
    """Disjoint couples (C, 2) of images of one class."""
    pairs = []
    for k in labels.unique():
        own = (labels == k).nonzero().flatten()
        own = own[torch.randperm(len(own), generator=generator)]
        pairs.append(own[: len(own) // 2 * 2].view(-1, 2))
    return torch.cat(pairs)


def class_means(known: Observation, classes: Tensor) -> Tensor:
    """Return mean couplings (J, I, J) of the images of each class, or of all for an empty class."""
    every = known.couplings.mean(0)
    own = [known.couplings[classes == k] for k in range(every.shape[1])]
    return torch.stack([some.mean(0) if len(some) else every for some in own])


def frozen(
    model,
    images: Tensor,
    own: Observation,
    known: Observation,
    classes: Tensor,
    generator,
    progress=iter,
) -> Tensor:
    """Return activations (6, N, J) with couplings frozen in the ways of `FROZEN`.

    Parameters
    ----------
    own, known  the images, and others, of which the means are.
    classes     (M,) of those others; one without images has the mean of all.
    """
    J = own.couplings.shape[2]
    every, of_class = known.couplings.mean(0), class_means(known, classes)
    tree = torch.stack([of_class[k, :, k] for k in range(J)], 1)
    away = torch.randint(1, J, (len(images),), generator=generator)
    another = (own.read + away) % J
    parts = []
    for rows in progress(torch.arange(len(images)).split(CHUNK_IMAGES)):
        several = (
            None, every, tree, of_class[own.read[rows]], of_class[another[rows]], own.even
        )  # fmt: skip
        parts.append(under_couplings(model, images[rows], several))
    return torch.cat(parts, 1)


def steps(model, grid) -> list[tuple[int, int]]:
    """Return (axis, pixels): how far an image moves for one position of the grid, if it has any."""
    if grid is None or not abilities(model).has_receptive_fields:
        return []
    apart = []
    for axis in (0, 1):
        if grid[1 + axis] < 3:
            continue
        near, next_one = (model.receptive_field(*position) for position in _neighbours(grid, axis))
        px = next_one[axis].start - near[axis].start
        px = px or next_one[axis].stop - near[axis].stop  # both begin before the border
        if px > 0:
            apart.append((axis, px))
    return apart


def _neighbours(grid, axis: int) -> list[tuple[int, int]]:
    """Two positions one apart, away from the border where there is room."""
    first = [min(1, grid[1] - 1), min(1, grid[2] - 1)]
    second = list(first)
    second[axis] += 1
    return [tuple(first), tuple(second)]


def moved(
    model, images: Tensor, own: Observation, usual_tree: Tensor, apart, progress=iter
) -> Tensor:
    """Return correlations (2, 3, N) of an image's tree and that of the image moved by a position.

    Of what single children add to what all of them favour, over children and parents, and of the
    same less the usual tree of the image's class: of a child with the child of its type at the
    position that the image moved it to, at the same position, and one position the other way. Mean
    over moves down and to the right. NaN where nothing but rounding is left in any image.

    Parameters
    ----------
    usual_tree  (N, I, J) mean couplings of other images of each image's class.
    apart       of `steps`.
    """
    rows = []
    for axis, px in progress(apart):
        offsets = torch.full((2, len(images)), px)
        offsets[axis] = 0  # the window begins earlier: what it shows lies later
        moved_on = observe(model, cut(images, offsets, px)).couplings
        for less in (0, usual_tree):
            before, after = (
                _by_position(one - less, own.grid, axis) for one in (own.couplings, moved_on)
            )
            middle = before[:, :, 1:-1]
            if _own(middle).abs().max() <= NOTHING * own.couplings.abs().max():
                middle = torch.full_like(middle, torch.nan)
            for lag in (after[:, :, 2:], after[:, :, 1:-1], after[:, :, :-2]):
                rows.append(_correlation(middle, lag))
    return torch.stack(rows).view(len(apart), 2, 3, -1).mean(0)


def _by_position(couplings: Tensor, grid, axis: int) -> Tensor:
    """Preferences (N, types, positions along the axis, positions across, J)."""
    return preferences(couplings).unflatten(1, grid).movedim(2 + axis, 2)


def _own(values: Tensor) -> Tensor:
    """What single children add to what all of them favour, in double."""
    return values.double() - values.double().mean((1, 2, 3), keepdim=True)


def _correlation(a: Tensor, b: Tensor) -> Tensor:
    """Pearson's of each image, parent by parent about the mean of its children: (N,)."""
    a, b = _own(a).flatten(1), _own(b).flatten(1)
    size = (a.square().sum(1) * b.square().sum(1)).sqrt()
    return (a * b).sum(1) / size.clamp_min(torch.finfo(torch.double).tiny)
