"""What an analysis needs of a network, told before anything is computed.

An analysis says so by NEEDS, a tuple of parts of a trace, "grid" (its children have places),
"decode", "iterations" (more than one pass can be asked for), "interventions" (it takes other
couplings) and "from_children" (its children can be replaced). None at all: scores are enough, and
networks without capsules will do.
"""

from __future__ import annotations

from collections.abc import Sequence

from capsviz.tracing.outputs import reconstructs
from capsviz.tracing.record import ALIASES, PARTS

WORDS = {
    "capsules": "capsules",
    "grid": "places of its capsules (its grid is None)",
    "decode": "decoder",
    "iterations": "iterations that can be asked for",
    "interventions": "couplings that can be replaced",
    "from_children": "way from other children to its classes (`from_children`)",
}


def missing(model, needs: Sequence[str]) -> list[str]:
    """Those of the needs that a network does not have, by name; nothing is computed for it."""
    if not needs:
        return []
    if not hasattr(model, "look"):
        return ["capsules"]
    parts = set(getattr(model, "parts", {*PARTS, *ALIASES}))  # a wrapped network knows its own
    parts |= {ALIASES[name] for name in ALIASES if name in parts}
    replaceable = getattr(model, "replaceable", {"couplings", "iterations", "children"})
    presence = {
        "grid": getattr(model, "grid", None) is not None,
        "decode": reconstructs(model),
        "iterations": "iterations" in replaceable and getattr(model, "iterations", 1) is not None,
        "interventions": "couplings" in replaceable,
        "from_children": hasattr(model, "from_children") and "children" in replaceable,
    }
    return [name for name in needs if not presence.get(name, name in parts)]


def require(model, needs: Sequence[str], what: str) -> None:
    """ValueError, in one line, for a network that lacks what an analysis needs."""
    if lacks := missing(model, needs):
        words = ", no ".join(WORDS.get(name, name) for name in lacks)
        raise ValueError(
            f"this network has no {words}: {what} needs {'one' if lacks == ['decode'] else 'them'}"
        )
