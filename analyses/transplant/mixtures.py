"""Mixtures of two images: couplings, children or poses of some capsules are a donor's."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from capsviz.analyses.transplant.measure import over_pairs
from capsviz.discovery import unknown
from capsviz.statistics.comparison import draw_resamples
from capsviz.tracing import CHUNK_IMAGES, from_children, trace
from capsviz.tracing.many import couples, last_couplings, require_all_to_all
from capsviz.tracing.needs import missing, require
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
    children: Tensor | None  # (N, I, D); None: they cannot be replaced, and need not be
    active: Tensor | None  # (N, I)
    couplings: Tensor | None  # (N, I, J) of the last iteration; None: they are not exchanged
    read: Tensor  # (N,) predicted class of each, routed by itself
    grid: tuple[int, int, int] | None

    @property
    def count(self) -> int:
        """I, the children."""
        one = self.couplings if self.children is None else self.children
        return one.shape[1]


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
    return trace(model, images[:1], layer=number, keep=("couplings",)).couplings


def layer_of(model, images: Tensor, of: str, number: int) -> Layer:
    """Children, couplings if they are exchanged, and what is read, of images (N, C, H, W)."""
    own, children, active = None, None, None
    if of == COUPLINGS:
        own, _, read = last_couplings(model, images, layer=number)
    if not missing(model, ("from_children",)):
        traced = trace(model, images, layer=number, keep=("children", "child_activations"))
        children, active = traced.children, traced.child_activations
        read = from_children(model, children, active, layer=number).argmax(1)
    return Layer(of, number, images, children, active, own, read, abilities(model).grids[number])


def pairs_of(read: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Recipients and donors (P,) of another class: of couple c the pairs 2 c and 2 c + 1.

    ValueError for fewer than `LEAST` couples.
    """
    pairs = couples(read, generator)
    if len(pairs) < LEAST:
        raise ValueError(
            f"{len(read)} images make {len(pairs)} couples of different predicted "
            f"classes, expected at least {LEAST}: take more images, of several classes"
        )
    return pairs.flatten(), pairs.flip(1).flatten()


def mixed(model, layer: Layer, first: Tensor, other: Tensor, chosen: Tensor) -> Tensor:
    """Activations (P, J) of images `first` (P,) with the chosen children's part of `other` (P,).

    Of poses the direction is the other's, the length, or where there is one beside it the
    activation, the image's own.

    Parameters
    ----------
    chosen  bool (P, I), or (I,) for all pairs.
    """
    chosen, parts = chosen.expand(len(first), layer.count), []
    for rows in torch.arange(len(first)).split(CHUNK_IMAGES):
        a, b, some = first[rows], other[rows], chosen[rows, :, None]
        if layer.of == COUPLINGS:
            parts.append(under(model, layer, a, torch.where(some, *_of(layer.couplings, b, a))))
            continue
        children, active = layer.children[a], layer.active[a]
        if layer.of == CHILDREN:
            others = layer.children[b]
            active = torch.where(some[..., 0], layer.active[b], active)
        else:
            others = posed(children, layer.children[b], active)
        children = torch.where(some, others, children)
        parts.append(from_children(model, children, active, layer=layer.number))
    return torch.cat(parts)


def under(model, layer: Layer, rows: Tensor, couplings) -> Tensor:
    """Activations (P, J) of images (P,) under couplings (P, I, J), or a list of one a round."""
    if layer.children is None:
        return trace(model, layer.images[rows], keep=("lengths",), couplings=couplings).lengths
    return from_children(
        model, layer.children[rows], layer.active[rows], layer=layer.number, couplings=couplings
    )


def posed(own: Tensor, others: Tensor, active: Tensor) -> Tensor:
    """Children (P, I, D) with others' poses and their own lengths.

    Where activations (P, I) are no lengths of the children, lengths are a matter of the pose.
    """
    lengths = own.norm(dim=2)
    if not torch.allclose(lengths, active, rtol=1e-3, atol=1e-4):
        return others
    return normalize(others, dim=2) * lengths[..., None]


def readings(after: Tensor, before: Tensor, own: Tensor, partner: Tensor, read: Tensor) -> Tensor:
    """(5, P) in the order of `READINGS`, of activations (P, J) after and before an exchange.

    Parameters
    ----------
    own, partner  (P,) classes of the images.
    read          (P,) class predicted after it, -1 for none.
    """
    changes = [(after - before).gather(1, one[:, None])[:, 0] for one in (own, partner)]
    shares = [read == own, read == partner, (read != own) & (read != partner)]
    return torch.stack([*(one.to(after) for one in shares), *changes])


def _of(values: Tensor, *rows: Tensor) -> list[Tensor]:
    return [values[some] for some in rows]


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
    parts = partitions(layer.grid, layer.count)
    if len(parts) > 1:
        del parts[SINGLE]  # thousands, each with an effect too small to measure
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
    """Return the part that raises the donor's class most in every second couple, and its change in
    the rest.

    Of changes (1 + G, P), first those of the control: number of the part, and an estimate (2,) of
    the control and of it.
    """
    of_couples = changes.unflatten(1, (-1, 2))
    best = int(of_couples[1:, ::2].mean((1, 2)).argmax())
    rest = of_couples[[0, 1 + best], 1::2].flatten(1)
    return best, over_pairs(rest, draw_resamples(rest.shape[1] // 2, seed=seed), shares=False)
