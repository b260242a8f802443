"""Measures of `sweep`: classify the same warped images by all networks, by size and in a grid."""

from itertools import product

import numpy as np
import torch
from torch import Tensor

from capsviz.nn.functional import predict
from capsviz.nn.images import like_of
from capsviz.statistics.comparison import compare_means
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import paired_interval, wilson
from capsviz.tracing import scores
from capsviz.transforms import Fill
from capsviz.transforms.warps import matrix, warp

GRID_DEG, GRID_PX = 30.0, (-3.0, 0.0, 3.0)  # largest rotation, and shifts, of the worst-case grid
CHUNK_IMAGES = 128  # largest number of images that are warped and classified at a time
SAME = 1e-6  # areas that differ by less are equal
CHUNK_VALUES = 1 << 22  # largest number of their pixel values: 16 MB


def grid_warps(rotations: int) -> list[dict[str, float]]:
    """Return the arguments of `matrix` for each warp of the worst-case grid, largest warp first.

    Raise ValueError for fewer than 1 rotation, or an even number, which would leave out 0°.
    """
    if rotations < 1 or rotations % 2 == 0:
        raise ValueError(f"expected an odd number of --grid rotations, at least 1, got {rotations}")
    angles = np.linspace(-GRID_DEG, GRID_DEG, rotations) if rotations > 1 else [0.0]
    warps = [
        {"angle_deg": float(a), "shift_x_px": x, "shift_y_px": y}
        for a, x, y in product(angles, GRID_PX, GRID_PX)
    ]
    return sorted(warps, key=lambda one: -sum(map(abs, one.values())))


def area_weights(levels: np.ndarray) -> np.ndarray:
    """Return weights (A,), which sum to 1, of the trapezoid area divided by the range."""
    if len(levels) == 1:
        return np.ones(1)
    half = np.diff(levels) / 2 / (levels[-1] - levels[0])
    return np.append(half, 0) + np.append(0, half)


def mean_area(areas: np.ndarray, counts: np.ndarray) -> Estimate:
    """Return the means of areas (K, N) in [0, 1], as `compare_means` does, with intervals.

    A bootstrap of equal areas would have an interval of width 0. Wilson's interval of such a share
    is used instead. For equal differences, it is that of `paired_interval(0, 0, N)` about them.
    """
    compared, n = compare_means(areas, counts), areas.shape[1]
    assert compared.difference is not None
    for k, less in enumerate(areas - areas[0]):
        if np.ptp(areas[k]) < SAME:
            share = areas[k].mean().clip(0, 1)
            compared.ci95[k] = wilson(share * n, n)
        if k > 0 and np.ptp(less) < SAME:
            ends = less.mean() + np.array(paired_interval(0, 0, n))
            compared.difference.ci95[k] = ends.clip(-1, 1)
    return compared


def look(models, images: Tensor, labels: Tensor, by: Tensor, fill: Fill = "black", which=None):
    """Warp images by a matrix (1, 2, 3), chunk by chunk, and classify each chunk by all networks.

    Network k classifies the images `which[k]` of `which` (K, N), or all if it is None. The results
    of the other images are zero.

    Returns
    -------
    (K, N) each: correctness, score of the true class, score of the predicted class.
    """
    K, N = len(models), len(images)
    which = np.ones((K, N), bool) if which is None else which
    right = np.zeros((K, N), bool)
    true, winner = np.zeros((2, K, N), np.float32)
    like = like_of(models[0])
    chunk = min(CHUNK_IMAGES, max(1, CHUNK_VALUES // images[0].numel()))
    needed = np.flatnonzero(which.any(0))
    for begin in range(0, len(needed), chunk):
        part = needed[begin : begin + chunk]
        with torch.inference_mode():
            warped = warp(images[part].to(like), by, fill).clamp(0, 1)
        for k, model in enumerate(models):
            mine = np.flatnonzero(which[k, part])
            if len(mine) == 0:
                continue
            at = part[mine]
            own = scores(model, warped[mine])
            best, truth = predict(own), labels[at]
            right[k, at] = (best == truth).numpy()
            true[k, at] = own.gather(1, truth[:, None])[:, 0].numpy()
            winner[k, at] = own.gather(1, best[:, None])[:, 0].numpy()
    return right, true, winner


def worst_case(models, images: Tensor, labels: Tensor, warps, fill: Fill) -> np.ndarray:
    """Return which images (K, N) are correct under every warp.

    Under each warp, a network classifies only the images that were correct under all before.
    """
    right, frame = np.ones((len(models), len(images)), bool), (images.shape[2], images.shape[3])
    for one in warps:
        right &= look(models, images, labels, matrix(frame, **one), fill, right)[0]
    return right
