"""What the controls of the page say. No Gradio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from capsviz.analyses.view.measure import Warp
from capsviz.explorer import look
from capsviz.tracing import INTERVENTIONS

LONGEST = NONE = -1  # of a choice of class: that of the longest capsule; of a type: none
ROUTINGS = (
    "as trained",
    *(f"couplings {name}" for name in (*INTERVENTIONS, look.ANOTHER)),
    "one iteration",
)


class Control(NamedTuple):
    """One number that the page lets one set."""

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
# Names in a link of what comes after the warp, in this order; then d0, d1, ... of the pose.
CHOSEN = ("routing", "off", "map", "iteration", "pose", "donor", "donor-index")


class Settings(NamedTuple):
    """What the controls say."""

    warp: Warp
    how: look.Intervention
    mapped: int  # class of the map; below 0: that of the longest capsule
    iteration: int  # of the couplings, from 1
    capsule: int  # class of the pose; below 0: that of the longest capsule
    donor: tuple[int, int]  # class and number of the image whose couplings are transplanted
    changes: tuple[float, ...]  # of each dimension of that pose


def read(values: Sequence) -> Settings:
    """Settings from the values of the controls, in their order: `WARPS`, `CHOSEN`, the pose."""
    warp, (routing, off, mapped, iteration, capsule, *other) = Warp(*values[:5]), values[5:12]
    donor = (int(other[0]), int(other[1] or 0))
    couplings = routing.removeprefix("couplings ") if routing in ROUTINGS[1:-1] else None
    how = look.Intervention(
        couplings=couplings,
        iterations=1 if routing == ROUTINGS[-1] else None,
        off=None if off == NONE else off,
        donor=donor if couplings == look.ANOTHER else None,
    )
    return Settings(warp, how, mapped, int(iteration), capsule, donor, tuple(values[12:]))
