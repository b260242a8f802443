"""95 % intervals: of a proportion, and of a mean."""

from math import sqrt

import numpy as np

Z = 1.959964  # of the normal distribution, two-sided 95 %


def wilson(right: int, n: int) -> tuple[float, float]:
    """Wilson's score interval of a proportion: `right` successes among n >= 1."""
    if n < 1:
        raise ValueError(f"an interval needs at least 1 image, got {n}")
    p = right / n
    centre = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def mean_interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the first axis, n >= 2 long, and its interval (..., 2), normal approximation."""
    mean = values.mean(0)
    half = Z * values.std(0, ddof=1) / np.sqrt(len(values))
    return mean, np.stack([mean - half, mean + half], -1)
