"""Networks compared over the same images: paired bootstrap, McNemar's test, calibration error.

Per-image values are (K, N): K networks, the first of which the others are compared with. Every
interval is 95 %, the percentiles of resamples of the images (Efron & Tibshirani 1993, chapter 13);
the same resamples serve all networks, so that a difference is a paired one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsviz.intervals import paired_interval, require_two, wilson

RESAMPLES = 1000
BINS = 15  # of the calibration error


class Compared(NamedTuple):
    """One quantity of K networks."""

    value: np.ndarray  # (K,)
    ci95: np.ndarray  # (K, 2)
    difference: np.ndarray  # (K,) less that of the first network
    difference_ci95: np.ndarray  # (K, 2)


def draw_resamples(n: int, *, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """How often each of n images is in each resample: (resamples, n) float32; rows sum to n.

    Raises
    ------
    ValueError  for fewer than 2 images or 100 resamples.
    """
    require_two(n)
    if resamples < 100:
        raise ValueError(f"expected at least 100 resamples for an interval, got {resamples}")
    generator = np.random.default_rng(seed)
    counts = np.empty((resamples, n), np.float32)
    for row in counts:
        row[:] = np.bincount(generator.integers(n, size=n), minlength=n)
    return counts


def compare_means(values: np.ndarray, counts: np.ndarray) -> Compared:
    """Means of per-image values (K, N) in [0, 1], under the resamples of `draw_resamples`.

    Where all images are alike, no resample differs, which proves no certainty: there the interval
    is Wilson's, and that of a difference the one of `intervals.paired_interval`.
    """
    n = counts.shape[1]
    values = np.asarray(values, np.float32)
    found = _compare(values.mean(1, dtype=np.float64), counts @ values.T / n)
    for k, one in enumerate(values):
        if np.ptp(one) == 0:
            found.ci95[k] = wilson(round(n * float(one[0])), n)
        if k > 0 and np.ptp(one - values[0]) == 0:
            found.difference_ci95[k] = found.difference[k] + np.array(paired_interval(0, 0, n))
    return found


def compare_calibration(
    winner: np.ndarray, right: np.ndarray, counts: np.ndarray, *, bins: int = BINS
) -> Compared:
    """Expected calibration errors of the winners' scores (K, N), under the same resamples.

    The error is biased upwards, by chance deviations within bins; a resample adds its own, so the
    mean excess of the resamples over the error is taken off the ends of the intervals.

    Parameters
    ----------
    winner, right, bins  as `calibration_error` takes them, for K networks.
    counts               of `draw_resamples`.
    """
    n = counts.shape[1]
    errors = [calibration_error(w, r, bins=bins) for w, r in zip(winner, right, strict=True)]
    drawn = np.stack(
        [np.abs(counts @ _gaps(w, r, bins)).sum(1) / n for w, r in zip(winner, right, strict=True)],
        1,
    )
    found = _compare(np.array(errors), drawn - (drawn.mean(0) - errors))
    return found._replace(ci95=found.ci95.clip(0, 1))


def calibration_error(winner: np.ndarray, right: np.ndarray, *, bins: int = BINS) -> float:
    """Expected calibration error: how far scores are from the share of right answers.

    Guo et al. 2017 (arXiv:1706.04599), eq. 3: images are put into bins of equal width by the
    winner's score, and |accuracy - mean score| is averaged over the bins by their images. A length
    of a capsule is taken as its score.

    Parameters
    ----------
    winner  (N,) score of the predicted class, in [0, 1].
    right   (N,) whether it is the true one.
    bins    of equal width; a score on an edge belongs to the lower bin.
    """
    return float(np.abs(_gaps(winner, right, bins).sum(0, dtype=np.float64)).sum() / len(winner))


def _gaps(winner: np.ndarray, right: np.ndarray, bins: int) -> np.ndarray:
    """right - score of each image in the column of its bin, zero elsewhere: (N, bins) float32."""
    winner = np.asarray(winner, np.float64)
    which = (np.ceil(winner * bins) - 1).clip(0, bins - 1).astype(int)
    gaps = np.zeros((len(winner), bins), np.float32)
    gaps[np.arange(len(winner)), which] = right - winner
    return gaps


def mcnemar(first: np.ndarray, other: np.ndarray) -> float:
    """p-value of McNemar's exact test: are two networks right equally often? Two-sided.

    Of the images that one network alone gets right, each is as likely to be the one's as the
    other's if they are (McNemar 1947): a binomial test.

    Parameters
    ----------
    first, other  (N,) whether each network is right, on the same images.
    """
    from scipy.stats import binomtest  # takes half a second to import

    first, other = np.asarray(first, bool), np.asarray(other, bool)
    gained, lost = int((other & ~first).sum()), int((first & ~other).sum())
    return float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def holm(p: np.ndarray) -> np.ndarray:
    """p-values (A,) corrected for A tests at once by Holm's method (1979)."""
    order = np.argsort(p)
    scaled = np.asarray(p)[order] * np.arange(len(p), 0, -1)
    corrected = np.empty(len(p))
    corrected[order] = np.maximum.accumulate(scaled).clip(max=1)
    return corrected


def _compare(value: np.ndarray, drawn: np.ndarray) -> Compared:
    """From values (K,) and those of the resamples (R, K)."""
    drawn = np.asarray(drawn, np.float64)
    return Compared(
        value,
        np.percentile(drawn, [2.5, 97.5], axis=0).T,
        value - value[0],
        np.percentile(drawn - drawn[:, :1], [2.5, 97.5], axis=0).T,
    )
