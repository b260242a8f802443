"""Read the values of the page's controls, and encode them in a link. No Gradio.

The values of the controls are a dictionary by their names in a link.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from capsviz.analyses.view import Warp
from capsviz.explorer import look
from capsviz.tracing import INTERVENTIONS

LONGEST = -1  # choice of a class: that of the longest capsule
NONE = -1  # choice of a capsule type: none
ROUTINGS = (
    "as trained",
    *(f"couplings {name}" for name in (*INTERVENTIONS, look.ANOTHER)),
    "one iteration",
)
STEP = 0.5  # largest change of a pose dimension
LARGEST = 100_000  # largest index of an image
LETTERS = 12_000  # longest link; a longer one is ignored


class Control(NamedTuple):
    """A slider of the warp."""

    name: str
    low: float
    high: float
    neutral: float
    step: float
    label: str
    unit: str


WARPS = (  # in the order of `Warp`
    Control("angle", -180, 180, 0, 1, "Angle", "° counter-clockwise"),
    Control("scale", 0.5, 1.5, 1, 0.05, "Scale", "times the size"),
    Control("shear", -1, 1, 0, 0.05, "Shear", "px down per px right"),
    Control("right", -8, 8, 0, 1, "Shift right", "px"),
    Control("down", -8, 8, 0, 1, "Shift down", "px"),
)


class Settings(NamedTuple):
    """The meaning of the controls' values."""

    warp: Warp
    how: look.Intervention
    mapped: int  # class of the map; below 0: that of the longest capsule
    iteration: int  # of the displayed couplings, from 1
    capsule: int  # class of the pose; below 0: that of the longest capsule
    changes: tuple[float, ...]  # (E,) added to the pose


def read(values: Mapping[str, Any], dimensions: int) -> Settings:
    """Convert the values of the controls to settings, for poses with that number of dimensions."""
    routing, donor = values["routing"], (int(values["donor"]), int(values["donor-index"] or 0))
    couplings = routing.removeprefix("couplings ") if routing in ROUTINGS[1:-1] else None
    how = look.Intervention(
        couplings=couplings,
        iterations=1 if routing == ROUTINGS[-1] else None,
        off=None if values["off"] == NONE else values["off"],
        donor=donor if couplings == look.ANOTHER else None,
    )
    return Settings(
        warp=Warp(*(values[one.name] for one in WARPS)),
        how=how,
        mapped=values["map"],
        iteration=int(values["iteration"]),
        capsule=values["pose"],
        changes=tuple(values[f"d{d}"] for d in range(dimensions)),
    )


def query(pair: tuple[str, str], origin: Mapping, values: Mapping, neutral: Mapping) -> str:
    """Return the query of a link: two networks, the image, and the changed controls.

    `origin` identifies the image: {"digit": 2, "index": 0} or {"ink": `images.packed`}. Controls
    whose values equal the initial ones in `neutral` are left out.
    """
    parts = {"network": pair[0], "beside": pair[1], **origin}
    for name, value in values.items():
        if value is not None and value != neutral[name]:
            parts[name] = f"{value:g}" if isinstance(value, float) else value
    return urlencode(parts)


def parse(text: str) -> dict[str, str]:
    """Return the parts of a link by name; {} for a link that is too long."""
    return dict(parse_qsl(text.removeprefix("?"))) if len(text) <= LETTERS else {}


def values_of(
    parts: Mapping[str, str], neutral: Mapping, *, classes: int, types: int, iterations: int
) -> tuple[dict, list[str]]:
    """Return the values of the controls in a link, and the names of those that are out of range.

    A control that is left out or out of range keeps its value in `neutral`.
    """
    limits = {one.name: (one.low, one.high) for one in WARPS}
    limits |= {"off": (NONE, types - 1), "map": (LONGEST, classes - 1), "donor": (0, classes - 1)}
    limits |= {"pose": (LONGEST, classes - 1), "iteration": (1, iterations)}
    limits |= {"donor-index": (0, LARGEST)}
    values, wrong = dict(neutral), []
    for name in (name for name in neutral if name in parts):
        try:
            if name == "routing":
                values[name] = ROUTINGS[ROUTINGS.index(parts[name])]
            else:
                whole = name not in ("scale", "shear") and name in limits
                values[name] = number(parts[name], *limits.get(name, (-STEP, STEP)), whole)
        except ValueError:
            wrong.append(name)
    return values, wrong


def number(text: str | float, low: float = 0, high: float = LARGEST, whole: bool = True) -> float:
    """Parse a number of a link or a control; ValueError if it is out of range or not whole."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high or (whole and value != int(value)):
        kind = "whole number" if whole else "number"
        raise ValueError(f"expected a {kind} from {low:g} to {high:g}, got {str(text)[:20]}")
    return int(value) if whole else value
