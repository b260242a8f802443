"""How much accuracy is lost to each factor: Shapley values of a logistic fit.

Rightness is fitted by a logistic function of the factors' features. What a set of factors costs is
the fitted share where the others are set to nothing (features zero), less that with these as they
are; a factor's Shapley value is what it adds to the cost, averaged over all orders in which factors
may be added (Shapley 1953; Lipovetsky & Conklin 2001, doi:10.1002/asmb.446). They add up to the
cost of all.
"""

from collections.abc import Sequence
from itertools import combinations
from math import factorial
from typing import NamedTuple

import numpy as np
from scipy.special import expit

RIDGE = 1e-6  # of each coefficient's square: keeps the fit finite where all are right
STEPS = 100


class Attribution(NamedTuple):
    """F factors and n cases; an influence is what a case moves the number by, times n."""

    base: float  # fitted share of right answers where every feature is zero
    lost: np.ndarray  # (F,) Shapley values, of what the factors take from the base
    influence: np.ndarray  # (n, F) of `lost`; means over the cases are zero


def attribute(features: Sequence[np.ndarray], right: np.ndarray) -> Attribution:
    """Return how much accuracy each factor costs.

    The influences are those of the infinitesimal jackknife: their sums over independent groups of
    cases give the standard error, fit included.

    Parameters
    ----------
    features  of each factor (n, P); zero where the factor changes nothing.
    right     (n,) 0 or 1, or shares between.

    Raises
    ------
    ValueError  for a fit that does not converge.
    """
    n, owner = len(right), np.repeat(np.arange(len(features)), [f.shape[1] for f in features])
    X = np.column_stack([np.ones(n), *features])
    coefficients, pull = _fit(X, np.asarray(right, float))
    F = len(features)
    shares, moves = {}, {}
    for size in range(F + 1):
        for present in combinations(range(F), size):
            kept = X * np.append(True, np.isin(owner, present))
            fitted = expit(kept @ coefficients)
            slope = (fitted * (1 - fitted)) @ kept / n
            shares[present] = fitted.mean()
            moves[present] = fitted - fitted.mean() + pull @ slope
    lost, influence = np.zeros(F), np.zeros((n, F))
    for factor in range(F):
        others = [k for k in range(F) if k != factor]
        for size in range(F):
            weight = factorial(size) * factorial(F - 1 - size) / factorial(F)
            for present in combinations(others, size):
                joined = tuple(sorted((*present, factor)))
                lost[factor] += weight * (shares[present] - shares[joined])
                influence[:, factor] += weight * (moves[present] - moves[joined])
    return Attribution(float(shares[()]), lost, influence)


def _fit(X: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (P,) of the logistic fit by Newton's method, and what each case moves them."""
    n, P = X.shape

    def loss(at):
        logit = X @ at
        return (np.logaddexp(0, logit) - right * logit).mean() + RIDGE / 2 * at @ at

    coefficients = np.zeros(P)
    for _ in range(STEPS):
        fitted = expit(X @ coefficients)
        curvature = (X * (fitted * (1 - fitted))[:, None]).T @ X / n + RIDGE * np.eye(P)
        downhill = (right - fitted) @ X / n - RIDGE * coefficients
        step = np.linalg.solve(curvature, downhill)
        if downhill @ step < 1e-14:
            scores = (right - fitted)[:, None] * X
            return coefficients, np.linalg.solve(curvature, scores.T).T
        before = loss(coefficients)
        while loss(coefficients + step) > before:
            step = step / 2
        coefficients = coefficients + step
    raise ValueError(f"the logistic fit of {n} answers did not converge in {STEPS} steps")
