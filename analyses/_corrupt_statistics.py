"""Statistics of `corrupt`: errors, paired differences and ratios from wrong answers."""

from __future__ import annotations

import numpy as np

from capsviz.intervals import paired_each, wilson_each


def statistics(clean, wrong, first, counts) -> dict:
    """Fields of a result, by name.

    Parameters
    ----------
    clean   (K, N) whether a network is wrong on an image as it is.
    wrong   (K, C, N) the same under each corruption.
    first   place of the baseline among the networks.
    counts  (R, N) how often each image is in each resample.
    """
    n = clean.shape[1]
    gained = (wrong & ~wrong[first]).sum(2)
    lost = (~wrong & wrong[first]).sum(2)
    each = paired_each(gained, lost, n)
    each[first] = 0  # less itself
    values = np.stack([wrong.mean(1), clean])  # (2, K, N): mean over corruptions, and clean
    point = values.mean(2)
    drawn = np.stack([counts @ v.T.astype(np.float32) / n for v in values])  # (2, R, K)
    excess, excess_drawn = point[0] - point[1], drawn[0] - drawn[1]
    mce, mce_ci95 = _ratio(point[0], drawn[0], first)
    relative, relative_ci95 = _ratio(excess, excess_drawn, first)
    return {
        "clean": point[1],
        "clean_ci95": wilson_each(clean.sum(1), n),
        "error": wrong.mean(2),
        "error_ci95": wilson_each(wrong.sum(2), n),
        "difference": (gained - lost) / n,
        "difference_ci95": each,
        "mean": point[0],
        "mean_ci95": _ends(drawn[0]),
        "mean_difference": point[0] - point[0][first],
        "mean_difference_ci95": _ends(drawn[0] - drawn[0][:, [first]]),
        "mce": mce,
        "mce_ci95": mce_ci95,
        "relative_mce": relative,
        "relative_mce_ci95": relative_ci95,
    }


def _ratio(point, drawn, first):
    """Values (K,) and resampled ones (R, K) over the baseline's, and nan where any is not > 0."""
    if point[first] <= 0:
        return np.full(point.shape, np.nan), np.full((*point.shape, 2), np.nan)
    if drawn[:, first].min() <= 0:
        return point / point[first], np.full((*point.shape, 2), np.nan)
    return point / point[first], _ends(drawn / drawn[:, [first]])


def _ends(drawn) -> np.ndarray:
    return np.percentile(drawn, [2.5, 97.5], axis=0).T.astype(float)
