"""Self-routing: each child decides by itself, from its own pose (Hahn, Pyeon & Kim 2019).

Self-Routing Capsule Networks, NeurIPS 2019: a small classifier of the child's pose says where it
belongs; nobody has to agree.
"""

import torch
from torch import Tensor

from capsviz.nn.computation import is_literal
from capsviz.nn.quantity import Quantity
from capsviz.nn.routing import Parents, Routing, check_votes, like_logits, stack
from capsviz.nn.routing._attend import batch_last
from capsviz.nn.routing._chosen import chosen, product
from capsviz.nn.routing._parts import check_shape, exact, per_mass, require, shares, summed

__all__ = ["evidence", "fused", "parameters", "route", "weights"]
CHILDREN = "batch_norm"  # see nn/children.py
OBJECTIVE = "cross_entropy"  # see nn/objectives.py
QUANTITY = Quantity(r"$a_i c_{ij}/\Sigma_k a_k$", "a c / Σ a", "the activation", "the activation")

weights = shares


def parameters(
    children: int, parents: int, child_dimensions: int, parent_dimensions: int
) -> dict[str, Tensor]:
    """`weight` (I, J, D) and `bias` (I, J) of the children's classifiers, at first zero."""
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

    Logits weight_ij · u_i + bias_ij, couplings c their softmax over
    parents, activations Σ_i a_i c_ij / Σ_i a_i, poses Σ_i a_i c_ij û_ij / Σ_i a_i c_ij.

    Parameters
    ----------
    votes        (B, I, J, E) what child i predicts for parent j.
    activations  (B, I) of the children, from 0 on.
    children     (B, I, D) their poses u.
    weight       (I, J, D) and
    bias         (I, J) of the classifiers; None for zeros: uniform couplings.
    couplings    (B, I, J), or a shape that broadcasts to it, to use in place of the softmax.

    Returns
    -------
    Routing with one entry. Activations sum to 1 over J, or to 0 where no child is active.

    Raises
    ------
    ValueError  if shapes do not fit, or activations or children are missing.
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
    """Parents equal to those of `route` on the votes `matrices @ children`, never held.

    A parent's pose is a sum of weighted votes, see `_chosen`.

    Parameters
    ----------
    children  (B, I, D) child capsules, from which the couplings come too.
    matrices  (I, J, E, D) what turns child i into its vote for parent j.
    others    as `route` has them.

    Raises
    ------
    ValueError  if shapes do not fit, or activations are missing.
    """
    u, matrices = batch_last(children, matrices)
    J = matrices.shape[1]
    active = _check(activations, children, weight, bias, J).to(u).T
    mass, first = chosen(u, matrices, classified(u, weight, bias, J), active)
    poses = per_mass(first, mass[:, None])
    return Parents(poses.permute(2, 0, 1), per_mass(mass, active.sum(0)).T)


def _check(
    activations: Tensor | None,
    children: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    parents: int,
) -> Tensor:
    """Return the activations; raise ValueError for missing ones, or shapes that do not fit."""
    active = require("self_routing", "activations", activations, "(B, I)")
    B, I, D = children.shape
    check_shape("activations", active, "B, I", (B, I))
    check_shape("weight", weight, "I, J, D", (I, parents, D))
    check_shape("bias", bias, "I, J", (I, parents))
    return active


def classified(children: Tensor, weight: Tensor | None, bias: Tensor | None, J: int) -> Tensor:
    """Logits (I, J, B) of children (I, D, B)."""
    if weight is None:
        logits = children.new_zeros(len(children), J, children.shape[2])
    else:
        multiply = torch.matmul if is_literal() else product
        logits = multiply(weight.to(children), children)
    return logits if bias is None else logits + bias.to(logits)[..., None]


def evidence(
    votes: Tensor,
    routing: Routing,
    activations: Tensor,
    *,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Return what each child adds to its parent's activation, a_i c_ij / Σ_i a_i: (B, I, J)."""
    mass = routing.couplings[-1] * activations[..., None]
    return per_mass(mass, activations.sum(-1)[..., None, None])
