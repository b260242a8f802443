"""Test two recipes for equivalence over training runs paired by seed, and compute the power.

A value is any number that is measured once on each run, for example the accuracy. Pairs are the
unit. Test images are the same in all runs, so conclusions are about further runs on these images.

Two one-sided tests (TOST): Schuirmann 1987, Journal of Pharmacokinetics and Biopharmaceutics
15:657; an introduction is Lakens 2017, Social Psychological and Personality Science 8:355. Each
test is at 5 %, so the recipes are equivalent if the 90 % interval of the mean difference lies
inside the margins.
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np

from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import student

FEWEST = 3  # pairs: with two, Student's quantile is 12.7
LEVEL = 0.05  # of each test
POWER = 0.8
MOST = 100_000  # pairs: the search for a number of pairs ends here
EQUIVALENT, DIFFERENT, NOT_SETTLED = "equivalent", "different", "not settled"


@dataclass(frozen=True, eq=False)
class Paired:
    """Paired differences of n runs, their tests, and the power of n pairs."""

    difference: Estimate  # mean of first minus second, 95 %; its `runs` are the pairs
    sd: float  # of the differences, at least the resolution of the values
    margin: float
    p_equivalent: float  # the larger p-value of the two one-sided tests
    p_different: float  # two-sided, of no difference

    @property
    def n(self) -> int:
        """Number of pairs."""
        assert self.difference.n is not None
        return self.difference.n

    @property
    def detectable(self) -> float:
        """Return the smallest true difference that n pairs detect with 80 % power."""
        return detectable(self.sd, self.n)

    @property
    def pairs_to_detect(self) -> int | None:
        """Return the pairs that detect a difference as large as the margin with 80 % power."""
        return _fewest(lambda n: power_to_detect(self.margin, self.sd, n))

    @property
    def pairs_for_equivalence(self) -> int | None:
        """Return the pairs that show equivalence with 80 % power, given no true difference."""
        return _fewest(lambda n: power_of_equivalence(self.margin, self.sd, n))

    @property
    def verdict(self) -> str:
        """Return `EQUIVALENT`, `DIFFERENT` or `NOT_SETTLED`.

        It is `EQUIVALENT` even if there is a significant difference within the margin.
        """
        if self.p_equivalent < LEVEL:
            return EQUIVALENT
        return DIFFERENT if self.p_different < LEVEL else NOT_SETTLED


def paired(
    first: np.ndarray, second: np.ndarray, margin: float, *, resolution: float = 0.0
) -> Paired:
    """Test the mean paired difference of two recipes for equivalence and for a difference.

    The interval is Student's t over the pairs (n,), at least 3.

    Parameters
    ----------
    first, second  (n,) value of each run; element k has the same seed in both.
    margin         largest difference that does not matter, above 0, in the unit of the values.
    resolution     step of the values, for example one image. The s.d. is taken to be at least this,
                   since a few pairs may differ by the same number by chance.

    Raises
    ------
    ValueError  for fewer than 3 pairs, unequal numbers of values, or values that are not finite.
    """
    first, second = np.asarray(first, float), np.asarray(second, float)
    if first.shape != second.shape:
        raise ValueError(f"expected values of the same seeds, got {first.shape}, {second.shape}")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("expected finite values of all runs, got NaN or infinite ones")
    if len(first) < FEWEST:
        raise ValueError(f"expected at least {FEWEST} pairs of runs, got {len(first)}")
    apart = (first - second).round(12)  # 0.9957 - 0.9962 and 0.9952 - 0.9957 are the same
    n, mean = len(apart), apart.mean()
    sd = max(float(apart.std(ddof=1)) if np.ptp(apart) > 0 else 0.0, resolution)
    half = student(n) * sd / sqrt(n)
    return Paired(
        Estimate(mean, np.array([mean - half, mean + half]), n, runs=apart),
        sd,
        margin,
        max(_above(mean + margin, sd, n), _above(margin - mean, sd, n)),
        min(1.0, 2 * _above(abs(mean), sd, n)),
    )


def detectable(sd: float, n: int) -> float:
    """Return the smallest true difference that n pairs detect: 80 % power, two-sided at 5 %."""
    from scipy.optimize import brentq

    return sd * brentq(lambda size: power_to_detect(size, 1.0, n) - POWER, 0, 100)


def power_to_detect(difference: float, sd: float, n: int) -> float:
    """Return the power of a t test of n pairs, two-sided at 5 %, for this true difference."""
    from scipy.special import ndtr, stdtrit

    if sd == 0:
        return float(difference != 0)
    needed = stdtrit(n - 1, 1 - LEVEL / 2) * _observed_sd(n)  # of the mean, in standard errors
    mean = difference * sqrt(n) / sd
    return float((ndtr(mean - needed) + ndtr(-mean - needed)).mean())


def power_of_equivalence(margin: float, sd: float, n: int, difference: float = 0.0) -> float:
    """Return the probability that n pairs are called equivalent, given the true difference."""
    from scipy.special import ndtr, stdtrit

    if sd == 0:
        return float(abs(difference) < margin)
    half = margin * sqrt(n) / sd - stdtrit(n - 1, 1 - LEVEL) * _observed_sd(n)
    mean = difference * sqrt(n) / sd
    return float(np.where(half > 0, ndtr(half - mean) - ndtr(-half - mean), 0).mean())


def _above(mean: float, sd: float, n: int) -> float:
    """Return the p-value of Student's one-sided test that the true mean is above 0."""
    from scipy.special import stdtr

    if sd == 0:
        return 0.0 if mean > 0 else 1.0
    return float(stdtr(n - 1, -mean * sqrt(n) / sd))


@lru_cache(256)
def _observed_sd(n: int) -> np.ndarray:
    """Return equally probable values (2000,) of the s.d. of n pairs, divided by the true s.d."""
    from scipy.special import chdtri

    return np.sqrt(chdtri(n - 1, (np.arange(2000) + 0.5) / 2000) / (n - 1))


def _fewest(power) -> int | None:
    """Return the smallest n whose power is 80 %; None above 100,000."""
    tried = range(FEWEST, MOST + 1)
    index = bisect_left(tried, POWER, key=power)
    return tried[index] if index < len(tried) else None
