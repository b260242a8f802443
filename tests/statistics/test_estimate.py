"""A number with its interval: indexing, formatting, stacking and differences."""

import numpy as np
import pytest

from capsviz.statistics.estimate import Estimate, less, stack, to_first
from capsviz.statistics.numbers import Row
from capsviz.statistics.words import LONGEST, number, shortened, strongest


def estimate(*shape, n=30, difference=False):
    """Return different values (*shape) with intervals, and optionally a difference."""
    value = np.arange(np.prod(shape, dtype=int), dtype=float).reshape(shape)
    ci95 = np.stack([value - 0.25, value + 0.5], -1)
    return Estimate(value, ci95, n, estimate(*shape, n=n) * -1 if difference else None)


def test_intervals_must_fit_the_shape_of_the_values():
    with pytest.raises(ValueError, match=r"expected intervals \(3, 2\) of values \(3,\), got \(2,"):
        Estimate(np.zeros(3), np.zeros((2, 3)))
    assert Estimate(0.5, (0.4, 0.7)).ci95.shape == (2,)


@pytest.mark.parametrize("index", [1, slice(1, 3), (2, 3), (slice(None), 1), [2, 0]])
def test_indexing_applies_to_values_intervals_and_difference(index):
    whole = estimate(3, 4, difference=True)
    part = whole[index]
    np.testing.assert_array_equal(part.value, whole.value[index])
    np.testing.assert_array_equal(part.low, whole.low[index])
    np.testing.assert_array_equal(part.high, whole.high[index])
    np.testing.assert_array_equal(part.difference.high, whole.difference.high[index])
    assert part.n == 30 and estimate(3)[1].difference is None


def test_a_factor_multiplies_everything_but_n():
    whole = estimate(3, difference=True)
    for scaled in (100 * whole, whole * 100):
        np.testing.assert_array_equal(scaled.value, 100 * whole.value)
        np.testing.assert_array_equal(scaled.ci95, 100 * whole.ci95)
        np.testing.assert_array_equal(scaled.difference.value, 100 * whole.difference.value)
        assert scaled.n == 30


def test_an_estimate_is_formatted_with_its_interval():
    assert f"{Estimate(0.989, (0.98, 0.994)):.1%}" == "98.9 % [98.0 %, 99.4 %]"
    with pytest.raises(TypeError):
        f"{estimate(3):.1%}"


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_estimates_are_stacked_along_an_axis_of_their_values(axis):
    parts = [estimate(3, difference=True), 2 * estimate(3, difference=True)]
    whole = stack(iter(parts), axis)
    expected = np.stack([one.value for one in parts], axis)
    np.testing.assert_array_equal(whole.value, expected)
    np.testing.assert_array_equal(whole.low, np.stack([one.low for one in parts], axis))
    np.testing.assert_array_equal(whole.difference.value, -np.stack([parts[0].value] * 2, axis)
                                  * np.expand_dims([1, 2], 1 - axis % 2))  # fmt: skip
    assert whole.n == 30 and whole.ci95.shape == (*expected.shape, 2)


def test_a_negative_factor_keeps_the_ends_of_intervals_in_order():
    less = Estimate(0.1, (0.05, 0.2))
    turned = -1 * Estimate(0.9, (0.8, 0.95), difference=less)
    assert turned.ci95.tolist() == [-0.95, -0.8] and turned.difference.low == -0.2


def test_a_stack_keeps_n_only_if_all_agree():
    one, other = Estimate(0.1, (0, 1), 5), Estimate(0.1, (0, 1), 7)
    assert stack([one, one]).n == 5 and stack([one, other]).n is None


def test_the_difference_of_independent_estimates_is_mover():
    one = Estimate(np.array(0.8), np.array([0.7, 0.85]))
    other = Estimate(np.array(0.1), np.array([0.0, 0.3]))
    gap = less(one, other)
    assert float(gap.value) == pytest.approx(0.7)
    assert gap.ci95 == pytest.approx([0.7 - np.hypot(0.1, 0.2), 0.7 + np.hypot(0.05, 0.1)])


def test_the_difference_of_paired_estimates_subtracts_their_covariance():
    draws = np.random.default_rng(0).normal([0.8, 0.7], 0.05, (1000, 2))
    draws[:, 1] = draws[:, 0] - 0.1  # always: what no resample changes is not certain
    one, other = (
        Estimate(np.array(v), np.array([v - 0.1, v + 0.1]), draws=draws[:, k])
        for k, v in enumerate((0.8, 0.7))
    )
    assert less(one, other, paired=True).ci95 == pytest.approx([0.1 - 0.02**0.5, 0.1 + 0.02**0.5])
    draws[:, 1] += 0.01 * np.random.default_rng(1).normal(size=1000)
    together = np.corrcoef(draws.T)[0, 1]
    margin = (0.02 - 0.02 * together) ** 0.5
    assert less(one, other, paired=True).ci95 == pytest.approx([0.1 - margin, 0.1 + margin])


def test_long_names_are_shortened_and_stay_different():
    names = [f"a rather long name of a class, {k:02d}" for k in range(20)]
    same = ["a rather long name that ends alike", "a rather long other that ends alike", "cat"]
    for long in (names, same):
        short = shortened(long)
        assert len(set(short)) == len(long) and max(map(len, short)) <= LONGEST
    assert shortened(["cat", "dog"]) == ["cat", "dog"] and shortened(same)[2] == "cat"


def test_nan_is_written_as_a_dash():
    assert number(float("nan"), ".1%") == "–" and number(0.5, ".1%") == "50.0 %"
    nothing = Estimate(np.array(np.nan), np.full(2, np.nan))
    assert f"{nothing:.2f}" == "–" and f"{nothing * -1:.1%}" == "–"


def test_equal_activations_have_no_strongest_class():
    assert strongest(["a", "b"], np.array([0.1, 0.1 + 1e-8])) == "all classes alike"
    assert strongest(["a", "b"], np.array([0.1, 0.2])) == "b"


def test_an_index_of_the_last_axis_keeps_each_value_with_its_interval():
    value = np.array([[0.1, 0.2], [0.3, 0.4]])
    one = Estimate(value, np.stack([value - 0.05, value + 0.05], -1))
    for index in ((..., 0), (slice(None), 0)):
        np.testing.assert_allclose(one[index].ci95, [[0.05, 0.15], [0.25, 0.35]])


def test_differences_of_nan_are_nan():
    nothing = np.full(2, np.nan)
    draws = np.full((5, 2), np.nan)
    one = Estimate(nothing, np.full((2, 2), np.nan), draws=draws)
    assert np.isnan(to_first(one).value).all()


def test_a_difference_can_be_formatted_by_a_function():
    less_ = Estimate(0.25, np.array([0.125, 0.375]))
    row = Row(
        "", "", Estimate(0.5, np.array([0.25, 0.75]), difference=less_), lambda one: f"{one:.2f}"
    )
    assert row.apart == "+0.25 [0.12, 0.38]"
