"""Dynamic routing by agreement (Sabour, Frosst & Hinton 2017).

`route` works on votes that exist and returns everything that happened; `fused` gives the same poses
straight from the children, without ever holding the votes (see `_attend`).
"""

from collections.abc import Sequence

from torch import Tensor, einsum, zeros

from capsviz.nn.functional import leaky_softmax, lengths, squash
from capsviz.nn.routing import (
    Parents,
    Routing,
    check_iterations,
    check_votes,
    like_logits,
    of_round,
    stack,
)
from capsviz.nn.routing._attend import attend, batch_last
from capsviz.nn.routing._parts import check_shape, exact


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

    Procedure 1 of arXiv:1710.09829. Couplings are a softmax over parents, so each child spreads one
    unit of evidence; images in a batch do not interact; gradients flow through all iterations
    unless `detach` is set.

    Parameters
    ----------
    votes       (B, I, J, E) what child i predicts for parent j.
    iterations  of agreement, at least 1; the paper uses 3.
    bias        (J, E) added to every parent's input in each iteration, as the authors' code does.
    couplings   (B, I, J), or a shape that broadcasts to it, to use in every iteration in place of
                the softmax of the logits: an intervention; or a list, of one for each iteration,
                or None for its own. The logits are still recorded.
    detach      let gradients flow through the last iteration only, its couplings as constants.
    leaky       couple each child also to no parent: one more logit, fixed at zero, in its softmax,
                whose share is dropped (`functional.leaky_softmax`, as the authors' code does).

    Returns
    -------
    Routing with logits and couplings (R, B, I, J) and poses (R, B, J, E); activations (R, B, J)
    are their lengths. Entry 1 of R holds zero logits and uniform couplings, 1/J or, if leaky,
    1/(J + 1); entry R is the result.

    Raises
    ------
    ValueError  if `votes` is not four-dimensional or `iterations` < 1.
    """
    check_votes(votes, iterations)
    B, I, J, E = votes.shape
    check_shape("bias", bias, "J, E", (J, E))
    logits = zeros(B, I, J, dtype=votes.dtype, device=votes.device)  # b_ij
    history = []
    for iteration in range(iterations):
        replaced = of_round(couplings, iteration)
        if replaced is None:
            coupling = leaky_softmax(logits, 2) if leaky else logits.softmax(2)  # c_ij
        else:
            coupling = like_logits(replaced, logits)
        total = einsum("bij,bije->bje", coupling, votes)  # s_j
        poses = squash(total if bias is None else total + bias.to(total))  # v_j
        history.append((logits, coupling, poses))
        if iteration + 1 < iterations:
            agreement = einsum("bije,bje->bij", votes, poses)
            logits = logits + (agreement.detach() if detach else agreement)
    return stack(history)


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
    """Return what `route` finds on the votes `weight @ children`, in float32 at least.

    Parameters
    ----------
    children    (B, I, D) child capsules.
    weight      (I, J, E, D) what turns child i into its vote for parent j.
    iterations, bias, detach, leaky
                as in `route`.

    Returns
    -------
    Parents with poses (B, J, E) and their lengths (B, J).

    Raises
    ------
    ValueError  if shapes do not fit or `iterations` < 1.
    """
    check_iterations(iterations)
    u, weight = batch_last(children, weight)
    check_shape("bias", bias, "J, E", tuple(weight.shape[1:3]))
    summed = None  # v_1 + ... + v_t: the logits are its products with the votes
    for iteration in range(iterations):
        total = attend(u, weight, summed, leaky=leaky, detach=detach)  # s_j
        poses = squash(total if bias is None else total + bias.to(u)[:, :, None], 1)  # v_j
        if iteration + 1 < iterations:
            summed = poses if summed is None else summed + poses
            summed = summed.detach() if detach else summed
    poses = poses.permute(2, 0, 1).contiguous()
    return Parents(poses, lengths(poses))
