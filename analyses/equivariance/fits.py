"""Fits of `equivariance`: ridge regressions on some images of a class, errors on others."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from capsviz.statistics.comparison import compare_explained
from capsviz.statistics.estimate import stack
from capsviz.statistics.runs import fields_over_draws

PENALTIES = np.logspace(-4, 4, 9)  # of ridge regression, chosen on the images of the fit
LEAST = 8  # fewest images of a class
NOTHING = 1e-8  # share of the squares of all changes; less about their mean is rounding
R2 = dict.fromkeys(
    ("fitted", "unchanged", "mean", "probe", "by_count", "explained", "change"), -np.inf
)  # fields, and their lower limits
WHOLE_DOWN, HALF_DOWN, HALF_UP, WHOLE_UP = range(1, 5)  # indices of the sizes, for laws


class Errors(NamedTuple):
    """Squared errors on N images of predictions by fits on others."""

    fitted: np.ndarray  # (A, N) of the affine maps of the unwarped image's vector
    unchanged: np.ndarray  # (A, N) of the unwarped image's vector itself
    spread: np.ndarray  # (A, N) of the class's mean vector at that size
    read: np.ndarray  # (N,) of the size predicted from a vector, mean over sizes
    range: np.ndarray  # (N,) of the mean size
    by_count: np.ndarray  # (T, N) like `fitted`, summed over sizes, by fits on fewer images


class LawErrors(NamedTuple):
    """Squared errors on the vectors of N images, summed over both whole warps."""

    predicted: np.ndarray  # (L, N) of each law
    spread: np.ndarray  # (N,) of the class's mean vector under that warp
    change: np.ndarray  # (N,) of the class's mean change; NaN if all images change equally


def counts(most: int) -> list[int]:
    """Return images per class of the curve: `most`, and halves of it down to `LEAST`."""
    return [most >> k for k in range(4, -1, -1) if most >> k >= LEAST] or [most]


def of_vectors(values: np.ndarray, data, sizes: np.ndarray, dimensions: int) -> Errors:
    """Return errors of affine maps of vectors (1 + A, X, F), fitted per class and fold."""

    def errors_of(test, training, _):
        return of_class(test, training, sizes, dimensions, data.fit)

    return Errors(*_by_class(errors_of, values, data))


def _by_class(errors_of, values: np.ndarray, data, shared=lambda training, labels: None) -> list:
    """Return arrays (..., N) of errors of vectors, in the order of the images.

    `errors_of` gets the vectors of a class's images, those of its fits, and the value of `shared`
    for all classes of a fold.
    """
    parts, order = [], []
    for measured, fitted in data.folds:
        of_all = shared(values[:, fitted], data.labels[fitted])
        for k in np.unique(data.labels[measured]):
            test, training = (rows[data.labels[rows] == k] for rows in (measured, fitted))
            parts.append(errors_of(values[:, test], values[:, training], of_all))
            order.append(test)
    back = np.argsort(np.concatenate(order))
    return [np.concatenate(rows, -1)[..., back] for rows in zip(*parts, strict=True)]


def of_class(test: np.ndarray, training: np.ndarray, sizes, dimensions: int, fit: int) -> Errors:
    """Fit on M images of one class, (1 + A, M, F), and return errors on N others, (1 + A, N, F).

    The unwarped images come first, as in `sizes`. Vectors longer than `dimensions` are reduced by
    the PCA of `training` at all sizes. The fits of `by_count` are on at most `fit` images.
    """
    training, test = _reduce(training, test, dimensions)
    A, N = len(sizes) - 1, test.shape[1]
    predicted = affine(training[0], training[1:])(test[0])
    fewer = [
        predicted if m == training.shape[1] else affine(training[0, :m], training[1:, :m])(test[0])
        for m in counts(fit)
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
    )


def laws_of_vectors(values: np.ndarray, data, *_) -> LawErrors:
    """Return errors of each law on vectors (5, X, F); the first axis has the order of `STEPS`."""

    def of_all_classes(training, labels):
        return affine(*_ends(training)), affine(*_ends(_centred(training, labels)))

    predicted, spread, change, whole = _by_class(laws_of_class, values, data, of_all_classes)
    if change.sum() <= NOTHING * max(whole.sum(), spread.sum()):
        change = np.full_like(change, np.nan)
    return LawErrors(predicted, spread, change)


def _centred(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Subtract from vectors (5, M, E) the mean of their class at each size."""
    centred = values.astype(float)
    for k in np.unique(labels):
        centred[:, labels == k] -= centred[:, labels == k].mean(1, keepdims=True)
    return centred


