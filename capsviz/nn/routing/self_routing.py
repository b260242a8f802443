"""Self-routing: each child decides by itself, from its own pose (Hahn, Pyeon & Kim 2019).

Self-Routing Capsule Networks, NeurIPS 2019. A small classifier of the child's pose gives its
couplings, without agreement. Couplings do not depend on votes, so `fused` weights a child before
its votes are computed, and a parent's sum is one matrix product.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from capsviz.nn.computation import without_autocast
from capsviz.nn.quantity import Quantity
from capsviz.nn.routing import Parents, Routing, check_votes, like_logits, stack
from capsviz.nn.routing._attend import batch_last
from capsviz.nn.routing._parts import (
    check_shape,
    exact,
    in_blocks,
    per_mass,
    require,
    shares,
    spaces,
    summed,
)

CHILDREN = "batch_norm"  # see nn/children.py
OBJECTIVE = "cross_entropy"  # see nn/functional.py
QUANTITY = Quantity(r"$a_i c_{ij}/\Sigma_k a_k$", "a c / Σ a", "the activation", "the activation")

weights = shares


def parameters(
    children: int, parents: int, child_dimensions: int, parent_dimensions: int
) -> dict[str, Tensor]:
    """Return `weight` (I, J, D) and `bias` (I, J) of the children's classifiers, zero."""
    return {
        "weight": torch.zeros(children, parents, child_dimensions),
        "bias": torch.zeros(children, parents),
    }


@exact
def route(
    votes: Tensor,
    *,
    activations: Tensor | None = None,
    children: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    couplings: Tensor | None = None,
) -> Routing:
    """Couple children to parents by a linear classifier of each child's pose, in one pass.

    Logits are weight_ij · u_i + bias_ij, and couplings c_ij their softmax over parents. Poses are
    Σ_i a_i c_ij û_ij / Σ_i a_i c_ij. Activations, Σ_i a_i c_ij / Σ_i a_i, sum to 1 over J.

    Parameters
    ----------
    votes, activations, children, couplings: as every routing takes them (`capsviz.nn.routing`)
    weight, bias  (I, J, D) and (I, J) of the classifiers; None for zeros: uniform couplings.
    """
    check_votes(votes, 1)
    B, I, J, _ = votes.shape
    u = require("self_routing", "poses as children", children, "(B, I, D)")
    check_shape("children", u, "B, I, D", (B, I, u.shape[-1]))
    active = _check(activations, u, weight, bias, J).to(votes)
    logits = classified(u.to(votes).permute(1, 2, 0), weight, bias, J).permute(2, 0, 1)
    coupling = logits.softmax(2) if couplings is None else like_logits(couplings, logits)
    mass = coupling * active[..., None]
    poses = summed(per_mass(mass, mass.sum(1, keepdim=True)), votes)
    presence = per_mass(mass.sum(1), active.sum(1, keepdim=True))
    return stack([(logits, coupling, poses, presence)])


@exact
def fused(
    children: Tensor,
    matrices: Tensor,
    /,
    *,
    activations: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> Parents:
    """Return the result of `route` for the votes `matrices @ children`."""
    u, matrices = batch_last(children, matrices)
    J = matrices.shape[1]
    active = _check(activations, children, weight, bias, J).to(u).T
    weights = classified(u, weight, bias, J).softmax(1) * active[:, None]
    mass = weights.sum(0)
    poses = per_mass(_Sum.apply(u, matrices, weights), mass[:, None])
    return Parents(poses.permute(2, 0, 1), per_mass(mass, active.sum(0)).T)


def _check(activations, children: Tensor, weight, bias, parents: int) -> Tensor:
    """Return the activations; raise ValueError for missing ones, or shapes that do not fit."""
    active = require("self_routing", "activations", activations, "(B, I)")
    B, I, D = children.shape
    check_shape("activations", active, "B, I", (B, I))
    check_shape("weight", weight, "I, J, D", (I, parents, D))
    check_shape("bias", bias, "I, J", (I, parents))
    return active


def classified(children: Tensor, weight: Tensor | None, bias: Tensor | None, J: int) -> Tensor:
    """Return logits (I, J, B) of children (I, D, B)."""
    if weight is None:
        logits = children.new_zeros(len(children), J, children.shape[2])
    else:
        logits = weight.to(children) @ children
    return logits if bias is None else logits + bias.to(logits)[..., None]


class _Sum(torch.autograd.Function):
    """The sum Σ_i w_ij û_ij (j, e, b) of votes, with weights w that do not depend on the votes.

    Axes of u, W and w are (i, d, b), (i, j, e, d), (i, j, b): the batch last.
    """

    @staticmethod
    def forward(ctx, u, matrices, weights):
        I, J, E, D = matrices.shape
        total = u.new_zeros(J, E, u.shape[2])
        pieces = in_blocks(I, J * D * u.shape[2] * u.element_size(), u.device)
        for block, heavy in spaces(pieces, 1, u, J * D * u.shape[2]):
            heavy = heavy.view(J, len(heavy), D, u.shape[2])
            part = weights[block].transpose(0, 1).contiguous()  # (j, n, b)
            torch.mul(part[:, :, None], u[block], out=heavy)
            total.baddbmm_(matrices[block].permute(1, 2, 0, 3).flatten(2), heavy.flatten(1, 2))
        ctx.save_for_backward(u, matrices, weights)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, dtotal):
        with without_autocast(dtotal.device):
            return _gradients(*ctx.saved_tensors, dtotal)


def _gradients(u, matrices, weights, dtotal) -> tuple[Tensor, ...]:
    """Return the gradients of u, W and w; the last recomputes the votes."""
    I, J, E, D = matrices.shape
    w = matrices.reshape(I, J * E, D)
    du, dweights = torch.empty_like(u), torch.empty_like(weights)
    dw = w.new_empty(I, D, J * E)  # twice as fast with MKL in this shape
    pieces = in_blocks(I, J * E * u.shape[2] * u.element_size(), u.device)
    for block, votes in spaces(pieces, 1, u, J, E, u.shape[2]):
        torch.bmm(w[block], u[block], out=votes.flatten(1, 2))
        dweights[block] = votes.mul_(dtotal).sum(2)
        dvotes = torch.mul(weights[block][:, :, None], dtotal, out=votes).flatten(1, 2)
        torch.bmm(w[block].transpose(1, 2), dvotes, out=du[block])
        torch.bmm(u[block], dvotes.transpose(1, 2), out=dw[block])
    return du, dw.view(I, D, J, E).permute(0, 2, 3, 1), dweights


def evidence(votes: Tensor, routing: Routing, activations: Tensor) -> Tensor:
    """Return what each child adds to its parent's activation, a_i c_ij / Σ_i a_i: (B, I, J)."""
    mass = routing.couplings[-1] * activations[..., None]
    return per_mass(mass, activations.sum(-1)[..., None, None])
