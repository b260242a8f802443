"""Figures as text that a page can hold: SVG, or PNG where that is much smaller."""

from __future__ import annotations

import base64
import io
from typing import NamedTuple

import matplotlib
from matplotlib.figure import Figure

from capsviz import results

WIDTHS = {"wide": "double", "narrow": "single"}  # of a page, and of a telephone


class Picture(NamedTuple):
    """One figure at two widths, as addresses that hold the picture itself."""

    wide: str
    narrow: str


def picture(analysis: str, result: NamedTuple, part: str, *, dpi: int, largest_svg: int) -> Picture:
    """Draw a picture of a result as its analysis does, for a wide and for a narrow page.

    An SVG of more bytes than `largest_svg` is made of pixels or thousands of points: it is a PNG.

    Letters are drawn as paths: whoever opens the page need not have the font.
    """
    return Picture(
        *(_drawn(analysis, result, part, width, dpi, largest_svg) for width in WIDTHS.values())
    )


def _drawn(analysis: str, result: NamedTuple, part: str, width: str, dpi, largest_svg) -> str:
    figure = results.draw(analysis, result, width, part)
    vector = _saved(figure, "svg", dpi)
    if len(vector) <= largest_svg:
        return _address("image/svg+xml", vector)
    pixels = _saved(results.draw(analysis, result, width, part), "png", dpi)
    return _address("image/png", pixels)


def _saved(figure: Figure, kind: str, dpi: int) -> bytes:
    content = io.BytesIO()
    undated = {"svg": {"Date": None}, "png": {"Software": None}}[kind]
    with results.style(), matplotlib.rc_context({"svg.fonttype": "path"}):
        figure.savefig(content, format=kind, dpi=dpi, metadata=undated)
    return content.getvalue()


def _address(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
