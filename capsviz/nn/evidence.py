"""What each vote adds to its parent, by the routing's own decomposition or along the pose."""

from inspect import signature

import torch
from torch import Tensor

from capsviz.nn.functional import agreement, lengths
from capsviz.nn.routing import Routing, get


def evidence(
    name: str, votes: Tensor, routing: Routing, activations: Tensor, **known: Tensor | float
) -> Tensor:
    """What each vote adds to what its parent's activation is read from: `routing.quantity(name)`.

    Parameters
    ----------
    name         of the routing.
    votes        (B, [Q,] I, J, E).
    routing      what `route` gave for them.
    activations  (B, [Q,] I) of the children, slot by slot where places see some of them.
    known        what the routing learned, and its options, by name.

    Returns
    -------
    (B, [Q,] I, J), after the last iteration of `routing`. By default the length that a weighted
    vote has along its parent's pose.
    """
    module = get(name)
    if hasattr(module, "evidence"):
        takes = signature(module.evidence).parameters
        known = {key: value for key, value in known.items() if key in takes}
        return module.evidence(votes, routing, activations, **known)
    poses = routing.poses[-1]
    along = agreement(votes, poses / lengths(poses)[..., None])
    couplings = routing.couplings[-1]
    weights = getattr(module, "weights", None)
    return (couplings if weights is None else weights(couplings, activations)) * along


def by_round(evidence, votes: Tensor, routing: Routing, activations: Tensor) -> Tensor:
    """A layer's `evidence` after each iteration: (R, B, [Q,] I, J)."""
    rounds = range(1, len(routing.couplings) + 1)
    each = [Routing(*(part[:r] for part in routing)) for r in rounds]
    return torch.stack([evidence(votes, one, activations) for one in each])
