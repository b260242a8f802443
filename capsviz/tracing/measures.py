"""Measures of routing: pure functions of the parts of a trace.

Shapes as in `capsviz.tracing`: votes (B,I,J,E), couplings (R,B,I,J), poses (R,B,J,E). Factors, in
the shape of couplings, are what the votes are multiplied by: `Trace.factors`.
"""

from __future__ import annotations

from math import log
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from capsviz.tracing import evidence
from capsviz.tracing.evidence import has_places
from capsviz.tracing.record import Trace

INSIDE = ("votes", "couplings", "weights", "poses", "activations")


def entropy(couplings: Tensor) -> Tensor:
    """Entropy in nats of each child's couplings over parents, H_i: (..., I, J) -> (..., I).

    Of how a child spreads what it gives to parents: what leaky routing withholds does not count,
    nor does a coupling below zero, which some routings can learn.
    """
    shares = couplings.double().clamp_min(0)
    shares = shares / shares.sum(-1, keepdim=True).clamp_min(torch.finfo(shares.dtype).tiny)
    most = log(couplings.shape[-1])  # rounding can pass it
    return torch.special.entr(shares).sum(-1).clamp_max(most)


def by_type(couplings: Tensor, grid: tuple[int, int, int] | None) -> Tensor:
    """Mean over the places of each capsule type: (..., I, J) -> (..., types, J).

    Without a grid each child is a type of its own.
    """
    return couplings if grid is None else couplings.unflatten(-2, grid).mean((-3, -2))


def agreement(votes: Tensor, couplings: Tensor, poses: Tensor) -> Tensor:
    """Mean over children of cos(û_ij, v_j), weighted by c_ij: (R, B, J) in [-1, 1].

    A coupling below zero, which some routings can learn, turns its vote round: the cosine is that
    of what arrives, c_ij û_ij, and its weight |c_ij|.
    """
    tiny = torch.finfo(votes.dtype).tiny
    along = torch.einsum("bije,rbje->rbij", votes, normalize(poses, dim=-1))
    cosine = along / votes.norm(dim=-1).clamp_min(tiny)
    return (couplings * cosine).sum(2) / couplings.abs().sum(2).clamp_min(tiny)


def total_input(votes: Tensor, factors: Tensor) -> Tensor:
    """s_j = Σ_i c_ij û_ij in float64, what a parent gets before any bias: (B, J, E)."""
    return torch.einsum("bij,bije->bje", factors.double(), votes.double())


def along_pose(total: Tensor, poses: Tensor) -> Tensor:
    """s_j · v̂_j in float64, of (B, J, E) twice: (B, J)."""
    return (total * normalize(poses.double(), dim=-1)).sum(-1)


class Evidence(NamedTuple):
    """Of one image, for J classes, after the last iteration."""

    maps: np.ndarray | None  # (J, rows, columns); None: no places
    types: np.ndarray | None  # (types, J) without places; without a grid (I, J)
    sums: np.ndarray  # (J,) over all children
    quantity: dict[str, str] | None  # what it is, in words; None: `ALONG_POSE`


def evidence_of(traced: Trace) -> Evidence:
    """The evidence of the first image of a trace, by its routing's own decomposition."""
    own = traced.evidence is not None
    maps = types = None
    if has_places(traced.grid):
        maps = evidence.additive_map(traced)[0].numpy()
    else:
        types = by_type(evidence.of_children(traced)[0], None).numpy()
    if own:
        sums = evidence.of_children(traced)[0].sum(0)
    else:
        votes, factors, poses = (
            cast(Tensor, one) for one in (traced.votes, traced.factors, traced.poses)
        )
        sums = along_pose(total_input(votes, factors[-1]), poses[-1])[0]
    quantity = evidence.quantity(traced)._asdict() if own else None
    return Evidence(maps, types, sums.numpy(), quantity)
