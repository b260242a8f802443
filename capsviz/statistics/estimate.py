"""A number with its 95 % interval, in results, in JSON and in words."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import numpy as np

from capsviz.statistics.words import with_interval


@dataclass(frozen=True, eq=False)
class Estimate:
    """A number, or an array of them (...), with 95 % intervals.

    f"{estimate:.1%}" is "98.9 % [98.0 %, 99.4 %]", and estimate[k] is a part of an array. For
    several training runs (`statistics.runs.combine`) the value is their mean.
    """

    value: np.ndarray  # (...)
    ci95: np.ndarray  # (..., 2) lower and upper end
    n: int | None = None  # number of images or pairs
    difference: Estimate | None = None  # paired, to a reference: the first network or a control
    runs: np.ndarray | None = None  # (S, ...) value of each training run; None: a single run
    between: np.ndarray | None = None  # (...) share of the variance of one run due to runs
    draws: np.ndarray | None = field(default=None, repr=False)  # (R, ...) of resamples; not stored

    def __post_init__(self):
        value, ci95 = np.asarray(self.value), np.asarray(self.ci95)
        if ci95.shape != (*value.shape, 2):
            raise ValueError(
                f"expected intervals {(*value.shape, 2)} of values {value.shape}, got {ci95.shape}"
            )
        if (ci95[..., 0] > ci95[..., 1]).any():
            raise ValueError("the lower end of an interval is above the upper one")
        runs = value.shape if self.runs is None else np.shape(self.runs)[1:]
        if runs != value.shape:
            raise ValueError(f"expected runs' values {value.shape}, as their mean, got {runs}")
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "ci95", ci95)

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, index) -> Estimate:
        behind = (slice(None), *(index if isinstance(index, tuple) else (index,)))
        return Estimate(
            self.value[index],
            np.stack([self.low[index], self.high[index]], -1),
            self.n,
            None if self.difference is None else self.difference[index],
            None if self.runs is None else self.runs[behind],
            None if self.between is None else self.between[index],
            None if self.draws is None else self.draws[behind],
        )

    def __mul__(self, factor: float) -> Estimate:
        return Estimate(
            self.value * factor,
            np.sort(self.ci95 * factor, -1),
            self.n,
            None if self.difference is None else self.difference * factor,
            None if self.runs is None else self.runs * factor,
            self.between,
            None if self.draws is None else self.draws * factor,
        )

    __rmul__ = __mul__

    def __format__(self, form: str) -> str:
        return with_interval(float(self.value), self.ci95, form)

    @property
    def training_runs(self) -> int:
        """Number of training runs that the value is the mean of."""
        return 1 if self.runs is None else len(self.runs)

    def undrawn(self) -> Estimate:
        """Return the estimate without its resamples, e.g. if training runs resample other units."""
        difference = None if self.difference is None else self.difference.undrawn()
        return replace(self, difference=difference, draws=None)

    @property
    def low(self) -> np.ndarray:
        """Lower ends (...)."""
        return self.ci95[..., 0]

    @property
    def high(self) -> np.ndarray:
        """Upper ends (...)."""
        return self.ci95[..., 1]


FIELDS = tuple(part.name for part in fields(Estimate) if part.name != "draws")  # on disk


def less(one: Estimate, other: Estimate, *, paired: bool = False) -> Estimate:
    """Return the difference of two estimates; its interval is by MOVER (Zou & Donner 2008).

    The margins are added in quadrature, minus their covariance. So the interval is asymmetric near
    the ends of a scale, like those of the estimates, and has a width if no resample differs.

    Parameters
    ----------
    paired  True: both have `draws` of the same resamples, which give the correlation. False: they
            are taken to be independent; the interval is too wide if they correlate positively.
    """
    value = one.value - other.value
    draws, together = None, np.zeros(())
    if paired:
        assert one.draws is not None and other.draws is not None
        draws = one.draws - other.draws
        together = _correlation(one.draws, other.draws, draws)

    def margin(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        squares = first**2 + second**2 - 2 * together * first * second
        return np.sqrt(np.maximum(squares, 0))

    low = margin(one.value - one.low, other.high - other.value)
    high = margin(one.high - one.value, other.value - other.low)
    n = one.n if one.n == other.n else None
    return Estimate(value, np.stack([value - low, value + high], -1), n, draws=draws)


def to_first(one: Estimate) -> Estimate:
    """Subtract the first along the leading axis, paired by resamples; the first becomes 0."""
    apart = less(one, one[:1], paired=True)
    ends = apart.ci95.copy()
    ends[0] = 0
    return replace(apart, ci95=ends)


def _correlation(one: np.ndarray, other: np.ndarray, apart: np.ndarray) -> np.ndarray:
    """Return the correlation (...) of draws (R, ...); 0 if one of them, or `apart`, is constant.

    `apart` is their difference. Draws with a NaN are left out.
    """
    whole = ~np.isnan(apart).reshape(len(apart), -1).any(1)
    if not whole.any():
        return np.zeros(apart.shape[1:])
    one, other, spread = one[whole], other[whole], np.ptp(apart[whole], axis=0)
    both = ((one - one.mean(0)) * (other - other.mean(0))).mean(0)
    scale = one.std(0) * other.std(0)
    return np.where((scale > 0) & (spread > 0), both / np.where(scale > 0, scale, 1), 0)


def stack(estimates, axis: int = 0) -> Estimate:
    """Stack estimates of equal shape along a new axis of values; n is None unless all agree."""
    estimates = list(estimates)
    counts = {one.n for one in estimates}
    axis = axis if axis >= 0 else axis + estimates[0].value.ndim + 1
    differences = [one.difference for one in estimates]

    def stacked(name: str, axis: int):
        parts = [getattr(one, name) for one in estimates]
        return None if any(part is None for part in parts) else np.stack(parts, axis)

    return Estimate(
        stacked("value", axis),
        stacked("ci95", axis),
        estimates[0].n if len(counts) == 1 else None,
        None if None in differences else stack(differences, axis),
        stacked("runs", axis + 1),
        stacked("between", axis),
        stacked("draws", axis + 1),
    )
