"""Parts of the couplings exchanged, for `transplant`: whole types, whole places, single ones."""

from __future__ import annotations

from math import prod

import numpy as np
import torch
from torch import Tensor

from capsviz.analyses.transplant.measure import over_pairs
from capsviz.statistics.comparison import draw_resamples
from capsviz.statistics.estimate import stack
from capsviz.tracing import abilities, trace
from capsviz.tracing.many import couples, last_couplings, winners

SHARES = (0.25, 0.5, 0.75, 0.9)  # of the types, places or capsules
COUPLES = 100  # at most: there are a dozen passes for each image
TYPES, PLACES, SINGLE = "whole capsule types", "whole places", "single capsules"


def estimates(model, images: Tensor, *, seed: int) -> dict:
    """The fields of `Statistics` that are about parts."""
    outcomes = by_parts(model, images, seed=seed)
    pairs = next(iter(outcomes.values()))[0].shape[1]
    counts = draw_resamples(pairs // 2, seed=seed)
    own, partner = (
        stack(over_pairs(outcome[k], counts, shares=True) for outcome in outcomes.values())
        for k in range(2)
    )
    return {
        "shares": np.array(SHARES),
        "parts": list(outcomes),
        "part_as_own": own,
        "part_as_partner": partner,
    }


def by_parts(model, images: Tensor, *, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """What pairs are read as if some children alone have the couplings of the unlike image.

    The children are drawn at random for each pair; the others keep the image's own couplings.

    Returns
    -------
    For each kind of part (read as the own class, as the partner's), both bool (S, P): S `SHARES`,
    P pairs, of which 2 c and 2 c + 1 are of couple c. Kinds that are the same are left out.
    """
    own, _, read = last_couplings(model, images)
    generator = torch.Generator().manual_seed(seed)
    pairs = couples(read, generator)[:COUPLES]
    voting, partner = pairs.flatten(), pairs.flip(1).flatten()
    outcomes = {}
    for kind, groups in partitions(abilities(model).grid, own.shape[1]).items():
        rows = []
        for share in SHARES:
            chosen = masks(groups, share, len(voting), generator)[..., None]
            mixed = torch.where(chosen, own[partner], own[voting])
            result = trace(model, images[voting], keep=("lengths",), couplings=mixed)
            now = winners(result.lengths)
            rows.append((now == read[voting], now == read[partner]))
        outcomes[kind] = tuple(torch.stack(part) for part in zip(*rows, strict=True))
    return outcomes


def partitions(grid: tuple[int, int, int] | None, children: int) -> dict[str, Tensor]:
    """For each kind of part the number (I,) of the part that a child belongs to."""
    each = torch.arange(children)
    if grid is None or grid[0] == 1 or prod(grid[1:]) == 1:
        return {SINGLE: each}
    places = grid[1] * grid[2]
    return {TYPES: each // places, PLACES: each % places, SINGLE: each}


def masks(groups: Tensor, share: float, count: int, generator: torch.Generator) -> Tensor:
    """(count, I) bool: children in a share of the groups, another draw in each row."""
    number = int(groups.max()) + 1
    ranks = torch.rand(count, number, generator=generator).argsort(1).argsort(1)
    return (ranks < max(1, round(share * number)))[:, groups]
