"""What `wrap` found, with its evidence, and what can be done with it, in words."""

from __future__ import annotations

from typing import NamedTuple

from capsviz import discovery
from capsviz.tracing.needs import missing

OF_FILES = ("affnist", "curves")  # look at results of runs, and at no network


class Fact(NamedTuple):
    """One thing that was found, or given by hand, or missing."""

    name: str
    finding: str


def lacks(network) -> dict[str, list[str]]:
    """analysis -> what it needs that a network does not have; evaluating needs scores alone."""
    needs = {"evaluate": ()}
    for name in discovery.names("capsviz.analyses"):
        module = discovery.load("capsviz.analyses", name, what="analysis")
        if name not in OF_FILES:
            needs[name] = getattr(module, "NEEDS", ())
    return {name: missing(network, parts) for name, parts in needs.items()}


def written(network) -> str:
    """The report of a wrapped network."""
    count = sum(p.numel() for p in network.network.parameters())
    shape = ", ".join(map(str, network.recipe.image_shape))
    kind = type(network.network).__name__
    lines = [f"{kind}, {count:,} weights, images ({shape}), {network.recipe.classes} classes"]
    lines += [f"  {fact.name:<12}{fact.finding}" for fact in network.facts]
    left_out = lacks(network)
    lines.append(f"  {'can':<12}" + ", ".join(name for name, left in left_out.items() if not left))
    by_lack: dict[str, list[str]] = {}
    for name, left in left_out.items():
        if left:
            by_lack.setdefault(", ".join(left), []).append(name)
    reasons = "; ".join(f"{', '.join(names)} (no {left})" for left, names in by_lack.items())
    if reasons:
        lines.append(f"  {'cannot':<12}{reasons}")
    return "\n".join(lines)
