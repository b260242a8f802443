"""Disentanglement and completeness of a code, from the weights of a lasso (Eastwood & Williams)."""

from __future__ import annotations

import warnings

import numpy as np

PENALTIES = np.logspace(-3, 0, 16)  # of the lasso, targets standardised; chosen by 3 folds
FOLDS = 3
LEVEL = 0.05  # of the tests whether a code predicts a factor, all factors together


def dci(codes: np.ndarray, factors: np.ndarray) -> tuple[float, float]:
    """Return disentanglement and completeness of codes (N, E) for factors (N, M), in [0, 1].

    Eastwood & Williams 2018 (openreview By-7dz-AZ), section 2: R_ij is the weight, without its
    sign, of dimension i in a lasso for factor j, all standardised. Disentanglement is 1 less the
    entropy of a row of R, to the base M, completeness 1 less that of a column, to the base E;
    means, each row and column by its share of all weights. A factor that the code does not predict
    (`predicts`) has no weights here: the few that a lasso leaves by chance would be concentrated.
    """
    weights = importance(codes, factors)
    return _concentration(weights), _concentration(weights.T)


def importance(codes: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Return R (E, M): weights, without signs, of each standardised dimension for each factor.

    0 for a factor that the lasso does not predict on images left out of its fit.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Lasso, LassoCV
    from sklearn.model_selection import cross_val_predict

    x, y = standardised(codes), standardised(factors)
    lasso, columns = LassoCV(alphas=PENALTIES, cv=FOLDS, max_iter=2000), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of the smallest penalties
        for one in y.T:
            weights = np.abs(lasso.fit(x, one).coef_)
            same = Lasso(lasso.alpha_, max_iter=2000)
            known = weights.any() and predicts(
                one, cross_val_predict(same, x, one, cv=FOLDS), len(y.T)
            )
            columns.append(weights * known)
    return np.stack(columns, 1)


def predicts(values: np.ndarray, predicted: np.ndarray, tests: int) -> bool:
    """Return whether predictions (N,) of values (N,), of mean 0, are better than 0.

    By a one-sided normal test of the squared errors, at `LEVEL` over so many tests (Bonferroni).
    """
    from scipy.stats import norm

    gain = values**2 - (values - predicted) ** 2
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    return bool(gain.mean() > norm.ppf(1 - LEVEL / tests) * error)


def rotated(codes: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return codes (N, E), standardised, then rotated at random."""
    return standardised(codes) @ rotation(codes.shape[1], generator)


def rotation(size: int, generator: np.random.Generator) -> np.ndarray:
    """Return an orthogonal matrix, uniformly at random."""
    q, r = np.linalg.qr(generator.normal(size=(size, size)))
    return q * np.sign(np.diag(r))


def standardised(values: np.ndarray) -> np.ndarray:
    """Return (N, ...) with mean 0 and standard deviation 1, or 0 where nothing varies."""
    centred = values - values.mean(0)
    deviation = centred.std(0)
    return np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 1e-12)


def _concentration(weights: np.ndarray) -> float:
    """1 less the entropy of each row, to the base of its length; mean by the rows' shares."""
    rows, whole = weights.sum(1), weights.sum()
    if whole == 0 or weights.shape[1] < 2:
        return 0.0
    p = np.divide(weights, rows[:, None], out=np.zeros_like(weights), where=rows[:, None] > 0)
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(1) / np.log(weights.shape[1])
    return float(((1 - entropy) * rows).sum() / whole)
