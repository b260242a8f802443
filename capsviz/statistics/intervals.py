"""95 % intervals of a proportion, of a mean, and of a difference of paired proportions."""

from math import sqrt
from typing import Any

import numpy as np

Z = 1.959964  # of the normal distribution, two-sided 95 %


def wilson(right: float, n: float) -> tuple[float, float]:
    """Return Wilson's score interval of a proportion: `right` successes among n.

    Raises
    ------
    ValueError  for n below 1, or `right` outside 0 to n.
    """
    if n < 1:
        raise ValueError(f"an interval needs at least 1 image, got {n}")
    if not 0 <= right <= n:
        raise ValueError(f"expected from 0 to {n} successes among {n}, got {right}")
    right, n = float(right), float(n)  # NumPy integers would overflow
    p = right / n
    centre = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return (centre - half if right > 0 else 0.0), (centre + half if right < n else 1.0)


def wilson_of_varying(p: float, variance: float, most: float, n: float) -> tuple[float, float]:
    """Return Wilson's interval of a share p whose estimate has a known variance.

    The sample size is the effective one, p (1 - p) / variance (Kish 1965), at most `most`. It is n
    if the share is 0 or 1, or the variance is 0.
    """
    size = min(p * (1 - p) / variance, most) if variance > 0 and 0 < p < 1 else n
    return wilson(p * size, size)


def wilson_each(right: np.ndarray, n: int) -> np.ndarray:
    """Return `wilson` (..., 2) of each of the counts (...)."""
    ends = [wilson(count, n) for count in np.ravel(right)]
    return np.reshape(ends, (*np.shape(right), 2))


def mean_interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over the first axis, at least 2 long, and its Student interval (..., 2)."""
    require_two(len(values))
    one = RunningMean(values)
    return one.mean, one.interval()


class RunningMean:
    """Mean, minimum and maximum of values (N, ...) that come in batches and are not stored.

    The update is that of Chan, Golub & LeVeque (1983, The American Statistician 37:242), which is
    numerically stable.
    """

    def __init__(self, values: np.ndarray | None = None):
        self.n, self.mean, self.squares = 0, np.zeros(()), np.zeros(())
        self.lowest: Any = np.inf
        self.highest: Any = -np.inf
        if values is not None:
            self.add(values)

    def add(self, values: np.ndarray) -> None:
        """Add B values (B, ...), at least one."""
        n, mean = len(values), values.mean(0, dtype=float)
        apart, whole = mean - self.mean, self.n + n
        spread = n * values.var(0, dtype=float)
        self.squares = self.squares + spread + apart**2 * (self.n * n / whole)
        self.mean, self.n = self.mean + apart * (n / whole), whole
        self.lowest = np.minimum(self.lowest, values.min(0))
        self.highest = np.maximum(self.highest, values.max(0))

    def interval(self) -> np.ndarray:
        """Return Student's 95 % interval (..., 2) of the mean; NaN for a single value."""
        if self.n < 2:
            return np.full((*self.mean.shape, 2), np.nan)
        half = student(self.n) * np.sqrt(self.squares / (self.n - 1) / self.n)
        return np.stack([self.mean - half, self.mean + half], -1)


def student(n: int) -> float:
    """Return Student's two-sided 95 % quantile for n values, at least 2; it approaches `Z`."""
    from scipy.special import stdtrit  # takes time to import

    return float(stdtrit(n - 1, 0.975))


def paired_interval(gained: int, lost: int, n: int) -> tuple[float, float]:
    """Return the interval of (gained - lost) / n, a difference of two proportions of n images.

    This is the normal approximation of the mean paired difference, with half an image added to each
    of the four cells (Agresti & Min 2005, Statistics in Medicine 24:729). So its width is above
    zero even if no image changes.

    Parameters
    ----------
    gained  images that count only in the first proportion.
    lost    images that count only in the second proportion.

    Raises
    ------
    ValueError  for n below 2, or counts that do not fit n.
    """
    given, (gained, lost, n) = (gained, lost), (int(gained), int(lost), int(n))
    require_two(n)
    if given != (gained, lost) or min(gained, lost) < 0 or gained + lost > n:
        raise ValueError(
            f"expected counts from 0, at most {n} in all, got {given[0]} and {given[1]}"
        )
    n, difference = n + 2, gained - lost
    half = Z / n * sqrt(gained + lost + 1 - difference**2 / n)
    return max(-1.0, difference / n - half), min(1.0, difference / n + half)


def paired_each(gained: np.ndarray, lost: np.ndarray, n: int) -> np.ndarray:
    """Return `paired_interval` (..., 2) of each pair of the counts (...) and (...)."""
    pairs = zip(np.ravel(gained), np.ravel(lost), strict=True)
    return np.reshape([paired_interval(g, k, n) for g, k in pairs], (*gained.shape, 2))


def require_two(n: int) -> None:
    """Raise ValueError for fewer than 2 images, which an interval of a mean needs."""
    if n < 2:
        raise ValueError(f"an interval needs at least 2 images, got {n}")


def middle_95(drawn: np.ndarray) -> np.ndarray:
    """Return 95 % percentile intervals (..., 2) of values that are drawn along the first axis.

    Draws with a NaN are left out, unless all have one.
    """
    whole = ~np.isnan(drawn).reshape(len(drawn), -1).any(1)
    drawn = drawn[whole] if whole.any() else drawn
    return np.moveaxis(np.percentile(drawn, (2.5, 97.5), axis=0), 0, -1)
