"""Words of `faithfulness`: what its numbers say, and the captions of its figures."""

from __future__ import annotations

import numpy as np

from capsviz.statistics.words import sentences

ROUTED, UNIFORM = "routing map", "routing map, uniform"
TARGETS = {"read": "the class that is read", "true": "the true class"}
CONTROLS = ("ink", "|u| map")  # as far as a map gets that knows nothing of the class


def parts(result) -> tuple[str, ...]:
    """Names of its pictures."""
    return ("", "curves")


def _named(result) -> str:
    return f"the class {result.classes[result.target]}"


def caption(result, part="") -> str:
    """What a picture shows, with its numbers."""
    many = hasattr(result, "gap")
    if part == "curves":
        text = (
            f"Score of {TARGETS[result.target] if many else _named(result)} when "
            "pixels are removed, or alone are shown, in the order of a map."
        )
        if many:
            bands = f"Means of {result.n:,} {result.dataset} images; bands: 95 % intervals."
            return f"{text} {bands} {sentences(chr(10).join(verdicts(result)))}".strip()
        return f"{text} {sentences(_areas(result))} One image proves nothing."
    if many:
        text = (
            f"Faithfulness of maps over {result.n:,} {result.dataset} images: area under insertion "
            f"less deletion, of the score of {TARGETS[result.target]}; infidelity, the share of "
            "squared losses by black squares that a map leaves unexplained; and rank correlation "
            f"of a map with itself after layers have got random weights ({result.sanity.n} draws). "
            f"Bars: 95 % intervals.{_routed(result)}"
        )
        return " ".join([text, *map(sentences, [*verdicts(result), *result.left_out])])
    text = (
        f"Maps of one image for class {result.classes[result.target]}, each on its own colour "
        "scale; below them the same maps of the network with random weights in all layers, with "
        "the rank correlation ρ of the two. Numbers: areas of deletion and insertion, infidelity."
        f"{_routed(result)} One image proves nothing."
    )
    return " ".join([text, *map(sentences, result.left_out)])


def _routed(result) -> str:
    """What the routing map shows, where it is no length along a pose."""
    if result.quantity is None:
        return ""
    quantity = result.quantity
    return f" The routing map shows {quantity['plain']}, which adds up to {quantity['words']}."


def _areas(result) -> str:
    """Of one image, the area of the routing map, or of the first, and of its controls."""
    gap = dict(zip(result.names, result.insertion_area - result.deletion_area, strict=True))
    few = [name for name in (ROUTED, UNIFORM, *CONTROLS, "random order") if name in gap]
    listed = "; ".join(f"{name} {gap[name]:.3f}" for name in few)  # names hold commas
    return f"area under insertion less deletion: {listed}"


def findings(result) -> str:
    """What the numbers say, in a few lines."""
    lines = _of_many(result) if hasattr(result, "gap") else _of_one(result)
    return "\n".join([*lines, *result.left_out])


def _of_one(result) -> list[str]:
    name = result.classes[result.target]
    gap = result.insertion_area - result.deletion_area
    areas = _listed(result.names, [f"{value:.3f}" for value in gap])
    errors = _listed(result.names, [f"{value:.2f}" for value in result.infidelity])
    kept = [
        f"{one} {value:.2f}"
        for one, value in zip(result.names, result.correlation, strict=True)
        if np.isfinite(value)
    ]
    return [
        f"area of insertion less deletion, of the activation of class {name}: {areas}",
        f"infidelity: {errors}",
        f"rank correlation with the map of random weights: {', '.join(kept)}",
        "one image proves nothing: see --n",
    ]


def _of_many(result) -> list[str]:
    areas = _listed(result.names, [f"{one:.3f}" for one in result.gap])
    errors = _listed(result.names, [f"{one:.2f}" for one in result.infidelity])
    kept = [
        f"{name} {one[-1]:.2f}"
        for name, one in zip(result.names, result.sanity, strict=True)
        if np.isfinite(one.value[-1])
    ]
    return [
        f"{result.n:,} {result.dataset} images, area of insertion less deletion, of the score of "
        f"{TARGETS[result.target]}: {areas}",
        *verdicts(result),
        f"infidelity: {errors}",
        "rank correlation of a map with itself when all layers are random "
        f"({result.sanity.n} draws of weights): {', '.join(kept)}",
    ]


def verdicts(result) -> list[str]:
    """What the routing map adds to its controls, as far as paired intervals tell."""
    if result.routed_less is None:
        return []
    clauses = []
    less = dict(zip(result.names, result.routed_less, strict=True))
    for other in (UNIFORM, *CONTROLS):
        if other not in less:
            continue
        one = less[other]
        rival = {UNIFORM: "uniform couplings", "ink": "the order by ink"}.get(other, f"the {other}")
        if one.low > 0:
            clauses.append(f"ahead of {rival} ({one:.3f})")
        elif one.high < 0:
            clauses.append(f"behind {rival} ({one:.3f})")
        else:
            clauses.append(f"not told from {rival} ({one:.3f})")
    known = [less[other] for other in CONTROLS if other in less]
    text = f"insertion less deletion, the routing map is {', '.join(clauses)}"
    if any(one.high <= 0 for one in known):
        text += ": its order of pixels is no better than one that knows nothing of the class"
    elif any(one.low <= 0 for one in known):
        text += ": it is not shown to be better than an order that knows nothing of the class"
    return [text]


def _listed(names, values) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=True))
