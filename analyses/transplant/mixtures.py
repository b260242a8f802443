"""Mixtures of two images: couplings, children or poses of some capsules are a donor's."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from capsviz.analyses.transplant.measure import counted, over_pairs, pairs_of
from capsviz.discovery import unknown
from capsviz.statistics.comparison import draw_resamples
from capsviz.statistics.estimate import Estimate, stack
from capsviz.tracing import CHUNK_IMAGES, from_children, trace
from capsviz.tracing.many import last_couplings, of_like_class, require_all_to_all, winners
from capsviz.tracing.needs import missing, reason, require
from capsviz.tracing.network import abilities, below_classes, check_look

SHARES = (0.25, 0.5, 0.75, 0.9)  # of the types, positions or capsules
DRAWS = 4  # of as many children at random
MOST = 64  # groups of children that have no positions
TYPES, PLACES, SINGLE = "whole capsule types", "whole places", "single capsules"
NAMES = {TYPES: "types", PLACES: "places", SINGLE: "children"}
COUPLINGS, CHILDREN, POSES = OF = ("couplings", "children", "poses")
LEAST = 4  # couples: parts are ranked on one half of them, and measured on the other
READINGS = ("own", "partner", "neither", "own_change", "partner_change")  # fields of results


class Layer(NamedTuple):
    """What a routed layer has of N images."""

    of: str  # what is exchanged
    number: int  # of the layer, as an index
    images: Tensor  # (N, C, H, W)
    children: Any  # (N, I, D); None: they cannot be replaced, and need not be
    active: Any  # (N, I)
    couplings: Any  # (N, I, J) of the last iteration; None: they are not exchanged
    read: Tensor  # (N,) predicted class of each, routed by itself
    grid: tuple[int, int, int] | None

    @property
    def size(self) -> int:
        """I, the children."""
        return (self.couplings if self.children is None else self.children).shape[1]


def check(model, images: Tensor, of: str, layer: int | None) -> int:
    """The layer's number as an index; ValueError for what cannot be exchanged, in one line.

    One image is traced for it at most.
    """
    if of not in OF:
        raise ValueError(unknown("part of a network", of, list(OF)))
    check_look(model, -1 if layer is None else layer, None)
    number = below_classes(model, layer)
    if of != COUPLINGS or number is not None:
        require(model, ("from_children",), f"exchanging {of if number is None else 'in a layer'}")
    number = -1 if number is None else number
    if of == COUPLINGS:
        require_all_to_all(rounds(model, images, number))
    return number


def rounds(model, images: Tensor, number: int) -> Tensor:
    """Own couplings (R, 1, ...) of the first image."""
    return trace(model, images[:1], layer=number, keep=("couplings",)).require("couplings")


def layer_of(model, images: Tensor, of: str, number: int) -> Layer:
    """Children, couplings if they are exchanged, and what is read, of images (N, C, H, W)."""
    own, children, active = None, None, None
    if of == COUPLINGS:
        own, _, read = last_couplings(model, images, layer=number)
    if not missing(model, ("from_children",)):
        traced = trace(model, images, layer=number, keep=("children", "child_activations"))
        children, active = traced.require("children"), traced.require("child_activations")
        read = from_children(model, children, active, layer=number).argmax(1)
    return Layer(of, number, images, children, active, own, read, abilities(model).grids[number])


def mixed(model, layer: Layer, first: Tensor, other: Tensor, chosen: Tensor) -> Tensor:
    """Activations (P, J) of images `first` (P,) with the chosen children's part of `other` (P,).

    Chosen are (P, I), or (I,) for all pairs. Of poses the direction is the other's, the length, or
    where there is one beside it the activation, the image's own.
    """
    chosen, parts = chosen.expand(len(first), layer.size), []
    for rows in torch.arange(len(first)).split(CHUNK_IMAGES):
        a, b, some = first[rows], other[rows], chosen[rows, :, None]
        if layer.of == COUPLINGS:
            both = torch.where(some, layer.couplings[b], layer.couplings[a])
            parts.append(under(model, layer, a, both))
            continue
        children, others, active = layer.children[a], layer.children[b], layer.active[a]
        if layer.of == CHILDREN:
            active = torch.where(some[..., 0], layer.active[b], active)
        else:
            others = posed(children, others, active)
        children = torch.where(some, others, children)
        parts.append(from_children(model, children, active, layer=layer.number))
    return torch.cat(parts)


def under(model, layer: Layer, rows: Tensor, couplings) -> Tensor:
    """Activations (P, J) of images (P,) under couplings (P, I, J), or a list of one a round."""
    if layer.children is None:
        traced = trace(model, layer.images[rows], keep=("lengths",), couplings=couplings)
        return traced.require("lengths")
    how = {"layer": layer.number, "couplings": couplings}
    return from_children(model, layer.children[rows], layer.active[rows], **how)


def posed(own: Tensor, others: Tensor, active: Tensor) -> Tensor:
    """Children (P, I, D) with others' poses and their own lengths.

    Where activations (P, I) are no lengths of the children, lengths are a matter of the pose.
    """
    lengths = own.norm(dim=2)
    if not torch.allclose(lengths, active, rtol=1e-3, atol=1e-4):
        return others
    return normalize(others, dim=2) * lengths[..., None]


def readings(layer: Layer, first: Tensor, other: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """(5, P) in the order of `READINGS`, of activations (P, J) before and after an exchange."""
    read, own, partner = winners(after), layer.read[first], layer.read[other]
    changes = [(after - before).gather(1, one[:, None])[:, 0] for one in (own, partner)]
    shares = [read == own, read == partner, (read != own) & (read != partner)]
    return torch.stack([*(one.to(after) for one in shares), *changes])


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


def members(layer: Layer) -> dict[str, Tensor]:
    """Children of each part, by kind: bool (G, I).

    Children without positions are groups of consecutive numbers, at most `MOST`.
    """
    parts = partitions(layer.grid, layer.size)
    if len(parts) > 1:
        del parts[SINGLE]  # thousands, each with an effect too small to measure
    else:
        parts[SINGLE] = parts[SINGLE] * min(layer.size, MOST) // layer.size
    return {
        NAMES[kind]: torch.arange(int(of.max()) + 1)[:, None] == of for kind, of in parts.items()
    }


def first_of(changes: Tensor, seed: int) -> tuple[int, Estimate]:
    """Return the part that raises the donor's class most in every second couple, and the changes
    (2,) in the rest: of the control, and of that part.

    Changes (1 + G, P) of the donor's class have those of the control first.
    """
    of_couples = changes.unflatten(1, (-1, 2))
    best = int(of_couples[1:, ::2].mean((1, 2)).argmax())
    rest = of_couples[[0, 1 + best], 1::2].flatten(1)
    return best, over_pairs(rest, draw_resamples(rest.shape[1] // 2, seed=seed), shares=False)


def by_part(model, images: Tensor, of: str, layer: int | None, seed: int, progress) -> dict:
    """Return the fields of `Parts` that are measured, of images (N, C, H, W)."""
    number = check(model, images, of, layer)
    state = layer_of(model, images, of, number)
    generator = torch.Generator().manual_seed(seed)
    first, other = pairs_of(state.read, generator, LEAST)
    nothing = torch.zeros(state.size, dtype=torch.bool)
    before = mixed(model, state, first, other, nothing)

    def outcome(chosen: Tensor) -> Tensor:
        return readings(state, first, other, before, mixed(model, state, first, other, chosen))

    kinds, values, shares, some = members(state), {}, {}, {}
    for kind, parts in kinds.items():
        size, each = float(parts.sum(1).double().mean()) / state.size, torch.arange(state.size)
        drawn = [outcome(masks(each, size, len(first), generator)) for _ in range(DRAWS)]
        rows = [torch.stack(drawn).mean(0), *map(outcome, progress(parts))]
        values[kind] = torch.stack(rows, 1)  # (5, 1 + G, P)
    for kind, groups in partitions(state.grid, state.size).items():
        count = int(groups.max()) + 1
        numbers = sorted({max(1, round(share * count)) for share in (*SHARES, 1.0)})
        shares[kind] = np.array(numbers) / count
        drawn = [outcome(masks(groups, n / count, len(first), generator)) for n in numbers]
        some[kind] = torch.stack(drawn)  # (S, 5, P)
    counts = draw_resamples(len(first) // 2, seed=seed)
    ranked = {kind: first_of(one[4], seed) for kind, one in values.items()}
    whole = mixed(model, state, first, other, ~nothing)
    theirs = mixed(model, state, other, first, nothing)
    return {
        **{
            name: {kind: over_pairs(v[k], counts, shares=k < 3) for kind, v in values.items()}
            for k, name in enumerate(READINGS)
        },
        **{
            name: {kind: over_pairs(v[:, k], counts, shares=True) for kind, v in some.items()}
            for k, name in enumerate(("some_own", "some_partner"))
        },
        **_about(model, state, first),
        "grid": state.grid,
        "kinds": list(kinds),
        "sizes": {kind: round(float(one.sum(1).double().mean())) for kind, one in kinds.items()},
        "first": {kind: best for kind, (best, _) in ranked.items()},
        "first_change": {kind: change for kind, (_, change) in ranked.items()},
        "shares": shares,
        "off": float((whole - theirs).abs().max()),
    }


def _about(model, layer: Layer, first: Tensor) -> dict:
    """Return the fields about the layer and its pairs."""
    below = layer.number != -1
    given = None if below or layer.of != COUPLINGS else reason(model, "donor's class")
    return {"layer": layer.number if below else None, "given": given, **counted(first)}


def by_iteration(model, images: Tensor, layer: int | None, seed: int, progress) -> dict:
    """Return the fields of `Rounds` that are measured, of images (N, C, H, W)."""
    number = check(model, images, COUPLINGS, layer)
    require(model, ("from_children",), "exchanging couplings of single iterations")
    count = len(rounds(model, images, number))
    if count < 2:
        raise ValueError(
            "this network routes in one pass: expected a routing with iterations for --by "
            "iterations; use --by capsules, or --n N alone"
        )
    one = layer_of(model, images[:1], COUPLINGS, number)
    under(model, one, torch.tensor([0]), [None] * count)  # refuses if it cannot
    state = layer_of(model, images, COUPLINGS, number)
    first, other = pairs_of(state.read, torch.Generator().manual_seed(seed), LEAST)
    before = under(model, state, first, None)
    own = state.couplings

    def outcome(donor: Tensor, replaced: list[bool]) -> Tensor:
        after = under(model, state, first, [own[donor] if one else None for one in replaced])
        return readings(state, first, other, before, after)

    donors = (first, of_like_class(state.read)[first], other)
    counts, fields = draw_resamples(len(first) // 2, seed=seed), {}
    values: dict[str, list[Tensor]] = {mode: [] for mode in ("alone", "onward")}
    for r in progress(range(count)):
        for mode, some in values.items():
            which = listed(mode, r, count)
            some.append(torch.stack([outcome(donor, which) for donor in donors], 1))
    for k, name in enumerate(READINGS):
        fields[name] = {
            mode: stack((over_pairs(one[k], counts, shares=k < 3) for one in some), 1)
            for mode, some in values.items()
        }
    return fields | _about(model, state, first)


def listed(mode: str, r: int, count: int) -> list[bool]:
    """Return which of the iterations, from 0, have other couplings."""
    return [k == r or (mode == "onward" and k > r) for k in range(count)]
