"""What a routing does by construction, whatever its network has learned: no result of training."""

from __future__ import annotations

from torch import nn

# Routing -> what is measured of it that says what it is, by column of the leaderboard. Couplings of
# uniform routing are even; activations of self-routing are shares of couplings, so that even ones
# read nothing.
BY_CONSTRUCTION = {
    "uniform": ("transplant", "parents", "even", "shuffled", "matched"),
    "self_routing": ("transplant", "even", "matched"),
}
REASONS = {
    "uniform": "couplings of uniform routing are even",
    "self_routing": "activations of self-routing are shares of its couplings, in which votes have "
    "no say",
}


def reason(model, measure: str) -> str | None:
    """Why a measure of a network says what its routing is, in words; None where it is a result."""
    name = routing_name(model)
    return REASONS[name] if name and measure in BY_CONSTRUCTION.get(name, ()) else None


def routing_name(model) -> str | None:
    """The routing of the class capsules, by the name of its file; None for one of its own."""
    layers = getattr(model, "layers", None)
    last = layers[-1] if isinstance(layers, nn.ModuleList | list | tuple) and layers else None
    return getattr(getattr(model, "capsules", None) or last, "routing_name", None)
