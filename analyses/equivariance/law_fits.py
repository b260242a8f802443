"""Fits and errors for the law of a warp: six ways to predict the vector under the whole of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsviz.analyses.equivariance import vectors as vectors_of
from capsviz.analyses.equivariance.fits import affine, ridge
from capsviz.statistics.comparison import compare_explained
from capsviz.statistics.estimate import stack
from capsviz.statistics.runs import fields_over_draws
from capsviz.tracing import features
from capsviz.transforms.warps import family_matrix, warp

PIXELS = None  # instead of a network
NOTHING = 1e-8  # of the squares of all changes: about their mean so little is rounding
WHOLE_DOWN, HALF_DOWN, HALF_UP, WHOLE_UP = range(1, 5)  # in vectors by size


class Data(NamedTuple):
    """Images that are measured, those that are fitted on behind them, and who is fitted on whom."""

    images: Tensor  # (X, C, H, W)
    labels: np.ndarray  # (X,)
    folds: list[tuple[np.ndarray, np.ndarray]]  # rows measured, rows of their fits
    n: int  # the first so many are measured
    fit: int  # images of each class that a map is fitted on
    notes: list[str]


class Errors(NamedTuple):
    """Squared errors of N images' vectors, both whole warps together."""

    predicted: np.ndarray  # (L, N) by each law
    spread: np.ndarray  # (N,) by the class's mean vector under that warp
    change: np.ndarray  # (N,) by the class's mean change; NaN where that is all of it
    dimensions: int  # numbers in a vector


def gather(images, labels, fit_images, fit_labels, fit: int, fit_of: str) -> Data:
    """Return which images are measured and which are fitted on; ValueError for too few."""
    images, labels = images.cpu(), labels.cpu().numpy()
    groups, fit, notes = vectors_of.groups(labels, fit_images, fit_labels, fit, fit_of)
    if fit_images is None:
        sides = [
            np.sort(np.concatenate([places[side::2] for _, places, _ in groups])) for side in (0, 1)
        ]
        return Data(images, labels, [tuple(sides), tuple(sides[::-1])], len(images), fit, notes)
    others = np.concatenate([chosen for *_, chosen in groups])
    rows = np.arange(len(images) + len(others))
    return Data(
        torch.cat([images, fit_images.cpu()[others]]),
        np.concatenate([labels, fit_labels.cpu().numpy()[others]]),
        [(rows[: len(images)], rows[len(images) :])],
        len(images),
        fit,
        notes,
    )


def errors(kinds, data: Data, warps, sizes, progress=iter) -> list[list[list[Errors]]]:
    """For each warp and kind of vectors the errors of its networks, one for each draw.

    Parameters
    ----------
    kinds     S lists of networks, `PIXELS` instead of one.
    warps     F names, `sizes` (F, 5) of each, the unwarped image's first.
    progress  wraps the networks of each warp.
    """
    unwarped, results = {}, []
    turns = [(s, i) for s, some in enumerate(kinds) for i in range(len(some))]
    for name, row in zip(warps, sizes, strict=True):
        results.append([[] for _ in kinds])
        size = tuple(data.images.shape[2:])
        with torch.inference_mode():
            warped = [warp(data.images, family_matrix(name, s, size)).clamp(0, 1) for s in row[1:]]
        for s, i in progress(turns):
            if (s, i) not in unwarped:
                unwarped[s, i] = vectors(kinds[s][i], data.images, data.labels)
            after = [vectors(kinds[s][i], one, data.labels) for one in warped]
            results[-1][s].append(of_vectors(np.stack([unwarped[s, i], *after]), data))
    return results


def vectors(model, images: Tensor, labels: np.ndarray) -> np.ndarray:
    """Return vectors of the true class (X, E)."""
    if model is PIXELS:
        return images.flatten(1).numpy().astype(np.float32)
    return features(model, images, torch.from_numpy(labels)).numpy()


