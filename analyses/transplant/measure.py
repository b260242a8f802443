"""Measures of `transplant`: couples of images, and passes with replaced couplings."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsviz.statistics.comparison import compare_means, compare_shares
from capsviz.statistics.estimate import Estimate
from capsviz.tracing import (
    CHUNK_IMAGES,
    control_couplings,
    coupling_sd,
    under_couplings,
)
from capsviz.tracing.many import couples, last_couplings, of_like_class, winners


class Outcomes(NamedTuple):
    """P pairs under the K conditions, in their order; couple c is the pairs 2 c and 2 c + 1."""

    own: Tensor  # (K, P) bool: classified as the recipient
    partner: Tensor  # (K, P) bool: classified as the other-class donor
    tied: Tensor  # (K, P) bool: no class is ahead of all others
    own_activation: Tensor  # (K, P)
    partner_activation: Tensor  # (K, P)
    coupling_sd: Tensor  # (K, P) of couplings about uniform ones


def transplant(
    model, images: Tensor, *, iterations: int | None = None, seed: int, progress=iter
) -> Outcomes:
    """Return outcomes of images (N, C, H, W) that have donors of another and of their own class."""
    own, even, read = last_couplings(model, images, iterations=iterations)
    generator, others = (torch.Generator().manual_seed(seed + k) for k in range(2))
    several = (torch.bincount(read)[read] > 1).nonzero().flatten()  # there is a like image, too
    pairs = several[couples(read[several], generator)]
    if pairs.numel() < 4:
        raise ValueError(
            f"{len(images)} images make {len(pairs)} couples of different predicted classes that "
            "other images share, expected at least 2: take more images, of several classes"
        )
    voting, partner = pairs.flatten(), pairs.flip(1).flatten()
    like = of_like_class(read)[voting]
    mean = own.mean(0)
    parts = []
    for rows in progress(torch.arange(len(voting)).split(CHUNK_IMAGES)):
        here = voting[rows]
        replaced = (
            own[here],
            own[partner[rows]],
            own[like[rows]],
            mean.expand(len(rows), *mean.shape),
            control_couplings("shuffled", own[None, here], generator)[-1],
            control_couplings("matched", own[None, here], generator)[-1],
            even.expand(len(rows), *even.shape),
            control_couplings("shuffled", own[None, partner[rows]], others)[-1],
        )
        said = under_couplings(model, images[here], replaced, iterations=iterations)
        sd = torch.stack([coupling_sd(one) for one in replaced])
        parts.append((*_outcome(said, read[here], read[partner[rows]]), sd))
    return Outcomes(*(torch.cat(values, 1) for values in zip(*parts, strict=True)))


def _outcome(said: Tensor, own: Tensor, partner: Tensor) -> tuple[Tensor, ...]:
    """The fields of `Outcomes` but the last, of activations (K, P, J) and both classes (P,)."""
    read = winners(said)
    each = (classes.expand(len(said), -1)[..., None] for classes in (own, partner))
    return read == own, read == partner, read < 0, *(said.gather(2, k)[..., 0] for k in each)


def over_pairs(values: Tensor, counts, *, shares: bool) -> Estimate:
    """Means over pairs (K, 2 C), of which 2 c and 2 c + 1 are of couple c, under resamples of the C
    couples, as of `draw_resamples`; `shares`: of what is 0 or 1.
    """
    couples = values.double().unflatten(1, (-1, 2))
    if shares:
        both = couples.sum(2).numpy()
        one = compare_shares(both, np.full(both.shape[1], 2), counts)
    else:
        one = compare_means(couples.mean(2).numpy(), counts, shares=False)
    return replace(one.undrawn(), n=values.shape[1])  # another run has other couples
