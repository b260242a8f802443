"""Disentanglement and completeness of a code, from the weights of a lasso (Eastwood & Williams)."""

from __future__ import annotations

import warnings

import numpy as np

PENALTIES = np.logspace(-3, 0, 16)  # of the lasso, targets standardised; chosen by 3 folds
FOLDS = 3


def dci(codes: np.ndarray, factors: np.ndarray) -> tuple[float, float]:
    """Disentanglement and completeness of codes (N, E) that tell factors (N, M), in [0, 1].

    Eastwood & Williams 2018 (openreview By-7dz-AZ), section 2: R_ij is the weight, without its
    sign, of dimension i in a lasso for factor j, all standardised. Disentanglement is 1 less the
    entropy of a row of R, to the base M, completeness 1 less that of a column, to the base E;
    means, each row and column by its share of all weights. A code that tells nothing has 0 of both.
    """
    weights = importance(codes, factors)
    return _concentration(weights), _concentration(weights.T)


def importance(codes: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """R (E, M): weights, without their signs, of each standardised dimension for each factor."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LassoCV

    x, y = standardised(codes), standardised(factors)
    lasso = LassoCV(alphas=PENALTIES, cv=FOLDS, max_iter=2000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of the smallest penalties
        columns = [np.abs(lasso.fit(x, y[:, j]).coef_) for j in range(y.shape[1])]
    return np.stack(columns, 1)


def turned(codes: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Codes (N, E), standardised, then turned by a rotation drawn at random."""
    return standardised(codes) @ rotation(codes.shape[1], generator)


def rotation(size: int, generator: np.random.Generator) -> np.ndarray:
    """An orthogonal matrix, uniformly at random."""
    q, r = np.linalg.qr(generator.normal(size=(size, size)))
    return q * np.sign(np.diag(r))


def standardised(values: np.ndarray) -> np.ndarray:
    """(N, ...) with mean 0 and standard deviation 1, or 0 where nothing varies."""
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