def of_vectors(values: np.ndarray, data: Data) -> Errors:
    """Errors of vectors (5, X, E) by size, in the order of `law.STEPS`: each law on every fold."""
    parts, order = [], []
    for measured, fitted in data.folds:
        own = data.labels[fitted]
        shared = affine(*_ends(values[:, fitted])), affine(*_ends(_centred(values[:, fitted], own)))
        for k in np.unique(data.labels[measured]):
            test = measured[data.labels[measured] == k]
            training = values[:, fitted[own == k]].astype(float)
            parts.append(of_class(values[:, test].astype(float), training, *shared))
            order.append(test)
    back = np.argsort(np.concatenate(order))
    joined = [np.concatenate(rows, -1)[..., back] for rows in zip(*parts, strict=True)]
    predicted, spread, change, whole = joined
    if change.sum() <= NOTHING * max(whole.sum(), spread.sum()):
        change = np.full_like(change, np.nan)
    return Errors(predicted, spread, change, values.shape[2])


def _centred(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Vectors (5, M, E) less the mean of their class at each size."""
    centred = values.astype(float)
    for k in np.unique(labels):
        centred[:, labels == k] -= centred[:, labels == k].mean(1, keepdims=True)
    return centred


def of_class(test: np.ndarray, training: np.ndarray, one_map, one_matrix):
    """The fields of `Errors`, of images (5, N, E) by fits on others of their class (5, M, E), and
    the squares (N,) of the whole change.

    The map of all classes, and their matrix between vectors less the mean of the class, are of fits
    on all classes.
    """
    start, ends = _ends(training)
    before, after = _ends(test)
    halves = training[[HALF_DOWN, HALF_UP]]
    down, up = (affine(start, half[None]) for half in halves)
    parts = np.stack([halves[1] - halves[0], halves[0] + halves[1] - 2 * start]) / 2
    odd, even = ridge(start, parts)[0](before)
    predictions = (
        affine(start, ends)(before),
        np.stack([half(half(before)[0])[0] for half in (down, up)]),
        np.stack([before - 2 * odd + 4 * even, before + 2 * odd + 4 * even]),
        one_matrix(before - start.mean(0)) + ends.mean(1, keepdims=True),
        one_map(before),
        before + (ends - start).mean(1, keepdims=True),
    )
    change = after - before - (ends - start).mean(1, keepdims=True)
    return (
        np.stack([_squares(one - after) for one in predictions]),
        _squares(after - ends.mean(1, keepdims=True)),
        _squares(change),
        _squares(after - before),
    )


def _ends(values: np.ndarray):
    """Vectors of unwarped images (N, E), and under both whole warps (2, N, E)."""
    values = np.asarray(values, float)
    return values[0], values[[WHOLE_DOWN, WHOLE_UP]]


def _squares(difference: np.ndarray) -> np.ndarray:
    """Both whole warps together: (2, N, E) -> (N,)."""
    return (difference**2).sum((0, 2))


def explained(rows: list[list[Errors]], counts: np.ndarray) -> dict:
    """Fields of `Law` of one warp, from the errors of S kinds of vectors, by resamples of images.

    Each kind has one network, or one for each draw of the controls.
    """
    draws = max(map(len, rows))
    return fields_over_draws(
        [_of_draw([some[k % len(some)] for some in rows], counts) for k in range(draws)]
    )


def _of_draw(errors: list[Errors], counts: np.ndarray) -> dict:
    off, spread = (np.stack([getattr(one, f) for one in errors]) for f in ("predicted", "spread"))
    change, L = np.stack([one.change for one in errors]), off.shape[1]
    less = [
        compare_explained(own, np.tile(among, (L, 1)), counts)
        for own, among in zip(off, spread, strict=True)
    ]
    return {
        "explained": stack([compare_explained(off[:, k], spread, counts) for k in range(L)], 1),
        "change": stack([compare_explained(off[:, k], change, counts) for k in range(L)], 1),
        "to_own": stack(one.difference for one in less),
    }
