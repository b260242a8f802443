"""Dynamic routing by agreement (Sabour, Frosst & Hinton 2017).

`route` takes votes and returns all iterations. `fused` computes the same poses from the children,
without storing the votes (see `_attend`).
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from capsviz.nn.functional import agreement, leaky_softmax, lengths, squash
from capsviz.nn.routing import Parents, Routing, check_iterations, check_votes, iterate
from capsviz.nn.routing._attend import attend, batch_last
from capsviz.nn.routing._parts import check_shape, exact, summed


@exact
def route(
    votes: Tensor,
    *,
    iterations: int = 3,
    bias: Tensor | None = None,
    couplings: Tensor | Sequence[Tensor | None] | None = None,
    detach: bool = False,
    leaky: bool = False,
) -> Routing:
    """Couple children to parents by agreement.

    Procedure 1 of arXiv:1710.09829. Couplings are a softmax over parents, so those of a child sum
    to 1. Images in a batch do not interact. Gradients flow through all iterations unless `detach`
    is set.

    Parameters
    ----------
    votes, iterations, couplings: as every routing takes them (`capsviz.nn.routing`)
    bias    (J, E) added to every parent's input in each iteration, as in the authors' code.
    detach  let gradients flow through the last iteration only, with its couplings as constants.
    leaky   allow each child to couple to no parent (`functional.leaky_softmax`, as in the authors'
            code).

    Returns
    -------
    Routing with logits and couplings (R, B, I, J) and poses (R, B, J, E); activations (R, B, J)
    are their lengths. The first iteration has zero logits and uniform couplings, 1/J or, if leaky,
    1/(J + 1); the last one is the result.
    """
    check_votes(votes, iterations)
    check_shape("bias", bias, "J, E", tuple(votes.shape[2:]))

    def parents(coupling: Tensor, iteration: int):
        total = summed(coupling, votes)  # s_j
        poses = squash(total if bias is None else total + bias.to(total))  # v_j
        return (poses,), (poses,)

    def logits(before: Tensor, poses: Tensor):  # b_ij
        agreed = agreement(votes, poses)
        return before + (agreed.detach() if detach else agreed)

    shares = partial(leaky_softmax if leaky else torch.softmax, dim=2)  # c_ij of b_ij
    return iterate(votes, iterations, couplings, shares=shares, parents=parents, logits=logits)


@exact
def fused(
    children: Tensor,
    weight: Tensor,
    *,
    iterations: int = 3,
    bias: Tensor | None = None,
    detach: bool = False,
    leaky: bool = False,
) -> Parents:
    """Return the result of `route` for the votes `weight @ children`."""
    check_iterations(iterations)
    u, weight = batch_last(children, weight)
    check_shape("bias", bias, "J, E", tuple(weight.shape[1:3]))
    query = None  # v_1 + ... + v_t: the logits are its products with the votes
    for iteration in range(iterations):
        total = attend(u, weight, query, leaky=leaky, detach=detach)  # s_j
        poses = squash(total if bias is None else total + bias.to(u)[:, :, None], 1)  # v_j
        if iteration + 1 < iterations:
            query = poses if query is None else query + poses
            query = query.detach() if detach else query
    poses = poses.permute(2, 0, 1).contiguous()
    return Parents(poses, lengths(poses))
