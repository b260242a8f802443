"""Dictionaries of couplings (Renzulli, Tartaglione & Grangetto 2022, arXiv:2204.01298).

Couplings are rounded to K levels from 0 to 1, evenly apart; the paper's code has 11. The key of an
image is the rounded couplings of all children to the predicted class; the dictionary of a class
counts the keys of the images that are classified as it. Its entropy in bits is log2 of an effective
number of parse trees, and cannot exceed log2 of the number of images.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import Z

LEVELS = (3, 11, 51, 101, 501, 1001)


class Dictionary(NamedTuple):
    """Of K numbers of levels; means over the predicted classes."""

    entropy_bits: Estimate  # (K,) of the dictionaries
    keys: np.ndarray  # (K,) distinct ones, mean over classes
    child_bits: np.ndarray  # (K,) entropy of one child's rounded coupling, mean over children
    bound_bits: float  # log2 of the images of a class


def rounded(couplings: Tensor, levels: int) -> Tensor:
    """Couplings at the nearest of some levels from 0 to 1."""
    return (couplings * (levels - 1) + 0.5).floor() / (levels - 1)


def dictionary(couplings: Tensor, predicted: Tensor, levels=LEVELS) -> Dictionary:
    """Return the dictionaries of couplings (N, I, J) and predicted classes (N,).

    Intervals by the delta method; without upper end, NaN, where all images of a class differ, for
    more of them may show more trees.
    """
    entropies, lows, highs, keys, child = [], [], [], [], []
    classes = predicted.unique()
    sizes = [int((predicted == k).sum()) for k in classes]
    for count in levels:
        rows = [_of_class(rounded(couplings[predicted == k, :, k], count)) for k in classes]
        bits, spread, number, single = (np.array(column) for column in zip(*rows, strict=True))
        entropies.append(bits.mean())
        half = Z * np.sqrt(spread.sum()) / len(classes)
        lows.append(bits.mean() - half)
        differ = ((number == sizes) & (number > 1)).any()
        highs.append(np.nan if differ else bits.mean() + half)
        keys.append(number.mean())
        child.append(single.mean())
    value, low, high = (np.array(column) for column in (entropies, lows, highs))
    ends = np.stack([np.maximum(low, 0), high], 1)
    return Dictionary(
        Estimate(value, ends, len(predicted)), np.array(keys), np.array(child),
        float(np.log2(sizes).mean()),
    )  # fmt: skip


def _of_class(values: Tensor) -> tuple[float, float, int, float]:
    """Entropy, its variance, number of keys, and a child's mean entropy, of keys (n, I)."""
    n = len(values)
    _, which, counts = values.unique(dim=0, return_inverse=True, return_counts=True)
    surprise = -(counts / n).double().log2()[which]
    variance = float(surprise.var()) / n if n > 1 else 0.0
    ordered = values.sort(0).values
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[1:] = ordered[1:] != ordered[:-1]
    group = new.long().cumsum(0) - 1
    sizes = torch.zeros_like(ordered).scatter_add_(0, group, torch.ones_like(ordered)).double() / n
    single = torch.special.entr(sizes).sum(0) / np.log(2)
    return float(surprise.mean()), variance, len(counts), float(single.mean())


def apart(couplings: Tensor, predicted: Tensor, generator) -> Tensor:
    """Couplings in which each child has those of a random image of the same predicted class.

    So that children vary as much as they do, but not together.
    """
    mixed = couplings.clone()
    for k in predicted.unique():
        own = (predicted == k).nonzero().flatten()
        keys = torch.rand(len(own), couplings.shape[1], generator=generator).argsort(0)
        mixed[own] = couplings[own].gather(0, keys[..., None].expand(-1, -1, couplings.shape[2]))
    return mixed
