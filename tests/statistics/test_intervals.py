"""Intervals: definitions, simulated coverage, and refused input."""

import numpy as np
import pytest

from capsviz.statistics.intervals import (
    RunningMean,
    mean_interval,
    paired_each,
    paired_interval,
    wilson,
    wilson_each,
)


@pytest.mark.parametrize("n", [2, 3, 5, 10])
def test_the_interval_of_a_mean_of_few_values_covers_95_percent(n):
    _, ends = mean_interval(np.random.default_rng(n).normal(size=(n, 4000)))
    assert 0.94 < ((ends[:, 0] < 0) & (ends[:, 1] > 0)).mean() < 0.96


def test_the_paired_interval_is_that_of_the_differences_with_half_an_image_in_each_cell():
    low, high = paired_interval(30, 10, 998)
    differences = np.r_[np.ones(61), -np.ones(21), np.zeros(1918)]  # 30.5, 10.5, 959 of 1000, twice
    half = 1.959964 * differences.std() / np.sqrt(1000)
    assert (low + high) / 2 == pytest.approx(differences.mean())
    assert (high - low) / 2 == pytest.approx(half)


@pytest.mark.parametrize(("gained", "lost", "n"), [(0, 0, 2), (0, 0, 1000), (5, 0, 5), (0, 9, 9)])
def test_the_paired_interval_contains_the_difference_and_stays_in_range(gained, lost, n):
    low, high = paired_interval(gained, lost, n)
    assert -1 <= low < high <= 1
    assert low <= (gained - lost) / n <= high


def test_the_paired_interval_covers_95_percent():
    draws = np.random.default_rng(0).multinomial(300, [0.03, 0.01, 0.96], size=2000)
    held = [low <= 0.02 <= high for low, high in (paired_interval(a, b, 300) for a, b, _ in draws)]
    assert 0.93 < np.mean(held) < 0.98


def test_intervals_of_each_of_many_counts_are_those_of_one():
    gained, lost = np.array([[0, 1, 7], [3, 0, 9]]), np.array([[0, 2, 0], [3, 1, 1]])
    proportions, differences = wilson_each(gained, 10), paired_each(gained, lost, 10)
    assert proportions.shape == differences.shape == (2, 3, 2)
    for at in np.ndindex(2, 3):
        assert tuple(proportions[at]) == wilson(int(gained[at]), 10)
        assert tuple(differences[at]) == paired_interval(int(gained[at]), int(lost[at]), 10)


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_images_are_refused(n):
    for interval in (lambda: mean_interval(np.zeros((n, 4))), lambda: paired_interval(0, 0, n)):
        with pytest.raises(ValueError, match=f"at least 2 images, got {n}"):
            interval()
    with pytest.raises(ValueError, match="at least 1 image, got 0"):
        wilson(0, 0)


def test_the_interval_of_a_mean_equals_scipy():
    from scipy.stats import ttest_1samp

    values = np.random.default_rng(0).normal(size=(5, 3))
    mean, ends = mean_interval(values)
    expected = ttest_1samp(values, 0).confidence_interval(0.95)
    np.testing.assert_allclose(ends, np.stack([expected.low, expected.high], 1))
    np.testing.assert_allclose(mean, values.mean(0))


def test_a_mean_over_batches_equals_that_of_all_values_to_full_precision():
    values = 1e8 + np.random.default_rng(0).normal(size=(40, 3))
    running = RunningMean(values[:7])
    for batch in (values[7:8], values[8:31], values[31:]):
        running.add(batch)
    mean, ends = values.mean(0), mean_interval(values - 1e8)[1]
    np.testing.assert_allclose(running.mean, mean, rtol=0, atol=1e-7)
    np.testing.assert_allclose(running.interval() - 1e8, ends, rtol=0, atol=1e-7)
    assert (running.lowest == values.min(0)).all() and (running.highest == values.max(0)).all()
    assert running.n == 40 and np.isnan(RunningMean(values[:1]).interval()).all()


@pytest.mark.parametrize("counts", [(5, 3), (-1, 3)])
def test_counts_that_do_not_fit_n_are_refused(counts):
    said = f"expected from 0 to 3 successes among 3, got {counts[0]}"
    with pytest.raises(ValueError, match=said):
        wilson(*counts)
    gained = counts[0]
    with pytest.raises(ValueError, match="expected counts from 0, at most 4 in all"):
        paired_interval(gained, 0, 4)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.int32])
def test_small_integers_of_numpy_do_not_overflow(kind):
    lost, gained, n = 10, 100, min(np.iinfo(kind).max, 60_000)
    assert wilson(kind(gained), kind(n)) == wilson(gained, int(n))
    assert paired_interval(kind(lost), kind(gained), kind(n)) == paired_interval(
        lost, gained, int(n)
    )


def test_a_fractional_count_is_used_or_refused_but_not_truncated():
    assert wilson_each(np.array([2.5]), 10)[0].tolist() == list(wilson(2.5, 10))
    with pytest.raises(ValueError, match=r"in all, got 0.1 and 0.04"):
        paired_interval(0.1, 0.04, 100)
