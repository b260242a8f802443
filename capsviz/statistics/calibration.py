"""Calibration: how far the scores of predicted classes are from the accuracy."""

import numpy as np

from capsviz.statistics.comparison import of_resamples
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import wilson

BINS = 15


def compare_calibration(
    winner: np.ndarray, right: np.ndarray, counts: np.ndarray, *, bins: int = BINS
) -> Estimate:
    """Return the expected calibration errors of K networks, under the same resamples.

    Guo et al. 2017 (arXiv:1706.04599), eq. 3: images are put into bins of equal width by the score
    of the predicted class. |accuracy - mean score| is averaged over the bins, weighted by their
    numbers of images.

    Chance deviations within bins bias the error upwards, most if the true gap is zero (Kumar, Liang
    & Ma 2019, arXiv:1909.10155). Intervals are percentiles of the resamples, centred on the value,
    and are extended downwards by the largest plausible bias: that of gaps 2 standard errors nearer
    to zero than the observed ones. If the answers in a bin are all correct or all wrong, Wilson's
    interval of their share is added. The interval of a difference is also extended upwards by the
    bias of the first network. In simulations with 1,000 images and errors from 0 to 0.2, nominal
    95 % intervals covered the true error in 93 to 100 % of cases.

    Parameters
    ----------
    winner  (K, N) score of the predicted class, in [0, 1].
    right   (K, N) whether the predicted class is the true one.
    counts  from `draw_resamples`.
    bins    number of bins; a score on an edge belongs to the lower bin.
    """
    n = counts.shape[1]
    errors, resamples, biases = [], [], []
    for scores, hits in zip(winner, right, strict=True):
        gaps = _gaps(scores, hits, bins)
        gap, resampled = gaps.sum(0, dtype=np.float64) / n, counts @ gaps / np.float64(n)
        errors.append(np.abs(gap).sum())
        resamples.append(np.abs(resampled).sum(1))
        chance = resampled - resampled.mean(0)
        nearest = np.maximum(np.abs(gap) - 2 * chance.std(0), 0)  # to zero
        slack = _slack(scores, hits, bins) / n
        biases.append(
            (np.abs(nearest + chance).mean(0) - nearest).sum()
            + np.minimum(np.abs(gap), slack).sum()
        )
    value, drawn, bias = np.array(errors), np.stack(resamples, 1), np.array(biases)
    compared = of_resamples(value, drawn - drawn.mean(0) + value)
    assert compared.difference is not None
    ends = compared.ci95 - np.stack([bias, np.zeros_like(bias)], 1)
    apart = compared.difference.ci95
    apart[1:] += np.stack([-bias[1:], np.full(len(bias) - 1, bias[0])], 1)
    apart[1:] = _widened(compared.difference.value[1:], apart[1:])
    return Estimate(
        value, _widened(value, ends).clip(0, 1), n, compared.difference, draws=compared.draws
    )


def _widened(value: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return intervals (K, 2), widened where they do not contain the values (K,)."""
    return np.stack([np.minimum(ends[:, 0], value), np.maximum(ends[:, 1], value)], 1)


def _slack(winner: np.ndarray, right: np.ndarray, bins: int) -> np.ndarray:
    """Return by how many images (bins,) the hits of a bin may be off by Wilson's interval.

    Zero unless the answers in a bin are all correct or all wrong.
    """
    which = _bin(np.asarray(winner, np.float64), bins)
    count, hits = (
        np.bincount(which, weights, bins) for weights in (None, np.asarray(right, float))
    )
    unanimous = (count > 0) & ((hits == 0) | (hits == count))
    return np.array(
        [n * wilson(0, n)[1] if same else 0.0 for n, same in zip(count, unanimous, strict=True)]
    )


def _bin(winner: np.ndarray, bins: int) -> np.ndarray:
    return (np.ceil(winner * bins) - 1).clip(0, bins - 1).astype(int)


def _gaps(winner: np.ndarray, right: np.ndarray, bins: int) -> np.ndarray:
    """Return right - score of each image in the column of its bin, else zero: (N, bins) float32."""
    winner = np.asarray(winner, np.float64)
    if np.isnan(winner).any():
        raise ValueError(f"expected scores of all images, got NaN for {np.isnan(winner).sum()}")
    which = _bin(winner, bins)
    gaps = np.zeros((len(winner), bins), np.float32)
    gaps[np.arange(len(winner)), which] = right - winner
    return gaps
