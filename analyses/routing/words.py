"""Words of `routing`: what its numbers say, and the captions of its figures."""

from __future__ import annotations

import numpy as np

from capsviz.analyses.routing import statistics
from capsviz.analyses.routing.statistics import NO_MAP, Statistics, spread
from capsviz.nn.quantity import words_of
from capsviz.statistics.words import number, sentences, strongest


def caption(result, part: str = "") -> str:
    """What a picture shows, with its numbers."""
    changed = "" if isinstance(result, Statistics) else _changed(result, ". ")
    return f"{changed[:1].upper()}{changed[1:]}{_caption(result, part)}"


def _caption(result, part: str) -> str:
    if part == "maps":
        return (
            f"Where the evidence for each {parent_of(result)} comes from, as {plain(result)} "
            "summed over types, with routing and with uniform couplings. "
            f"{whole(result)}{sentences(findings(result))}"
        )
    if part == "evidence":
        return (
            f"What the capsules of each type add to each {parent_of(result)}, {plain(result)}, "
            f"with routing and with uniform couplings. {whole(result)}{sentences(findings(result))}"
        )
    if part == "couplings":
        return (
            f"Routing of {result.n:,} test images of {result.dataset}. Left: the mean and the "
            "largest activation of each capsule. Middle and right: mean couplings of the images of "
            "each true class, for all capsules to every class and for each type to the true class."
        )
    if isinstance(result, Statistics):
        return f"Routing over a test set. {sentences(findings(result))}"
    return (
        "Routing of one image. Top: couplings by iteration, mean over the places of a capsule "
        f"type{'' if result.layer is None else ', in ' + layer(result)}. "
        "Bottom: effective parents, agreement of the votes, and activations. "
        f"{sentences(findings(result))}"
    )


def parent_of(result) -> str:
    """What a parent of the layer is called."""
    return "class" if result.layer is None else "parent type"


def child_of(result) -> str:
    """What a child of the layer is called, as couplings are kept of it."""
    return "capsule" if result.couplings.shape[1] == len(result.entropy_nats[0]) else "capsule type"


def layer(result) -> str:
    """A layer below the classes, and what its numbers are of."""
    return f"routed layer {result.layer}, by the types of its parents at all places"


def plain(result) -> str:
    """The evidence of one capsule, in signs."""
    return words_of(result.quantity)["plain"]


def whole(result) -> str:
    """What a routing's own evidence adds up to, a sentence; nothing of lengths along a pose."""
    if result.quantity is None:
        return ""
    places = "" if result.layer is None else " of the parents at all places"
    return f"All together they add up to {result.quantity['words']}{places}. "


def maps_title(result, shown: int, wide: bool) -> str:
    """Above maps of at most so many classes."""
    most = "longest" if result.layer is None else "most active"
    longest = f" ({shown} {most})" if len(result.classes) > shown else ""
    quantity, own = words_of(result.quantity), result.quantity is not None
    return (
        f"{_changed(result, chr(10))}evidence for each {parent_of(result)}{longest} by place: "
        f"{chr(10) if own and not wide else ''}{quantity['part']} "
        f"summed over types;{' ' if wide and not own else chr(10)}"
        f"below each map its sum Σ{', ' if own else ' = '}{quantity['whole']}"
        f"{'' if result.layer is None else (' ' if wide else chr(10)) + 'of all places'}"
    )


def evidence_title(result) -> str:
    """Above the evidence of capsules without places."""
    quantity = words_of(result.quantity)
    return (
        f"{_changed(result, chr(10))}evidence for each {parent_of(result)} by capsule, "
        f"{quantity['part']};\nΣ: {quantity['whole']}"
    )


def _changed(result, end: str) -> str:
    """What was changed in the network, if anything."""
    return f"{result.changed}{end}" if result.changed else ""


def findings(result) -> str:
    """What the numbers say, in a line or two."""
    if isinstance(result, Statistics):
        return statistics.findings(result)
    J = len(result.classes)
    effective = float(np.exp(result.entropy_nats[-1]).mean())
    both = (result.activations, result.uniform_activations)
    name, control = (strongest(result.classes, v) for v in both)
    largest = [float(v.max()) for v in both]
    sd = "" if result.coupling_sd is None else f" (sd about uniform {result.coupling_sd[-1]:.4f})"
    R = len(result.couplings)
    after = f"after {R} iterations a" if R > 1 else "a"
    who, what = f"predicted {name}", "activation"
    if result.layer is not None:
        who, what = f"{layer(result)}: {name} is the most active", "mean activation"
    text = (
        f"{who} ({what} {largest[0]:.3f}), with uniform couplings {control} "
        f"({largest[1]:.3f})\n{after} capsule has {effective:.3f} of {J} effective parents{sd}: "
        f"{spread(effective, J, even=bool(sd) and not result.coupling_sd[-1].any())}"
    )
    if result.maps is None:
        return f"{text}\n{NO_MAP}"
    difference = np.linalg.norm(result.maps - result.uniform_maps)
    return (
        f"{text}; the maps differ from those of uniform couplings by "
        f"{number(difference / np.linalg.norm(result.uniform_maps), '.1%')}"
    )