def laws_of_class(test: np.ndarray, training: np.ndarray, shared):
    """Return the fields of `LawErrors` and the squares (N,) of the whole change.

    Images are (5, N, E), and those of the fits on their class (5, M, E). `shared` has two fits on
    all classes: their common map, and their common matrix between centred vectors.
    """
    one_map, one_matrix = shared
    start, ends = _ends(training)
    before, after = _ends(test)
    halves = training[[HALF_DOWN, HALF_UP]].astype(float)
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
        np.stack([_both(one - after) for one in predictions]),
        _both(after - ends.mean(1, keepdims=True)),
        _both(change),
        _both(after - before),
    )


def _ends(values: np.ndarray):
    """Return vectors of unwarped images (N, E), and under both whole warps (2, N, E)."""
    values = np.asarray(values, float)
    return values[0], values[[WHOLE_DOWN, WHOLE_UP]]


def _both(difference: np.ndarray) -> np.ndarray:
    """Return squares summed over both whole warps: (2, N, E) -> (N,)."""
    return _squares(difference).sum(0)


def affine(sources: np.ndarray, targets: np.ndarray):
    """Return affine maps from vectors (M, E) to A targets of their kind (A, M, E), as one function.

    Each is shrunk towards the mean of its target, or towards no change, whichever has the lower
    leave-one-out error.
    """
    to_mean, mean_errors = ridge(sources, targets)
    to_source, change_errors = ridge(sources, targets - sources)
    better = (change_errors < mean_errors)[:, None, None]
    return lambda vectors: np.where(better, vectors + to_source(vectors), to_mean(vectors))


def ridge(sources: np.ndarray, targets: np.ndarray):
    """Return ridge regressions from vectors (M, E) to A targets (A, M, K), and their errors (A,).

    Penalties are relative to the variance of the vectors. Each target has the penalty with the
    lowest leave-one-out error, which is computed from the leverages.
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
    """Return both in the principal components of `training` at all sizes."""
    rows = training.reshape(-1, training.shape[2]).astype(float)
    count = min(dimensions, *rows.shape)
    if rows.shape[1] <= dimensions:
        return training.astype(float), test.astype(float)
    from scipy.linalg import eigh

    centre = rows.mean(0)
    rows -= centre
    covariance, F = rows.T @ rows, rows.shape[1]
    _, axes = eigh(covariance, subset_by_index=[F - count, F - 1])
    return (training - centre) @ axes, (test - centre) @ axes


def _squares(difference: np.ndarray) -> np.ndarray:
    return (difference**2).sum(-1)


def explained(errors: list[list[list]], over: Callable, counts: np.ndarray) -> dict:
    """Return fields of a result from the errors of F warps and S kinds of vectors, by resamples.

    `over` returns fields for the errors of S kinds. A kind has one network, or one for each draw of
    the controls. The axis of the warps comes after that of the kinds.
    """
    each = []
    for rows in errors:
        drawn = [
            over([some[k % len(some)] for some in rows], counts) for k in range(max(map(len, rows)))
        ]
        each.append(fields_over_draws(drawn, R2))
    return {name: stack([fields[name] for fields in each], 1) for name in each[0]}


def affine_fields(errors: list[Errors], counts: np.ndarray) -> dict:
    """Return fields of `Result` for one warp and one draw."""
    spread = np.stack([one.spread for one in errors])

    def compare(parts, among):
        return compare_explained(np.stack(list(parts)), among, counts)

    whole, A, T = spread.sum(1), spread.shape[1], len(errors[0].by_count)
    fields = {
        field: stack(
            [compare((getattr(one, field)[a] for one in errors), spread[:, a]) for a in range(A)], 1
        )
        for field in ("fitted", "unchanged")
    }
    return fields | {
        "mean": compare((one.fitted.sum(0) for one in errors), whole),
        "by_count": stack([compare((e.by_count[t] for e in errors), whole) for t in range(T)], 1),
        "probe": compare((e.read for e in errors), np.stack([e.range for e in errors])),
    }


def law_fields(errors: list[LawErrors], counts: np.ndarray) -> dict:
    """Return fields of `Law` for one warp and one draw."""
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
