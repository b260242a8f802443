"""The variance of couplings by parents, positions, types, children, classes and images.

A preference is a coupling less the mean of the couplings of its child (primary capsule).
Its mean square over images, children and parents is a sum of means of squares, exactly:

    parents      what all children favour a parent by, in every image
    places       what those of a position add to that, in every image
    types        what those of a type add, in every image
    children     what a single child adds, in every image
    classes      what all children add alike in the images of a class
    by child     what a single child adds to that in the images of a class
    images       what is left: it differs between images of a class

The first four are the same tree in all images; the others change with the image.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from capsviz.statistics.estimate import Estimate

BLOCK = 50  # resamples at a time
NOTHING = 1e-6  # of the largest coupling: smaller preferences are rounding


def preferences(couplings: Tensor) -> Tensor:
    """Return preferences: couplings (..., I, J) less their mean over J."""
    return couplings - couplings.mean(-1, keepdim=True)


def is_even(couplings: Tensor) -> bool:
    """Return whether couplings are uniform, but for rounding."""
    largest = float(couplings.abs().max())
    return float(preferences(couplings).abs().max()) <= NOTHING * largest


def components(
    values: Tensor, labels: Tensor, grid: tuple[int, int, int] | None, counts: Tensor
) -> np.ndarray:
    """Return mean squares of preferences by component, under R resamples of the images: (R, 7).

    Parameters
    ----------
    values  (N, I, J) preferences.
    labels  (N,) classes.
    grid    (types, rows, columns) of the children; None: positions and types are 0.
    counts  (R, N) how often each image is in each resample.
    """
    _, I, J = values.shape
    flat = values.flatten(1)
    squares = flat.double().square().sum(1)
    rows = []
    for some in counts.split(BLOCK):
        n = some.sum(1).double()
        total = flat.new_zeros(len(some), I, J).double()
        between = torch.zeros(len(some), dtype=torch.double)
        alike = torch.zeros_like(between)
        for k in labels.unique():
            own = labels == k
            of_class = (some[:, own].to(flat) @ flat[own]).double().view(-1, I, J)
            weight = some[:, own].sum(1).double().clamp_min(1e-9)
            between += of_class.square().sum((1, 2)) / weight
            alike += I * of_class.mean(1).square().sum(1) / weight
            total += of_class
        mean = total / n[:, None, None]
        fixed = _fixed(mean, grid) * n[:, None]
        whole, parents = fixed.sum(1), fixed[:, 0]
        classes = alike - parents
        by_child = between - whole - classes
        images = some.double() @ squares - between
        parts = torch.cat([fixed, torch.stack([classes, by_child, images], 1)], 1)
        rows.append((parts / (n * I * J)[:, None]).clamp_min(0))
    return torch.cat(rows).numpy()


def _fixed(mean: Tensor, grid) -> Tensor:
    """Sums of squares (R, 4) of mean preferences (R, I, J)."""
    parents = mean.mean(1)
    every = mean.shape[1] * parents.square().sum(1)
    whole = mean.square().sum((1, 2))
    places = types = torch.zeros_like(every)
    if grid is not None:
        by_grid = mean.unflatten(1, (grid[0], grid[1] * grid[2]))
        places = _spread(by_grid.mean(1), parents) * grid[0]
        types = _spread(by_grid.mean(2), parents) * grid[1] * grid[2]
    return torch.stack([every, places, types, whole - every - places - types], 1)


def _spread(means: Tensor, parents: Tensor) -> Tensor:
    """Squares of group means (R, G, J) about the mean of all (R, J)."""
    return (means - parents[:, None]).square().sum((1, 2))


def of_children(values: Tensor, labels: Tensor) -> np.ndarray:
    """Return mean squares (I, 3) of each child: the same in all images, by class, by image."""
    N = len(values)
    values = values.double()
    whole, mean = values.square().sum((0, 2)), values.mean(0)
    between = torch.zeros_like(whole)
    for k in labels.unique():
        own = values[labels == k]
        between += len(own) * own.mean(0).square().sum(1)
    fixed = N * mean.square().sum(1)
    parts = torch.stack([fixed, between - fixed, whole - between], 1)
    return (parts / (N * values.shape[2])).clamp_min(0).numpy()


def shares(
    values: Tensor, labels: Tensor, grid: tuple[int, int, int] | None, counts: np.ndarray
) -> Estimate:
    """Return the share of each component (7,), with intervals by resamples of `draw_resamples`.

    A resample holds some images twice, which makes classes look further apart: intervals are
    centred on the value. NaN where no child favours anything.
    """
    once = torch.ones(1, len(values))
    every = components(values.double(), labels, grid, once)[0]
    drawn = components(values, labels, grid, torch.from_numpy(counts))
    with np.errstate(invalid="ignore"):
        value = every / every.sum()
        drawn = drawn / drawn.sum(1, keepdims=True)
    low, high = np.percentile(drawn - drawn.mean(0) + value, [2.5, 97.5], axis=0).clip(0, 1)
    ends = np.stack([np.minimum(low, value), np.maximum(high, value)], -1)
    return Estimate(value, ends, len(values))
