"""Check whether a network fits the needs of an analysis, and list measures fixed by a routing.

Needs are parts of a trace, "grid" (children have positions), "decode", "iterations" (their number
can be changed), "interventions" (couplings can be replaced) and "from_children" (children can be
replaced). An analysis without needs uses only scores, so that networks without capsules suffice.
`required` adds "classes", and "images" unless the analysis has `any_input`.
"""

from collections.abc import Sequence
from typing import Any

from capsviz.discovery import unknown
from capsviz.tracing.network import abilities
from capsviz.tracing.record import ALIASES, KEEP

WORDS = {
    "images": "images (its inputs are of another kind)",
    "classes": "classes (its capsules are not classes)",
    "capsules": "capsules",
    "grid": "positions of its capsules (its grid is None)",
    "decode": "decoder",
    "iterations": "iterations that can be changed",
    "interventions": "couplings that can be replaced",
    "from_children": "way from other children to its classes (`from_children`)",
}

# Routing -> columns of the leaderboard that follow from its definition, whatever its network has
# learned. With uniform couplings, all classes have equal activations in self-routing.
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
    """Return the names of the needs that a network lacks, without running it."""
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
    """Return all needs of an analysis: "classes", "images" unless it has `any_input`, its own."""
    return (*("images",) * (not analysis.any_input), "classes", *analysis.needs)


def require(model: Any, needs: Sequence[str], what: str) -> None:
    """Raise ValueError if a network lacks the needs of an analysis."""
    if lacks := missing(model, needs):
        words = ", no ".join(WORDS.get(name, name) for name in lacks)
        raise ValueError(
            f"this network has no {words}: {what} needs {'one' if lacks == ['decode'] else 'them'}"
        )


def reason(model: Any, measure: str) -> str | None:
    """Return why a measure follows from a network's routing by definition; None if it does not."""
    name = abilities(model).routing
    return REASONS[name] if name and measure in BY_DEFINITION.get(name, ()) else None
