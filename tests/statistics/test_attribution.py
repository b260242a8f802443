"""Shapley values of a logistic fit against explicit orders, and influences against refits."""

from itertools import permutations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from capsviz.statistics.attribution import attribute


@pytest.fixture
def cases():
    """700 answers and three factors of 1, 2 and 1 features; the last has no effect."""
    draw = np.random.default_rng(0)
    factors = [draw.uniform(-1, 1, (700, p)) for p in (1, 2, 1)]
    factors[1][:, 1] = factors[1][:, 0] ** 2
    logit = 3 - 2 * factors[0][:, 0] - 3 * factors[1][:, 1]
    return factors, draw.random(700) < 1 / (1 + np.exp(-logit))


def twin(factors, right):
    """Average over all orders in which the three factors can be added, with scikit-learn's fit."""
    X = np.column_stack(factors)
    fit = LogisticRegression(C=1e8, tol=1e-10, max_iter=1000).fit(X, right)
    owner = np.array([0, 1, 1, 2])

    def share(present):
        return fit.predict_proba(X * np.isin(owner, list(present)))[:, 1].mean()

    lost = np.zeros(3)
    for order in permutations(range(3)):
        for k, factor in enumerate(order):
            lost[factor] += (share(order[:k]) - share(order[: k + 1])) / 6
    return share(()), lost


def test_values_are_means_over_all_orders(cases):
    base, lost, influence = attribute(*cases)
    expected_base, expected = twin(*cases)
    assert base == pytest.approx(expected_base, abs=1e-4)
    np.testing.assert_allclose(lost, expected, atol=1e-4)
    assert base - lost.sum() == pytest.approx(cases[1].mean(), abs=1e-5)
    np.testing.assert_allclose(influence.mean(0), 0, atol=1e-4)


def test_the_influences_give_the_spread_of_refits(cases):
    factors, right = cases
    draw = np.random.default_rng(1)
    refits = []
    for _ in range(150):
        which = draw.integers(700, size=700)
        refits.append(attribute([f[which] for f in factors], right[which]).lost)
    error = attribute(*cases).influence.std(0) / np.sqrt(700)
    np.testing.assert_allclose(error, np.std(refits, 0), rtol=0.2)


def test_if_all_answers_are_correct_nothing_is_lost(cases):
    base, lost, _ = attribute(cases[0], np.ones(700))
    assert base == pytest.approx(1, abs=1e-3) and abs(lost).max() < 1e-3
