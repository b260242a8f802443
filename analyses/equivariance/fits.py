"""Fits for `equivariance`: ridge regressions on some images of a class, errors on others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsviz.statistics.comparison import compare_explained
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.runs import fields_over_draws

PENALTIES = np.logspace(-4, 4, 9)  # of ridge regression, chosen on the images of the fit
LEAST = 8  # images of a class


class Errors(NamedTuple):
    """Squared errors of N images by fits on others, and what they share."""

    fitted: np.ndarray  # (A, N) of the vector at each size, from the unwarped image's
    unchanged: np.ndarray  # (A, N) of the unwarped image's vector itself
    spread: np.ndarray  # (A, N) of the class's mean vector at that size
    read: np.ndarray  # (N,) of the size read from a vector, mean over sizes
    range: np.ndarray  # (N,) of the mean size
    by_count: np.ndarray  # (T, N) as `fitted`, sum over sizes, by fits on fewer images
    kept: np.ndarray  # (N,) share of the variance that the principal components keep


def halves(count: int) -> np.ndarray:
    """(N,) 0 or 1: the images of a class in turn."""
    return np.arange(count) % 2


def counts(most: int) -> list[int]:
    """Images a class of the curve: `most` and down from it by halves, at least `LEAST`."""
    return [most >> k for k in range(4, -1, -1) if most >> k >= LEAST] or [most]


def fit_and_measure(test: np.ndarray, training: np.ndarray, sizes, dimensions, numbers) -> Errors:
    """Fit on M images of one class and measure on N others of it.

    Parameters
    ----------
    test       (1 + A, N, F) vectors to measure on, those of the unwarped images first.
    training       (1 + A, M, F) vectors to fit on.
    sizes       (1 + A,) of the warps, the neutral one first.
    dimensions  that longer vectors are reduced to, by PCA of `training` at all sizes.
    numbers     T of images, at most M: the curve's fits are on the first so many.
    """
    training, test, kept = _reduce(training, test, dimensions)
    A, N = len(sizes) - 1, test.shape[1]
    predicted = affine(training[0], training[1:])(test[0])
    fewer = [
        predicted if m == training.shape[1] else affine(training[0, :m], training[1:, :m])(test[0])
        for m in numbers
    ]
    rows = training.reshape(-1, training.shape[2])
    read = ridge(rows, np.repeat(sizes, training.shape[1])[None, :, None])[0]
    off = read(test.reshape(-1, test.shape[2])).reshape(A + 1, N) - np.asarray(sizes)[:, None]
    return Errors(
        fitted=_squares(predicted - test[1:]),
        unchanged=_squares(test[0] - test[1:]),
        spread=_squares(training[1:].mean(1, keepdims=True) - test[1:]),
        read=(off**2).mean(0),
        range=np.full(N, np.var(sizes)),
        by_count=np.stack([_squares(one - test[1:]).sum(0) for one in fewer]),
        kept=np.full(N, kept),
    )


def take_turns(vectors: np.ndarray, sizes, *options) -> Errors:
    """`fit_and_measure` of vectors (1 + A, N, F): each half by fits on the other one."""
    half = halves(vectors.shape[1])
    parts = [
        fit_and_measure(vectors[:, half == side], vectors[:, half != side], sizes, *options)
        for side in (0, 1)
    ]
    order = np.argsort(np.concatenate([np.flatnonzero(half == side) for side in (0, 1)]))
    return Errors(*(np.concatenate(pair, -1)[..., order] for pair in zip(*parts, strict=True)))


def joined(parts, order) -> Errors:
    """The errors of all classes as one; `order` puts their images into that of the data."""
    return Errors(*(np.concatenate(rows, -1)[..., order] for rows in zip(*parts, strict=True)))


def explained(errors, resampled, picked) -> dict:
    """Fields of `Result` of one warp, from the `Errors` of all vectors, by resamples.

    Parameters
    ----------
    picked  for each draw of the controls the S kinds of vectors, by their number.
    """
    drawn = [_of_draw([errors[k] for k in some], resampled) for some in picked]
    means = np.stack([one["mean"].value for one in drawn])
    return fields_over_draws(drawn) | {"by_seed": np.stack([means.min(0), means.max(0)], -1)}


def _of_draw(errors, resampled) -> dict:
    spread = np.stack([one.spread for one in errors])

    def compare(parts, among):
        return compare_explained(np.stack(list(parts)), among, resampled)

    whole, A, T = spread.sum(1), spread.shape[1], len(errors[0].by_count)
    fields = {
        field: stack(
            [compare((getattr(one, field)[a] for one in errors), spread[:, a]) for a in range(A)],
            1,
        )
        for field in ("fitted", "unchanged")
    }
    return fields | {
        "mean": compare((one.fitted.sum(0) for one in errors), whole),
        "by_count": stack([compare((e.by_count[t] for e in errors), whole) for t in range(T)], 1),
        "probe": compare((e.read for e in errors), np.stack([e.range for e in errors])),
        "probe_error": np.sqrt([one.read.mean() for one in errors]),
        "variance_kept": np.array([one.kept.mean() for one in errors]),
    }


def stacked(fields: list[dict]) -> dict:
    """The fields of F warps as one, each with the axis of the warps after that of the kinds."""
    return {
        name: (stack if isinstance(one, Estimate) else np.stack)([f[name] for f in fields], 1)
        for name, one in fields[0].items()
    }


def affine(sources: np.ndarray, targets: np.ndarray):
    """Affine maps from vectors (M, E) to A others of their kind (A, M, E), as one function.

    Each is shrunk towards the mean of its target, or towards no change: whichever predicts better,
    left-out vector by left-out vector.
    """
    to_mean, mean_errors = ridge(sources, targets)
    to_source, change_errors = ridge(sources, targets - sources)
    better = (change_errors < mean_errors)[:, None, None]
    return lambda vectors: np.where(better, vectors + to_source(vectors), to_mean(vectors))


def ridge(sources: np.ndarray, targets: np.ndarray):
    """Linear maps with an offset from vectors (M, E) to A targets (A, M, K).

    Penalties go with the variance of the vectors; each target has the one with the least error of
    vectors left out one by one, which the leverages tell without fitting anew.

    Returns
    -------
    vectors (N, E) -> (A, N, K), and these errors (A,).
    """
    centre, middle = sources.mean(0), targets.mean(1, keepdims=True)
    U, s, V = np.linalg.svd(sources - centre, full_matrices=False)
    shares = U.T @ (targets - middle)  # (A, E, K)
    penalties = PENALTIES * (sources.var(0).mean() or 1)
    errors, maps = np.empty((len(penalties), len(targets))), []
    for row, penalty in zip(errors, penalties, strict=True):
        shrink = s**2 / (s**2 + penalty)
        leverage = 1 / len(sources) + (U**2) @ shrink
        residual = targets - middle - (U * shrink) @ shares
        row[:] = ((residual / (1 - leverage)[:, None]) ** 2).mean((1, 2))
        maps.append((V.T * (s / (s**2 + penalty))) @ shares)
    best = errors.argmin(0)
    chosen = np.stack([maps[b][a] for a, b in enumerate(best)])
    return lambda vectors: (vectors - centre) @ chosen + middle, errors.min(0)


def _reduce(training, test, dimensions: int):
    """Both by the principal components of `training`, all its sizes; the share of variance kept."""
    rows = training.reshape(-1, training.shape[2]).astype(float)
    count = min(dimensions, *rows.shape)
    if rows.shape[1] <= dimensions:
        return training.astype(float), test.astype(float), 1.0
    from scipy.linalg import eigh

    centre = rows.mean(0)
    rows -= centre
    covariance, F = rows.T @ rows, rows.shape[1]
    values, axes = eigh(covariance, subset_by_index=[F - count, F - 1])
    whole = np.trace(covariance)
    share = values.sum() / whole if whole > 0 else 1.0
    return (training - centre) @ axes, (test - centre) @ axes, float(share)


def _squares(difference: np.ndarray) -> np.ndarray:
    return (difference**2).sum(-1)
