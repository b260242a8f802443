"""Column and text widths of venues."""

from __future__ import annotations

from capsviz import discovery

INCHES = {"single": 3.5, "double": 7.16}  # column widths that most venues share
VENUES = {  # column and text width in inches, from the venues' LaTeX classes
    "neurips": (5.5, 5.5),
    "iclr": (5.5, 5.5),
    "icml": (3.25, 6.75),
    "cvpr": (3.25, 6.875),
    "eccv": (4.8, 4.8),
    "ieee": (3.5, 7.16),
    "nature": (3.5, 7.2),
}


def inches(width: str | float) -> float:
    """ "single", "double" or a number of inches; ValueError for others."""
    if width in INCHES:
        return INCHES[width]
    try:
        value = float(width)
    except ValueError:
        value = 0
    if not 2 <= value <= 30:
        raise ValueError(f"width '{width}': expected single, double, or 2 to 30 inches")
    return value


def check_venue(name: str | None) -> str | None:
    """The name, if it is of `VENUES` or None; ValueError for others."""
    if name is not None and name not in VENUES:
        raise ValueError(discovery.unknown("venue", name, sorted(VENUES)))
    return name


def width_for(width: str, venue: str | None) -> str | float:
    """Width to draw at: a venue's column or text width, or what `inches` takes."""
    check_venue(venue)
    if venue is not None and width in INCHES:
        return VENUES[venue][width == "double"]
    inches(width)
    return width


def column(venue: str | None) -> float:
    """Width of a column in inches: what is wider goes over the whole page."""
    return INCHES["single"] if venue is None else VENUES[venue][0]
