"""No routing: uniform couplings, the control for all routings.

The first iteration of dynamic routing (Sabour, Frosst & Hinton 2017). With one matrix for all
children it is the affine capsule network of Gu & Tresp (2020).
"""

import torch
from torch import Tensor

from capsviz.nn.functional import lengths, squash
from capsviz.nn.routing import Parents, Routing, check_votes, like_logits, stack
from capsviz.nn.routing._attend import attend, batch_last
from capsviz.nn.routing._parts import exact, summed


@exact
def route(votes: Tensor, *, couplings: Tensor | None = None) -> Routing:
    """Couple children to parents uniformly, with 1/J, in one pass; squash the poses."""
    check_votes(votes, 1)
    logits = torch.zeros_like(votes[..., 0])
    inputs = 1 / votes.new_tensor(votes.shape[2]) if couplings is None else couplings
    coupling = like_logits(inputs, logits)
    poses = squash(summed(coupling, votes))
    return stack([(logits, coupling, poses)])


@exact
def fused(children: Tensor, weight: Tensor) -> Parents:
    """Return the result of `route` for the votes `weight @ children`."""
    poses = squash(attend(*batch_last(children, weight)).permute(2, 0, 1))
    return Parents(poses, lengths(poses))
