"""Measures of `corrupt`: corrupted images, errors, paired differences and ratios."""

import zlib
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from capsviz.statistics.comparison import compare_means, compare_shares
from capsviz.statistics.estimate import Estimate, stack
from capsviz.transforms import corruptions


def generate(name: str, images: Tensor, seed: int, severity: int = 3) -> Tensor:
    """Return images under a corruption; random draws depend only on its name and the seed."""
    own = zlib.crc32(f"{name} {seed}".encode())
    draws = torch.Generator().manual_seed(own)
    return corruptions.apply(name, images, draws, severity)


def statistics(clean, wrong, counts) -> dict[str, Estimate]:
    """Return the estimates of a result, from errors on images: `clean` (K, N), `wrong` (K, C, N).

    The first network is the baseline.
    """
    C, n = wrong.shape[1:]
    plainly = compare_means(clean, counts)
    each = stack([compare_means(wrong[:, c], counts) for c in range(C)], 1)
    plain, error = (np.stack([one.value, *one.draws]) for one in (plainly, each))  # (1 + R, K, ...)
    excess = error - plain[..., None]
    return {
        "clean": plainly,
        "error": each,
        "mean": replace(compare_shares(wrong.sum(1), np.full(n, C), counts), n=n),
        "mce": _ratios(error, n),
        "relative_mce": _ratios(excess, n),
        "total": _ratios(error.mean(2, keepdims=True), n),
        "relative_total": _ratios(excess.mean(2, keepdims=True), n),
    }


def mean_of_ratios(error) -> np.ndarray:
    """Return the mean over C of errors (..., K, C) divided by the baseline's.

    It is NaN unless all errors of the baseline are above 0.
    """
    own = error[..., :1, :]
    defined = (own > 0).all(-1)
    return np.where(defined, (error / np.where(own > 0, own, 1)).mean(-1), np.nan)


def _ratios(errors, n) -> Estimate:
    """Return `mean_of_ratios` of the first of errors (1 + R, K, C), with intervals by the others.

    The interval is NaN if the ratio of a resample is undefined. For networks other than the
    baseline it is also NaN if all resamples have the same ratio, as for errors on the same images:
    this does not show that the ratio is exact.
    """
    ratios = mean_of_ratios(errors)
    drawn = ratios[1:]
    ends = np.percentile(drawn, [2.5, 97.5], axis=0).T.astype(float)
    ends[1:][np.ptp(drawn, axis=0)[1:] == 0] = np.nan
    return Estimate(ratios[0], ends, n, draws=drawn)
