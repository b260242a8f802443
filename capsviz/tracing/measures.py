"""Compute measures of routing, as pure functions of the parts of a trace.

Shapes are those of a `Trace`: votes (B,I,J,E), couplings (R,B,I,J), poses (R,B,J,E). The factors of
the votes, `Trace.factors`, have the shape of couplings.
"""

from math import log
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from capsviz.tracing import evidence
from capsviz.tracing.evidence import has_places
from capsviz.tracing.record import Trace

INSIDE = ("votes", "couplings", "weights", "poses", "activations")  # parts of a trace


def entropy(couplings: Tensor) -> Tensor:
    """Return the entropy H_i in nats of each child's couplings: (..., I, J) -> (..., I).

    Negative couplings, which some routings can learn, are ignored. The others are normalised over
    parents, so that the part that leaky routing withholds does not count.
    """
    shares = couplings.double().clamp_min(0)
    shares = shares / shares.sum(-1, keepdim=True).clamp_min(torch.finfo(shares.dtype).tiny)
    most = log(couplings.shape[-1])  # rounding can exceed it
    return torch.special.entr(shares).sum(-1).clamp_max(most)


def by_type(couplings: Tensor, grid: tuple[int, int, int] | None) -> Tensor:
    """Return means over the positions of each capsule type: (..., I, J) -> (..., types, J).

    Without a grid, each child counts as one type.
    """
    return couplings if grid is None else couplings.unflatten(-2, grid).mean((-3, -2))


def agreement(votes: Tensor, couplings: Tensor, poses: Tensor) -> Tensor:
    """Return the mean over children of cos(û_ij, v_j), weighted by c_ij: (R, B, J) in [-1, 1].

    A negative coupling, which some routings can learn, reverses its vote: the cosine is that of
    c_ij û_ij, with the weight |c_ij|.
    """
    tiny = torch.finfo(votes.dtype).tiny
    along = torch.einsum("bije,rbje->rbij", votes, normalize(poses, dim=-1))
    cosine = along / votes.norm(dim=-1).clamp_min(tiny)
    return (couplings * cosine).sum(2) / couplings.abs().sum(2).clamp_min(tiny)


class Evidence(NamedTuple):
    """Evidence in one image, for J classes, after the last iteration."""

    maps: np.ndarray | None  # (J, rows, columns); None: no positions
    types: np.ndarray | None  # (types, J) without positions; (I, J) without a grid
    sums: np.ndarray  # (J,) over all children
    quantity: dict[str, str] | None  # description of the evidence; None: `ALONG_POSE`


def evidence_of(traced: Trace) -> Evidence:
    """Return the evidence of the first image of a trace, as decomposed by its routing."""
    own, parts = traced.evidence is not None, evidence.of_children(traced)[0]
    maps = types = None
    if has_places(traced.grid) and traced.extent is not None:
        maps = evidence.additive_map(traced)[0].numpy()
    else:
        types = parts.numpy()
    quantity = evidence.quantity(traced)._asdict() if own else None
    return Evidence(maps, types, parts.sum(0).numpy(), quantity)


def by_parent_type(traced: Trace) -> Trace:
    """Merge the parents of each type over all positions of a layer with `links`.

    `traced` needs the parts `INSIDE`. The result has:
        couplings    (R, N, I, types), sums over the positions that see a child, divided by the sum
                     of their absolute values over types; zero for children without parents
        evidence     (R, N, I, types), sums over positions
        activations  (R, N, types), means over positions
    """
    couplings, links = traced.require("couplings"), traced.links
    shares = torch.stack([evidence.at_children(one.double(), links) for one in couplings])
    rounds = range(len(couplings))
    return Trace(
        images=traced.images,
        grid=traced.grid,
        couplings=normalize(shares, p=1, dim=-1, eps=torch.finfo(shares.dtype).tiny),
        evidence=torch.stack(
            [evidence.at_children(evidence.of_children(traced, r), links) for r in rounds]
        ),
        activations=traced.require("activations").mean(-2),
        extent=traced.extent,
        quantity=evidence.quantity(traced),
    )


def mean_agreement(traced: Trace) -> Tensor:
    """Return the mean cosine of votes and pose over children and positions: (R, N, J).

    It is weighted by couplings, as in `agreement`, and supports layers with `links`.
    """
    votes, couplings, poses = (traced.require(one) for one in ("votes", "couplings", "poses"))
    if traced.links is None:
        return agreement(votes, couplings, poses)
    couplings = couplings.flatten(1, 2)
    each = agreement(votes.flatten(0, 1), couplings, poses.flatten(1, 2))
    mass = couplings.abs().sum(2)
    each, mass = (one.unflatten(1, votes.shape[:2]) for one in (each, mass))
    return (each * mass).sum(2) / mass.sum(2).clamp_min(torch.finfo(mass.dtype).tiny)


def input_norms(traced: Trace) -> Tensor:
    """Return the norm |s_j| of parents' inputs without bias, averaged over positions: (N, J)."""
    assert traced.votes is not None and traced.factors is not None
    votes, factors = traced.votes.double(), traced.factors[-1].double()
    norms = torch.einsum("...ij,...ije->...je", factors, votes).norm(dim=-1)
    return norms if traced.links is None else norms.mean(1)


def type_means(couplings: Tensor, grid: tuple[int, int, int] | None, linked: Tensor) -> Tensor:
    """Return means over the `linked` children (I,) of each type: (..., I, J) -> (..., types, J)."""
    share = by_type(linked[:, None].to(couplings.dtype), grid)
    return by_type(couplings * linked[:, None], grid) / share.clamp_min(1e-12)


def with_parents(traced: Trace) -> Tensor:
    """Return which children any parent sees: (I,) bool."""
    links: Any = traced.links
    if links is None:
        return torch.ones(traced.require("couplings").shape[2], dtype=torch.bool)
    child = links.child.flatten().cpu()  # -1: an empty slot
    return torch.zeros(links.count, dtype=torch.bool).index_fill_(0, child[child >= 0], True)
