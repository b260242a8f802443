"""One part after the other exchanged, for `transplant`: each capsule type, each place, each child.

The control of a part are as many children drawn at random, for each pair anew.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from capsviz.analyses.transplant import mixtures
from capsviz.analyses.transplant.measure import given, over_pairs
from capsviz.analyses.transplant.mixtures import Layer
from capsviz.analyses.transplant.parts import PLACES, SHARES, SINGLE, TYPES, masks, partitions
from capsviz.analyses.transplant.results import Parts
from capsviz.statistics.comparison import draw_resamples
from capsviz.tracing.many import winners

DRAWS = 4  # of as many children at random
MOST = 64  # groups of children that have no places
NAMES = {TYPES: "types", PLACES: "places", SINGLE: "children"}


def evaluate(
    model, images: Tensor, *, of: str, classes, dataset: str, layer: int | None = None, seed=0,
    progress: Callable = iter,
) -> Parts:  # fmt: skip
    """Exchange children, poses or couplings (`of`) of one part after the other, pair by pair.

    Parameters
    ----------
    images    (N, C, H, W) in [0, 1].
    classes   names of the classes.
    dataset   its name, for the record.
    layer     a routed layer by its number; None: that of the classes.
    seed      of the couples, what is drawn at random, and the bootstrap.
    progress  wraps the parts, for a progress bar.

    Raises
    ------
    ValueError  for what the network cannot exchange, or images that make less than 4 couples.
    """
    number = mixtures.check(model, images, of, layer)
    state = mixtures.layer_of(model, images, of, number)
    generator = torch.Generator().manual_seed(seed)
    first, other = mixtures.pairs_of(state.read, generator)
    own, partner = state.read[first], state.read[other]
    nothing = torch.zeros(state.count, dtype=torch.bool)
    before = mixtures.mixed(model, state, first, other, nothing)

    def outcome(chosen: Tensor) -> Tensor:
        after = mixtures.mixed(model, state, first, other, chosen)
        return mixtures.readings(after, before, own, partner, winners(after))

    kinds, values = members(state), {}
    steps = [(kind, k) for kind, parts in kinds.items() for k in range(-1, len(parts))]
    for kind, k in progress(steps):
        if k < 0:
            values[kind] = [at_random(outcome, state, kinds[kind], len(first), generator)]
        else:
            values[kind].append(outcome(kinds[kind][k]))
    values = {kind: torch.stack(rows, 1) for kind, rows in values.items()}  # (5, 1 + G, P)
    shares, some = by_share(outcome, state, len(first), generator)
    counts = draw_resamples(len(first) // 2, seed=seed)
    fields = {
        name: {kind: over_pairs(rows[k], counts, shares=k < 3) for kind, rows in values.items()}
        for k, name in enumerate(mixtures.READINGS)
    }
    ranked = {kind: first_of(rows[4], seed) for kind, rows in values.items()}
    whole = mixtures.mixed(model, state, first, other, ~nothing)
    theirs = mixtures.mixed(model, state, other, first, nothing)
    return Parts(
        of=of,
        layer=None if number == -1 else number,
        grid=state.grid,
        kinds=list(kinds),
        sizes={kind: round(float(parts.sum(1).double().mean())) for kind, parts in kinds.items()},
        **fields,
        first={kind: one[0] for kind, one in ranked.items()},
        first_change={kind: one[1] for kind, one in ranked.items()},
        shares=shares,
        some_own={kind: over_pairs(rows[:, 0], counts, shares=True) for kind, rows in some.items()},
        some_partner={
            kind: over_pairs(rows[:, 1], counts, shares=True) for kind, rows in some.items()
        },
        off=float((whole - theirs).abs().max()),
        couples=len(first) // 2,
        n=len(first),
        classes=list(classes),
        dataset=dataset,
        given=given(model) if of == mixtures.COUPLINGS and number == -1 else None,
    )


def members(layer: Layer) -> dict[str, Tensor]:
    """Children of each part, by kind: bool (G, I).

    Children without places are groups of consecutive numbers, at most `MOST`.
    """
    parts = partitions(layer.grid, layer.count)
    if len(parts) > 1:
        del parts[SINGLE]  # thousands, each too small to be told
    else:
        parts[SINGLE] = parts[SINGLE] * min(layer.count, MOST) // layer.count
    return {
        NAMES[kind]: torch.arange(int(of.max()) + 1)[:, None] == of for kind, of in parts.items()
    }


def at_random(outcome: Callable, layer: Layer, parts: Tensor, pairs: int, generator) -> Tensor:
    """Readings (5, P) with as many children as a part has at random, mean of draws."""
    size = float(parts.sum(1).double().mean()) / layer.count
    each = torch.arange(layer.count)
    draws = [outcome(masks(each, size, pairs, generator)) for _ in range(DRAWS)]
    return torch.stack(draws).mean(0)


def by_share(
    outcome: Callable, layer: Layer, pairs: int, generator
) -> tuple[dict[str, np.ndarray], dict[str, Tensor]]:
    """By kind of part, shares (S,) of them and readings (S, 5, P) with these drawn at random."""
    shares, rows = {}, {}
    for kind, of in partitions(layer.grid, layer.count).items():
        count = int(of.max()) + 1
        numbers = sorted({max(1, round(share * count)) for share in (*SHARES, 1.0)})
        shares[kind] = np.array(numbers) / count
        outcomes = [outcome(masks(of, n / count, pairs, generator)) for n in numbers]
        rows[kind] = torch.stack(outcomes)
    return shares, rows


def first_of(changes: Tensor, seed: int):
    """The part that raises the unlike class most in every second couple, its change in the rest.

    Of changes (1 + G, P), first those of the control: number of the part, and an estimate (2,) of
    the control and of it.
    """
    of_couples = changes.unflatten(1, (-1, 2))
    best = int(of_couples[1:, ::2].mean((1, 2)).argmax())
    rest = of_couples[[0, 1 + best], 1::2].flatten(1)
    return best, over_pairs(rest, draw_resamples(rest.shape[1] // 2, seed=seed), shares=False)
