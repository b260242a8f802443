"""Attribute a loss of accuracy to factors: Shapley values of a logistic fit.

A logistic function of the factors' features is fitted to whether each answer is correct. The cost
of a set of factors is the fitted accuracy without any factor (all features zero), minus the fitted
accuracy with the factors of the set. The Shapley value of a factor is the cost that it adds,
averaged over all orders in which factors can be added (Shapley 1953; Lipovetsky & Conklin 2001,
doi:10.1002/asmb.446). The Shapley values add up to the cost of all factors.
"""

from collections.abc import Sequence
from itertools import combinations
from math import factorial
from typing import NamedTuple

import numpy as np
from scipy.special import expit

RIDGE = 1e-6  # penalty on squared coefficients: keeps the fit finite if all answers are correct
STEPS = 100


class Attribution(NamedTuple):
    """Accuracy lost to each of F factors, from n cases."""

    base: float  # fitted accuracy if every feature is zero
    lost: np.ndarray  # (F,) Shapley values: the part of `base` that each factor costs
    influence: np.ndarray  # (n, F) n times the change of `lost` due to each case; mean zero


def attribute(features: Sequence[np.ndarray], right: np.ndarray) -> Attribution:
    """Return how much accuracy each factor costs.

    The influences are those of the infinitesimal jackknife. Their sums over independent groups of
    cases give the standard error, including that of the fit.

    Parameters
    ----------
    features  one array (n, P) for each factor; zero where the factor changes nothing.
    right     (n,) whether each answer is correct: 0, 1, or a share between them.

    Raises
    ------
    ValueError  if the fit does not converge.
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
    """Return coefficients (P,) of the logistic fit by Newton's method, and their influences."""
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
