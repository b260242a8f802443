"""A layer whose parents lie at many places, told by the types of parents."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from capsviz.tracing import evidence, measures
from capsviz.tracing.record import Trace

PARTS = ("votes", "couplings", "weights", "evidence", "poses", "activations")  # of a trace


def by_parent_type(traced: Trace) -> Trace:
    """What each child gives and adds to all parents of a type, as if they were one parent.

    Couplings (R, N, I, types) are what a child gives to the parents of a type at all places that
    see it, as a share of all it gives, where a coupling below zero counts by its size; evidence (R,
    N, I, types) is what it adds to them, a sum; activations (R, N, types) are means over places.
    What has no such sum is not there: votes, poses. Rows of children that no place sees are zero.

    Parameters
    ----------
    traced  with `PARTS`, of a layer with `links`.

    Raises
    ------
    ValueError  for a layer in which all parents see all children.
    """
    if traced.links is None:
        raise ValueError("all parents of this layer see all children: each is told by itself")
    assert traced.couplings is not None and traced.activations is not None
    rounds = range(len(traced.couplings))
    shares = _each(traced.couplings, traced.links)
    return Trace(
        images=traced.images,
        grid=traced.grid,
        couplings=normalize(shares, p=1, dim=-1, eps=torch.finfo(shares.dtype).tiny),
        evidence=torch.stack(
            [evidence.at_children(evidence.of_children(traced, r), traced.links) for r in rounds]
        ),
        activations=traced.activations.mean(-2),
        extent=traced.extent,
        quantity=evidence.quantity(traced),
    )


def agreement(traced: Trace) -> Tensor:
    """Mean cosine of votes and pose, weighted by coupling, over children and places: (R, N, J).

    As `measures.agreement`, of layers with `links` too.
    """
    assert traced.votes is not None and traced.couplings is not None and traced.poses is not None
    if traced.links is None:
        return measures.agreement(traced.votes, traced.couplings, traced.poses)
    images, places = traced.votes.shape[:2]
    couplings = traced.couplings.flatten(1, 2)
    each = measures.agreement(traced.votes.flatten(0, 1), couplings, traced.poses.flatten(1, 2))
    mass = couplings.abs().sum(2)
    each, mass = (one.unflatten(1, (images, places)) for one in (each, mass))
    return (each * mass).sum(2) / mass.sum(2).clamp_min(torch.finfo(mass.dtype).tiny)


def input_norms(traced: Trace) -> Tensor:
    """|s_j|, the norm of what a parent gets before any bias, its mean over places: (N, J)."""
    assert traced.votes is not None and traced.factors is not None
    votes, factors = traced.votes, traced.factors[-1]
    if traced.links is None:
        return measures.total_input(votes, factors).norm(dim=-1)
    total = measures.total_input(votes.flatten(0, 1), factors.flatten(0, 1))
    return total.norm(dim=-1).unflatten(0, votes.shape[:2]).mean(1)


def type_means(couplings: Tensor, grid: tuple[int, int, int] | None, linked: Tensor) -> Tensor:
    """Mean over the places of each child type, of children that are `linked` (I,) alone.

    As `measures.by_type`: (..., I, J) -> (..., types, J).
    """
    share = measures.by_type(linked[:, None].to(couplings.dtype), grid)
    return measures.by_type(couplings * linked[:, None], grid) / share.clamp_min(1e-12)


def with_parents(traced: Trace) -> Tensor:
    """Which children any parent sees: (I,) bool."""
    if traced.links is None:
        assert traced.couplings is not None
        return torch.ones(traced.couplings.shape[2], dtype=torch.bool)
    return _linked(traced.links)


def _linked(links) -> Tensor:
    """Which children stand in a slot: (count,) bool."""
    child = links.child.flatten().cpu()  # -1: an empty slot
    return torch.zeros(links.count, dtype=torch.bool).index_fill_(0, child[child >= 0], True)


def _each(couplings: Tensor, links) -> Tensor:
    """Couplings of slots (R, N, Q, I, J), child by child: (R, N, count, J) double."""
    return torch.stack([evidence.at_children(one.double(), links) for one in couplings])
