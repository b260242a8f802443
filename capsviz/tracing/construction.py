"""What a routing does by construction, whatever its network has learned: no result of training."""

from __future__ import annotations

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
    capsules = getattr(model, "capsules", None) or [*(getattr(model, "layers", None) or [None])][-1]
    name = getattr(capsules, "routing_name", None) or ""
    return REASONS[name] if measure in BY_CONSTRUCTION.get(name, ()) else None
