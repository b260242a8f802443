"""Equivalence of paired runs: by hand, and by simulation."""

import numpy as np
import pytest

from capsviz.statistics import equivalence
from capsviz.statistics.equivalence import paired


def test_the_tests_and_the_interval_match_a_hand_calculation():
    apart = np.array([0.02, -0.01, 0.03, 0.0])  # mean 0.01, s.d. 0.018257, error 0.0091287
    one = paired(apart, np.zeros(4), 0.05)
    assert one.n == 4 and one.sd == pytest.approx(0.0182574, abs=1e-6)
    assert one.difference.ci95 == pytest.approx([0.01 - 0.029052, 0.01 + 0.029052], abs=1e-5)
    stats = pytest.importorskip("scipy.stats")
    t = (0.05 - 0.01) / 0.00912871  # of the nearer margin, 4.3818
    assert one.p_equivalent == pytest.approx(stats.t.sf(t, 3), rel=1e-4)
    assert one.p_different == pytest.approx(stats.ttest_rel(apart, np.zeros(4)).pvalue)
    assert one.verdict == equivalence.EQUIVALENT
    other = paired(np.zeros(4), apart, 0.05)
    assert other.difference.value == -one.difference.value
    assert (other.p_equivalent, other.p_different) == (one.p_equivalent, one.p_different)


@pytest.mark.parametrize("n", [3, 10, 20])
def test_power_is_that_of_the_noncentral_t(n):
    nct, t = (pytest.importorskip("scipy.stats").nct, pytest.importorskip("scipy.stats").t)
    for effect in (0.5, 1.0, 3.0):
        edge = t.ppf(0.975, n - 1)
        exact = nct.sf(edge, n - 1, effect * n**0.5) + nct.cdf(-edge, n - 1, effect * n**0.5)
        assert equivalence.power_to_detect(effect, 1.0, n) == pytest.approx(exact, abs=2e-3)
    least = equivalence.detectable(2.0, n)
    assert equivalence.power_to_detect(least, 2.0, n) == pytest.approx(0.8, abs=1e-6)
    assert equivalence.power_to_detect(0, 1.0, n) == pytest.approx(0.05, abs=2e-3)


def test_the_numbers_of_pairs_are_the_fewest_with_the_power():
    one = paired(np.array([0.1, -0.05, 0.08]), np.zeros(3), 0.05)
    m, k = one.pairs_to_detect, one.pairs_for_equivalence
    assert equivalence.power_to_detect(0.05, one.sd, m) >= 0.8
    assert equivalence.power_to_detect(0.05, one.sd, m - 1) < 0.8
    assert equivalence.power_of_equivalence(0.05, one.sd, k) >= 0.8
    assert equivalence.power_of_equivalence(0.05, one.sd, k - 1) < 0.8
    assert paired(np.array([50.0, -50, 0]), np.zeros(3), 0.05).pairs_to_detect is None


@pytest.mark.parametrize(("n", "sd"), [(3, 0.02), (5, 0.1), (20, 0.05)])
def test_a_difference_of_the_margin_is_rarely_called_equivalent_and_intervals_cover(n, sd):
    drawn = np.random.default_rng(0).normal(0.05, sd, (1000, n))
    tested = [paired(one, np.zeros(n), 0.05) for one in drawn]
    wrong = np.mean([one.verdict == equivalence.EQUIVALENT for one in tested])
    covered = np.mean([one.difference.low <= 0.05 <= one.difference.high for one in tested])
    assert wrong < 0.05 + 3 * (0.05 * 0.95 / 1000) ** 0.5
    assert covered == pytest.approx(0.95, abs=3 * (0.05 * 0.95 / 1000) ** 0.5)
    assert wrong == pytest.approx(
        equivalence.power_of_equivalence(0.05, sd, n, difference=0.05), abs=0.02
    )


def test_verdicts():
    run = np.array([99.5, 99.4, 99.6])
    assert paired(run, run, 0.05).verdict == equivalence.EQUIVALENT
    assert paired(run, run, 0.05, resolution=0.01).verdict == equivalence.EQUIVALENT
    assert paired(run, run, 0.05, resolution=0.3).verdict == equivalence.NOT_SETTLED
    broken = paired(run, np.array([11.3, 9.8, 10.1]), 0.05)
    assert broken.verdict == equivalence.DIFFERENT and broken.difference.low > 80
    small = paired(run, run - [0.02, 0.021, 0.019], 0.05)
    assert small.verdict == equivalence.EQUIVALENT and small.p_different < 0.05
    assert paired(run, run - 0.1, 0.05, resolution=0.01).difference.high > 0.1


def test_unequal_numbers_of_values_are_refused():
    with pytest.raises(ValueError, match=r"expected values of the same seeds, got \(4,\), \(1,\)"):
        paired([0.9, 0.91, 0.92, 0.9], [0.89], 0.02)


def test_a_run_without_a_value_is_refused():
    with pytest.raises(ValueError, match="expected finite values of all runs"):
        paired([np.nan, 0.9, 0.9], [0.9, 0.8, 0.9], 0.01)
