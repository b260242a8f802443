"""Needs of an analysis, and measures that follow from the definition of a routing.

An analysis names its needs: parts of a trace, "grid" (its children have positions), "decode",
"iterations" (another number can be asked for), "interventions" (couplings can be replaced) and
"from_children" (children can be replaced). With none at all, scores are enough, and networks
without capsules will do. `required` adds classes, and images unless it has `any_input`.
"""

from collections.abc import Sequence
from typing import Any

from capsviz.discovery import unknown
from capsviz.tracing.network import abilities
from capsviz.tracing.record import ALIASES, KEEP

WORDS = {
    "images": "images to look at (its inputs are others)",
    "classes": "classes (its capsules are others)",
    "capsules": "capsules",
    "grid": "positions of its capsules (its grid is None)",
    "decode": "decoder",
    "iterations": "iterations that can be asked for",
    "interventions": "couplings that can be replaced",
    "from_children": "way from other children to its classes (`from_children`)",
}

# Routing -> measures that follow from its definition, whatever its network has learned, by column
# of the leaderboard. Couplings of uniform routing are uniform; activations of self-routing are
# shares of couplings, so that with uniform couplings all classes are equal.
BY_DEFINITION = {
    "uniform": ("donor's class", "effective parents", "uniform couplings", "shuffled", "matched"),
    "self_routing": ("donor's class", "uniform couplings", "matched"),
}
REASONS = {
    "uniform": "couplings of uniform routing are uniform",
    "self_routing": "activations of self-routing are shares of its couplings, in which votes have "
    "no say",
}


def missing(model: Any, needs: Sequence[str]) -> list[str]:
    """Return the needs that a network does not have, by name; nothing is computed."""
    able = abilities(model)
    if not able.has_capsules and {*needs} - {"images", "classes"}:
        return ["capsules"]
    presence = {
        "images": able.draw is None,
        "classes": able.config.get("classes", 1) is not None,
        "grid": able.grid is not None,
        "decode": able.decodes,
        "iterations": able.replaceable_iterations,
        "interventions": able.replaceable_couplings,
        "from_children": able.replaceable_children,
    }
    parts = (*KEEP, *ALIASES)
    for name in {*needs} - {*presence, *parts}:
        raise ValueError(unknown("need of an analysis", name, sorted({*presence, *parts})))
    return [name for name in needs if not presence.get(name, able.gives(name))]


def required(analysis: Any) -> tuple[str, ...]:
    """Return the needs of an analysis: classes too, and images unless it measures any input."""
    return (*("images",) * (not analysis.any_input), "classes", *analysis.needs)


def require(model: Any, needs: Sequence[str], what: str) -> None:
    """Raise ValueError, in one line, for a network that lacks what an analysis needs."""
    if lacks := missing(model, needs):
        words = ", no ".join(WORDS.get(name, name) for name in lacks)
        raise ValueError(
            f"this network has no {words}: {what} needs {'one' if lacks == ['decode'] else 'them'}"
        )


def reason(model: Any, measure: str) -> str | None:
    """Return why a measure follows from a network's routing; None if it is a result."""
    name = abilities(model).routing
    return REASONS[name] if name and measure in BY_DEFINITION.get(name, ()) else None
