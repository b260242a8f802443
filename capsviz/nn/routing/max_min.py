"""Max-min routing: each child's logits are stretched to [0, 1] in place of a softmax (Zhao 2019).

Zhao, Kleinhans, Sandhu, Patel & Unnikrishnan: Capsule Networks with Max-Min Normalization,
arXiv:1903.09662.
"""

from torch import Tensor

from capsviz.nn.functional import agreement, lengths, squash
from capsviz.nn.routing import Parents, Routing, check_iterations, check_votes, iterate
from capsviz.nn.routing._attend import attend, batch_last
from capsviz.nn.routing._parts import exact, stretch, summed


@exact
def route(votes: Tensor, *, iterations: int = 3, couplings: Tensor | None = None) -> Routing:
    """Couple children to parents by agreement, like dynamic routing with another normalisation.

    A child's couplings are (b_ij - min_j b_ij) / (max_j b_ij - min_j b_ij): 1 for its best parent
    and 0 for its worst. If all its logits are equal, as in the first iteration, its couplings are
    1. Couplings do not sum to 1.
    """
    check_votes(votes, iterations)

    def parents(coupling: Tensor, iteration: int):
        poses = squash(summed(coupling, votes))
        return (poses,), (poses,)

    def logits(before: Tensor, poses: Tensor):
        return before + agreement(votes, poses)

    return iterate(votes, iterations, couplings, shares=stretched, parents=parents, logits=logits)


@exact
def fused(children: Tensor, weight: Tensor, *, iterations: int = 3) -> Parents:
    """Return the result of `route` for the votes `weight @ children`."""
    check_iterations(iterations)
    u, weight = batch_last(children, weight)
    total, query = weight.shape[1] * attend(u, weight), None  # all couplings are 1 at first
    for _ in range(iterations - 1):
        query = squash(total, 1) if query is None else query + squash(total, 1)
        total = attend(u, weight, query, stretched=True)
    poses = squash(total.permute(2, 0, 1))
    return Parents(poses, lengths(poses))


def stretched(logits: Tensor) -> Tensor:
    """Scale logits (..., J) to the range from 0 to 1; equal logits become 1."""
    return stretch(logits)[0]
