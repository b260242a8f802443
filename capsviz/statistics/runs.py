"""Means over several training runs of one recipe, with intervals over runs and images.

Every run is measured on the same images. The 95 % margins of the two sources of variance, runs and
images, are added in quadrature (Zou & Donner 2008, Statistics in Medicine 27:1693):

    margin² = (t s / √S)² + (k m)²

s is the standard deviation of the S runs' values, and t Student's quantile. m is the mean of the
runs' own margins, downwards and upwards separately. k is the part of m that remains in the mean of
the runs; it is computed from resamples of the images that the runs share, and is 1 without them. In
simulations (tests/statistics/test_runs.py) of 3 to 10 normally distributed runs, nominal 95 %
intervals cover the true mean in 95 to 99 % of cases, and in more if k is not known. They cover less
for shares near 1 if a few runs fall far below the others.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import Z, student


def combine(estimates: Sequence[Estimate], low: float = -np.inf, high: float = np.inf) -> Estimate:
    """Return the mean of estimates (...) of S training runs on the same images.

    Its `between` is the share of the variance of one run's value that is due to runs, not images;
    without resamples it is an upper bound. Intervals are clipped to `low` and `high`, and those of
    differences to the width of this range.

    Raises
    ------
    ValueError  for fewer than 2 runs, or values of unequal shapes.
    """
    if len(estimates) < 2:
        raise ValueError(f"expected at least 2 training runs, got {len(estimates)}")
    shapes = sorted({one.value.shape for one in estimates})
    if len(shapes) > 1:
        raise ValueError(f"the runs have unequal shapes: {', '.join(map(str, shapes))}")
    S, values = len(estimates), np.stack([one.value for one in estimates]).astype(float)
    value, variance = values.mean(0), values.var(0, ddof=1)
    below = np.stack([np.maximum(one.value - one.low, 0) for one in estimates]).mean(0)
    above = np.stack([np.maximum(one.high - one.value, 0) for one in estimates]).mean(0)
    left, own = _images(estimates, ((below + above) / (2 * Z)) ** 2)
    of_runs = student(S) ** 2 * variance / S
    ends = [value - np.sqrt(of_runs + left * below**2), value + np.sqrt(of_runs + left * above**2)]
    excess = np.maximum(variance - (1 - left) * S / (S - 1) * own, 0)
    total = excess + own
    counts = [one.n for one in estimates if one.n is not None]
    differences = [one.difference for one in estimates if one.difference is not None]
    draws = _draws(estimates)
    return Estimate(
        value,
        np.clip(np.stack(ends, -1), low, high),
        min(counts) if len(counts) == S else None,
        combine(differences, low - high, high - low) if len(differences) == S else None,
        runs=values,
        between=np.divide(excess, total, out=np.zeros_like(total), where=total > 0),
        draws=None if draws is None else draws.mean(0),
    )


def over_draws(
    estimates: Sequence[Estimate], low: float = -np.inf, high: float = np.inf
) -> Estimate:
    """Combine S random draws of the controls of one network, like `combine`, without resamples.

    Values that do not depend on the draw keep their intervals.
    """
    return _of_one_run(combine(estimates) if len(estimates) > 1 else estimates[0], low, high)


def fields_over_draws(drawn: Sequence[dict], lowest: Mapping[str, float]) -> dict:
    """Combine the fields of S draws: estimates by `over_draws`, arrays by their mean.

    `lowest` maps fields to their lower limit; the intervals of these are clipped to it and to 1.
    """
    fields: dict = {}
    for name in drawn[0]:
        parts = [one[name] for one in drawn]
        ends = (lowest[name], 1) if name in lowest else ()
        known = isinstance(parts[0], Estimate)
        fields[name] = over_draws(parts, *ends) if known else np.mean(parts, 0)
    return fields


def _of_one_run(one: Estimate, low: float, high: float) -> Estimate:
    less = None if one.difference is None else _of_one_run(one.difference, low - high, high - low)
    return Estimate(one.value, np.clip(one.ci95, low, high), one.n, less)


def _images(estimates, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return k² and the variance (...) of one run's value due to the images.

    k² is the variance of the mean of the runs, divided by that of one run. Without resamples k² is
    1, and the variance is `own`, which is from the runs' intervals.
    """
    draws = _draws(estimates)
    if draws is None:
        return np.ones_like(own), own
    one, mean = draws.var(1).mean(0), draws.mean(0).var(0)
    known = one > 0
    return np.divide(mean, one, out=np.ones_like(own), where=known), np.where(known, one, own)


def _draws(estimates) -> np.ndarray | None:
    """Return the draws (S, R, ...) of all runs, if they are of the same resamples."""
    draws = [one.draws for one in estimates]
    if any(one is None for one in draws) or len({one.shape for one in draws}) > 1:
        return None
    return np.stack(draws)
