"""Couplings exchanged in single iterations, for `transplant`: in one alone, and from one on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from capsviz.analyses.transplant import mixtures
from capsviz.analyses.transplant.measure import given, over_pairs
from capsviz.analyses.transplant.results import Rounds
from capsviz.statistics.comparison import draw_resamples
from capsviz.statistics.estimate import stack
from capsviz.tracing.many import of_like_class, winners
from capsviz.tracing.needs import require

DONORS = ("its own, given back", "of a like image", "of the unlike image")
ALONE, ONWARD = "alone", "onward"


def evaluate(
    model, images: Tensor, *, classes, dataset: str, layer: int | None = None, seed=0,
    progress: Callable = iter,
) -> Rounds:  # fmt: skip
    """Give other couplings in some of the iterations, pair by pair; the others route.

    What is given are the donor's of its last iteration; arguments as of `by_part.evaluate`.

    Raises
    ------
    ValueError  for a network whose couplings cannot be replaced in single iterations, a routing of
                one pass, or images that make less than 4 couples.
    """
    number = mixtures.check(model, images, mixtures.COUPLINGS, layer)
    require(model, ("from_children",), "exchanging couplings of single iterations")
    count = len(mixtures.rounds(model, images, number))
    if count < 2:
        raise ValueError(
            "this network routes in one pass: expected a routing with iterations for --by "
            "iterations, got one whose couplings are exchanged as a whole or by capsules"
        )
    one = mixtures.layer_of(model, images[:1], mixtures.COUPLINGS, number)
    mixtures.under(model, one, torch.tensor([0]), [None] * count)  # where it takes no such list
    state = mixtures.layer_of(model, images, mixtures.COUPLINGS, number)
    several = (state.read.bincount()[state.read] > 1).nonzero().flatten()  # there is a like image
    generator = torch.Generator().manual_seed(seed)
    first, other = (several[one] for one in mixtures.pairs_of(state.read[several], generator))
    donors = (first, of_like_class(state.read)[first], other)
    own, partner = state.read[first], state.read[other]
    before = mixtures.under(model, state, first, None)
    values = {ALONE: [], ONWARD: []}
    for r in progress(range(count)):
        for mode, rows in values.items():
            rows.append(torch.stack([
                _readings(model, state, first, donor, listed(mode, r, count), before, own, partner)
                for donor in donors
            ], 1))  # fmt: skip
    counts = draw_resamples(len(first) // 2, seed=seed)

    def estimates(k: int):
        """Of a reading, by mode: (3, R)."""
        return {
            mode: stack((over_pairs(one[k], counts, shares=k < 3) for one in rows), 1)
            for mode, rows in values.items()
        }

    return Rounds(
        layer=None if number == -1 else number,
        donors=list(DONORS),
        **{name: estimates(k) for k, name in enumerate(mixtures.READINGS)},
        couples=len(first) // 2,
        n=len(first),
        classes=list(classes),
        dataset=dataset,
        given=given(model) if number == -1 else None,
    )


def listed(mode: str, r: int, count: int) -> list[bool]:
    """Which of the iterations, from 0, have other couplings."""
    return [k == r or (mode == ONWARD and k > r) for k in range(count)]


def _readings(model, state, first, donor, which, before, own, partner) -> Tensor:
    couplings = state.couplings[donor]
    after = mixtures.under(model, state, first, [couplings if one else None for one in which])
    return mixtures.readings(after, before, own, partner, winners(after))
