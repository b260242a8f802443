"""The calibration error against a slow transcription, its intervals against simulated networks."""

import math

import numpy as np
import pytest

from capsviz.statistics import calibration, comparison
from capsviz.statistics.intervals import Z, wilson

K, N = 3, 400


@pytest.fixture
def right():
    """Return three networks with accuracies of about 80, 80 and 60 %."""
    draw = np.random.default_rng(3)
    return draw.random((K, N)) < [[0.8], [0.8], [0.6]]


@pytest.fixture
def counts():
    return comparison.draw_resamples(N, seed=1)


def literal_ece(winner, right, bins):
    """Guo et al. 2017, eq. 3, bin by bin: I_m = ((m-1)/M, m/M], and 0 in the first."""
    total = 0.0
    for m in range(1, bins + 1):
        held = [
            i
            for i, score in enumerate(winner)
            if (m - 1) / bins < score <= m / bins or (m == 1 and score == 0)
        ]
        if held:
            accuracy = sum(bool(right[i]) for i in held) / len(held)
            confidence = sum(float(winner[i]) for i in held) / len(held)
            total += len(held) / len(winner) * abs(accuracy - confidence)
    return total


@pytest.mark.parametrize("bins", [1, 4, 15])
def test_calibration_error_is_as_defined_in_the_paper(right, counts, bins):
    winner = np.random.default_rng(5).random(N)
    winner[:4] = [0, 1, 0.25, 0.5]
    found = calibration.compare_calibration(winner[None], right[:1], counts, bins=bins)
    assert found.value[0] == pytest.approx(literal_ece(winner, right[0], bins), abs=1e-6)


def test_intervals_of_the_calibration_error_contain_the_value(right, counts):
    winner = np.random.default_rng(6).random((K, N))
    found = calibration.compare_calibration(winner, right, counts)
    for k in range(K):
        assert 0 <= found.ci95[k, 0] < found.value[k] < found.ci95[k, 1] <= 1
        low, high = found.difference.ci95[k]
        assert low <= found.difference.value[k] == found.value[k] - found.value[0] <= high
    assert (found.difference.ci95[0] == 0).all()


def test_a_difference_of_equal_calibration_errors_has_an_interval_around_zero(right, counts):
    winner = np.stack([np.random.default_rng(6).random(N)] * 2)
    found = calibration.compare_calibration(winner, right[[0, 0]], counts)
    low, high = found.difference.ci95[1]
    assert low < found.difference.value[1] == 0 < high


def test_intervals_of_the_calibration_error_are_narrow_where_its_bias_is_small(counts):
    """A network of one score, far from its accuracy: the error is a mean, and unbiased."""
    winner, right = np.full((1, N), 0.99), np.arange(N)[None] % 2 == 0
    found = calibration.compare_calibration(winner, right, counts)
    assert found.value == pytest.approx(0.49)
    half = Z * 0.5 / math.sqrt(N)
    assert np.abs(found.ci95[0] - found.value) == pytest.approx([half, half], rel=0.15)


@pytest.mark.parametrize("error", [0.0, 0.1])
def test_intervals_cover_the_true_calibration_error(error):
    """The second network is tested; the first is calibrated, with another spread of scores."""
    n, times = 1000, 40
    draw, counts = np.random.default_rng(7), comparison.draw_resamples(n, resamples=200)
    held = np.zeros(2)
    for _ in range(times):
        winner = np.stack([draw.uniform(0.05, 0.95, n), draw.beta(6, 1, n)])
        chance = (winner - [[0], [error]]).clip(0, 1)
        right = draw.random((2, n)) < chance
        true = np.abs(chance - winner)[1].mean()
        found = calibration.compare_calibration(winner, right, counts)
        ends = np.stack([found.ci95[1], found.difference.ci95[1]])
        held += (ends[:, 0] <= true) & (true <= ends[:, 1])
    assert (held >= 0.9 * times).all()


def test_a_calibration_error_of_nan_is_refused():
    with pytest.raises(ValueError, match="expected scores of all images, got NaN for 1"):
        calibration.compare_calibration(np.array([[0.5, np.nan]]), np.eye(1, 2), np.ones((9, 2)))


@pytest.mark.parametrize("right", [True, False])
def test_bins_with_equal_answers_have_an_uncertain_accuracy(right):
    n, score = 100, 0.9 if right else 0.1
    counts = comparison.draw_resamples(n)
    found = calibration.compare_calibration(np.full((1, n), score), np.full((1, n), right), counts)
    assert found.value[0] == pytest.approx(0.1)
    assert found.low[0] == pytest.approx(0.1 - wilson(0, n)[1], abs=1e-6)
