"""Inverted dot-product attention: parents compete for children (Tsai et al. 2020).

Tsai, Srivastava, Goh & Salakhutdinov: Capsules with Inverted Dot-Product Attention Routing,
arXiv:2002.04764. Capsules have poses with layer normalisation and no activation; a linear head
computes the class scores from the poses.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from capsviz.nn.functional import agreement
from capsviz.nn.quantity import Quantity
from capsviz.nn.routing import Parents, Routing, check_iterations, check_votes, iterate
from capsviz.nn.routing._attend import attend, batch_last
from capsviz.nn.routing._parts import check_shape, exact, summed

CHILDREN = "layer_norm"  # see nn/children.py
OBJECTIVE = "cross_entropy"  # see nn/functional.py
QUANTITY = Quantity(
    r"$c_{ij}\,\hat u_{ij}\cdot g_j$",
    "c (û·g), g being the head through the layer normalisation",
    "score whose softmax is the activation, less a constant",
    "the score whose softmax over parents is the activation, less a constant of all parents",
)

OF_CLASSES = ("head_weight", "head_bias")  # hidden layers have none
NORM_EPSILON = 1e-5  # of the layer normalisation, as in the authors' code


def parameters(
    children: int, parents: int, child_dimensions: int, parent_dimensions: int
) -> dict[str, Tensor]:
    """Return `gain`, `shift` (E) of the layer norm, and `head_weight` (E), `head_bias` of the head.

    The head is initialised at random like a linear layer.
    """
    bound = 1 / math.sqrt(parent_dimensions)
    return {
        "gain": torch.ones(parent_dimensions),
        "shift": torch.zeros(parent_dimensions),
        "head_weight": torch.empty(parent_dimensions).uniform_(-bound, bound),
        "head_bias": torch.zeros(()),
    }


@exact
def route(
    votes: Tensor,
    *,
    iterations: int = 3,
    gain: Tensor | None = None,
    shift: Tensor | None = None,
    head_weight: Tensor | None = None,
    head_bias: Tensor | None = None,
    couplings: Tensor | None = None,
) -> Routing:
    """Couple children to parents by the agreement of votes with the parents of the last iteration.

    As in arXiv:2002.04764, logits û_ij · p_j / √E are recomputed in each iteration, not
    accumulated. Activations are the softmax over parents of the head's scores, and 1 without a
    head.

    Parameters
    ----------
    votes, iterations, couplings: as every routing takes them (`capsviz.nn.routing`)
    gain, shift  (E) of the layer normalisation; None for ones, zeros.
    head_weight  (E) of the head, which maps a pose to a score; None in hidden layers.
    head_bias    () or (1), added to the scores; it does not change their softmax.
    """
    check_votes(votes, iterations)
    E = votes.shape[3]
    _check(E, gain=gain, shift=shift, head_weight=head_weight)

    def parents(coupling: Tensor, iteration: int):
        poses = normalised(summed(coupling, votes), gain, shift)
        return (poses, presence(poses, head_weight, head_bias)), (poses,)

    def logits(_, poses: Tensor):
        return agreement(votes, poses) / math.sqrt(E)

    return iterate(votes, iterations, couplings, parents=parents, logits=logits)


@exact
def fused(
    children: Tensor,
    weight: Tensor,
    *,
    iterations: int = 3,
    gain: Tensor | None = None,
    shift: Tensor | None = None,
    head_weight: Tensor | None = None,
    head_bias: Tensor | None = None,
) -> Parents:
    """Return the result of `route` for the votes `weight @ children`."""
    check_iterations(iterations)
    u, weight = batch_last(children, weight)
    E = weight.shape[2]
    _check(E, gain=gain, shift=shift, head_weight=head_weight)
    query = None
    for _ in range(iterations):
        poses = normalised(attend(u, weight, query).permute(2, 0, 1), gain, shift)
        query = (poses / math.sqrt(E)).permute(1, 2, 0).contiguous()
    return Parents(poses, presence(poses, head_weight, head_bias))


def _check(E: int, **vectors: Tensor | None) -> None:
    for name, inputs in vectors.items():
        check_shape(name, inputs, "E", (E,))


def normalised(total: Tensor, gain: Tensor | None, shift: Tensor | None) -> Tensor:
    """Apply layer normalisation over the last axis, with gain and shift."""
    gain, shift = (None if one is None else one.to(total) for one in (gain, shift))
    return layer_norm(total, total.shape[-1:], gain, shift, NORM_EPSILON)


def presence(poses: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return activations (B, J): the softmax of the head's scores, 1 without a head."""
    if weight is None:
        return torch.ones_like(poses[..., 0])
    scores = (poses * weight.to(poses)).sum(-1)
    return (scores if bias is None else scores + bias.to(poses).reshape(())).softmax(-1)


def evidence(
    votes: Tensor,
    routing: Routing,
    activations: Tensor | None = None,
    *,
    gain: Tensor | None = None,
    shift: Tensor | None = None,
    head_weight: Tensor | None = None,
    head_bias: Tensor | None = None,
) -> Tensor:
    """Return what each vote adds to the head's score of its parent: (B, I, J).

    The sum over children is exactly the score minus (head_weight · shift + head_bias). Without a
    head, return what each vote adds to the parent's input along its pose.
    """
    weighted = routing.couplings[-1][..., None] * votes
    if head_weight is None:
        pose = routing.poses[-1]
        return agreement(weighted, pose / pose.norm(dim=-1, keepdim=True).clamp_min(1e-12))
    total = weighted.sum(-3)
    std = (total.var(-1, unbiased=False) + NORM_EPSILON).sqrt()
    reading = head_weight if gain is None else head_weight * gain
    return (weighted * (reading - reading.mean())).sum(-1) / std[..., None, :]
