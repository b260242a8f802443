"""k-means routing: parents are centres, of which only the direction counts (Su 2018).

As in bojone/Capsule, couplings are a softmax of votes times the centre's direction.
"""

from torch import Tensor

from capsviz.nn.functional import EPSILON, agreement, lengths
from capsviz.nn.routing import Parents, Routing, check_iterations, check_votes, iterate
from capsviz.nn.routing._attend import attend, batch_last
from capsviz.nn.routing._parts import exact, summed


@exact
def route(votes: Tensor, *, iterations: int = 3, couplings: Tensor | None = None) -> Routing:
    """Couple children to parents by soft k-means with the inner product.

    Logits û_ij · o_j / |o_j| are not accumulated, but recomputed in each iteration from the sums
    o_j of the previous one. Only the returned poses are squashed, by |o| o / (1/2 + |o|²).
    """
    check_votes(votes, iterations)

    def parents(coupling: Tensor, iteration: int):
        centre = summed(coupling, votes)  # o_j
        return (squash(centre),), (centre,)

    def logits(_, centre: Tensor):
        return agreement(votes, direction(centre))

    return iterate(votes, iterations, couplings, parents=parents, logits=logits)


@exact
def fused(children: Tensor, weight: Tensor, *, iterations: int = 3) -> Parents:
    """Return the result of `route` for the votes `weight @ children`."""
    check_iterations(iterations)
    u, weight = batch_last(children, weight)
    centre = attend(u, weight)  # (J, E, B)
    for _ in range(iterations - 1):
        centre = attend(u, weight, direction(centre, 1))
    poses = squash(centre.permute(2, 0, 1))
    return Parents(poses, lengths(poses))


def direction(centre: Tensor, dim: int = -1) -> Tensor:
    """Scale vectors to length 1 along `dim`; zero stays zero, with a finite gradient."""
    return centre / (centre.square().sum(dim, keepdim=True) + EPSILON).sqrt()


def squash(centre: Tensor) -> Tensor:
    """Return |x| x / (1/2 + |x|²) along the last axis."""
    squared = centre.square().sum(-1, keepdim=True)
    return centre * (squared + EPSILON).sqrt() / (0.5 + squared)
