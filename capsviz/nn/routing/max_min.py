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
    """Couple children to parents by agreement, as dynamic routing, but for the normalisation.

    A child's couplings are (b_ij - min_j b_ij) / (max_j b_ij - min_j b_ij): its best parent gets
    all of its vote, its worst nothing, whatever it gives to others. Where all its logits are the
    same, as in the first iteration, they are 1. Couplings do not sum to 1.
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
    """Return what `route` finds on the votes `weight @ children`."""
    check_iterations(iterations)
    u, weight = batch_last(children, weight)
    total, query = weight.shape[1] * attend(u, weight), None  # all couplings are 1 at first
    for _ in range(iterations - 1):
        query = squash(total, 1) if query is None else query + squash(total, 1)
        total = attend(u, weight, query, stretched=True)
    poses = squash(total.permute(2, 0, 1))
    return Parents(poses, lengths(poses))


def stretched(logits: Tensor) -> Tensor:
    """Logits (..., J) moved and scaled to reach from 0 to 1; 1 where they are the same."""
    return stretch(logits)[0]
