"""Fits for `equivariance`: ridge regressions on half of the images, errors on the other half."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

PENALTIES = np.logspace(-4, 4, 9)  # of ridge regression, chosen on the fitting half
LEAST = 8  # images of a class


class Errors(NamedTuple):
    """Squared errors of N images, each by fits on images of the other half, and what they share."""

    fitted: np.ndarray  # (A, N) of the vector at each size, from the unwarped image's
    unchanged: np.ndarray  # (A, N) of the unwarped image's vector itself
    spread: np.ndarray  # (A, N) of the class's mean vector at that size
    read: np.ndarray  # (N,) of the size read from a vector, mean over sizes
    range: np.ndarray  # (N,) of the mean size


def halves(labels: np.ndarray) -> np.ndarray:
    """(N,) 0 or 1: the images of each class in turn.

    Raises
    ------
    ValueError  if a class that is there has fewer than `LEAST` images.
    """
    half = np.empty(len(labels), int)
    for k in np.unique(labels):
        own = np.flatnonzero(labels == k)
        if len(own) < LEAST:
            raise ValueError(
                f"class {k} has {len(own)} images, expected at least {LEAST} of each: "
                "use more images (--n)"
            )
        half[own] = np.arange(len(own)) % 2
    return half


def cross_fit(vectors: np.ndarray, sizes: np.ndarray, labels, half, dimensions: int) -> Errors:
    """Fit every class on each half of its images and measure on the other one.

    Parameters
    ----------
    vectors     (1 + A, N, F), those of the unwarped images first.
    sizes       (1 + A,) of the warps, the neutral one first.
    half        (N,) of `halves`.
    dimensions  that longer vectors are reduced to, by PCA of the fitting half at all sizes.
    """
    from sklearn.decomposition import PCA

    A, N = len(sizes) - 1, len(labels)
    made = Errors(*(np.empty((A, N)) for _ in range(3)), *(np.empty(N) for _ in range(2)))
    for k in np.unique(labels):
        for side in (0, 1):
            fit, held = (np.flatnonzero((labels == k) & (half == s)) for s in (1 - side, side))
            rows = vectors[:, fit].reshape(-1, vectors.shape[2])
            reduce = PCA(min(dimensions, *rows.shape), svd_solver="full").fit(rows)
            known, asked = (
                np.stack([reduce.transform(one[part]) for one in vectors]) for part in (fit, held)
            )
            for a in range(A):
                target, true = known[a + 1], asked[a + 1]
                made.fitted[a, held] = _squares(_affine(known[0], target)(asked[0]) - true)
                made.unchanged[a, held] = _squares(asked[0] - true)
                made.spread[a, held] = _squares(target.mean(0) - true)
            read = _ridge(known.reshape(len(rows), -1), np.repeat(sizes, len(fit))).predict
            off = read(asked.reshape((A + 1) * len(held), -1)).reshape(A + 1, -1) - sizes[:, None]
            made.read[held] = (off**2).mean(0)
            made.range[held] = np.var(sizes)
    return made


def _affine(given: np.ndarray, target: np.ndarray):
    """The affine map from vectors (M, E) to others of their kind, as a function.

    Shrunk towards the mean of `target`, or towards no change: whichever predicts better, left-out
    vector by left-out vector.
    """
    towards_mean, towards_given = _ridge(given, target), _ridge(given, target - given)
    if towards_mean.best_score_ >= towards_given.best_score_:
        return towards_mean.predict
    return lambda asked: asked + towards_given.predict(asked)


def _ridge(given: np.ndarray, target: np.ndarray):
    """A linear map with an offset; penalties go with the variance of what is given."""
    from sklearn.linear_model import RidgeCV

    return RidgeCV(PENALTIES * (given.var(0).mean() or 1)).fit(given, target)


def _squares(difference: np.ndarray) -> np.ndarray:
    return (difference**2).sum(1)
