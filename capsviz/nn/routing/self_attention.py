"""Self-attention routing, in one pass (Mazzia, Salvetti & Chiaberge 2021).

A child is weighted by the agreement of its vote with all children's votes for the same parent.
"""

import math

import torch
from torch import Tensor

from capsviz.nn.functional import agreement, lengths, squash_exp
from capsviz.nn.routing import Parents, Routing, check_votes, like_logits, stack
from capsviz.nn.routing._attend import attend, batch_last
from capsviz.nn.routing._parts import check_shape, exact, summed

CHILDREN = "squash_exp"  # see nn/children.py


def parameters(
    children: int, parents: int, child_dimensions: int, parent_dimensions: int
) -> dict[str, Tensor]:
    """Return the initial `bias` (I, J), zero."""
    return {"bias": torch.zeros(children, parents)}


@exact
def route(votes: Tensor, *, bias: Tensor | None = None, couplings: Tensor | None = None) -> Routing:
    """Couple children to parents by the agreement of votes with their sum over children.

    Efficient-CapsNet, arXiv:2101.12491. Logits are û_ij · Σ_k û_kj / √E. Couplings are their
    softmax over parents plus a learned bias, so they may be negative. Poses are squashed to length
    1 - exp(-length).

    Parameters
    ----------
    votes, couplings: as every routing takes them (`capsviz.nn.routing`)
    bias  (I, J) added to the couplings after the softmax; None for zeros.
    """
    check_votes(votes, 1)
    I, J, E = votes.shape[1:]
    check_shape("bias", bias, "I, J", (I, J))
    logits = agreement(votes, votes.sum(1)) / math.sqrt(E)
    if couplings is not None:
        coupling = like_logits(couplings, logits)
    else:
        coupling = logits.softmax(2) if bias is None else logits.softmax(2) + bias.to(votes)
    poses = squash_exp(summed(coupling, votes))
    return stack([(logits, coupling, poses)])


@exact
def fused(children: Tensor, weight: Tensor, *, bias: Tensor | None = None) -> Parents:
    """Return the result of `route` for the votes `weight @ children`."""
    u, weight = batch_last(children, weight)
    I, J, E, _ = weight.shape
    check_shape("bias", bias, "I, J", (I, J))
    query = attend(u, weight) * (J / math.sqrt(E))  # attend gives the mean over parents
    total = attend(u, weight, query, None if bias is None else bias.to(u))
    poses = squash_exp(total.permute(2, 0, 1))
    return Parents(poses, lengths(poses))
