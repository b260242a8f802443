"""Draw numbers with intervals as dots in an SVG; equal numbers give equal files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from capsviz.results import COLOURS

LEFT, WIDTH, ROW, SERIES, TOP, BOTTOM = 330, 750, 14, 6, 34, 46  # pixels
GREY = "#8C8C8C"  # for controls
STYLE = "text{font:12px sans-serif;fill:#222}.label{text-anchor:end}.tick{text-anchor:middle}"


class Number(str):
    """A number as text, with `ends`: its value and the two ends of its interval."""

    ends: tuple[float, float, float]

    def __new__(cls, text: str, ends: tuple[float, float, float]) -> Number:
        one = super().__new__(cls, text)
        one.ends = ends
        return one


def draw(axis: str, names: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Draw several series as an SVG, and return its text.

    Parameters
    ----------
    axis   label of the axis, with the unit.
    names  names of the series; one that begins with "control" is grey.
    rows   a label and, for each series, a `Number`; any other text is not drawn.
    """
    ends = [
        end for _, cells in rows for cell in cells if isinstance(cell, Number) for end in cell.ends
    ]
    ticks = _ticks(min(ends), max(ends))
    colours = iter(COLOURS)
    series = [GREY if name.startswith("control") else next(colours) for name in names]
    tall = max(26, ROW + SERIES * len(names))
    right, height = WIDTH - 20, TOP + tall * len(rows) + BOTTOM

    def x(value: float) -> float:
        return LEFT + (right - LEFT) * (value - ticks[0]) / (ticks[-1] - ticks[0])

    parts = [f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>']
    for tick in ticks:
        bold = "#999" if tick == 0 else "#ddd"
        parts.append(f'<path d="M{x(tick):.1f} {TOP}V{height - BOTTOM}" stroke="{bold}"/>')
        label = f'x="{x(tick):.1f}" y="{height - BOTTOM + 16}"'
        parts.append(f'<text class="tick" {label}>{tick:g}</text>')
    middle = f'x="{(LEFT + right) / 2:.1f}" y="{height - 10}"'
    parts.append(f'<text class="tick" {middle}>{escape(axis)}</text>')
    place = 10
    for name, colour in zip(names, series, strict=True):
        if len(names) > 1:
            parts.append(f'<circle cx="{place}" cy="14" r="4" fill="{colour}"/>')
            parts.append(f'<text x="{place + 9}" y="18">{escape(name)}</text>')
            place += 30 + round(6.2 * len(name))
    for k, (label, cells) in enumerate(rows):
        y = TOP + tall * (k + 0.5)
        parts.append(f'<text class="label" x="{LEFT - 10}" y="{y + 4:.1f}">{escape(label)}</text>')
        for n, (cell, colour) in enumerate(zip(cells, series, strict=True)):
            if isinstance(cell, Number):
                value, low, high = map(x, cell.ends)
                at = y + SERIES * (n - (len(cells) - 1) / 2)
                line = f'd="M{low:.1f} {at:.1f}H{high:.1f}" stroke="{colour}" stroke-width="2"'
                parts.append(f"<path {line}/>")
                parts.append(f'<circle cx="{value:.1f}" cy="{at:.1f}" r="4" fill="{colour}"/>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}">'
    )
    return "\n".join([f"{head}<style>{STYLE}</style>", *parts, "</svg>\n"])


def _ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers that span a range."""
    rough = (high - low) / 4
    power = 10 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(step * k, 10) for k in range(first, last + 1)]
