"""Arrange named panels in a figure: rows of panels, one legend, and labels at the ends of lines."""

import logging
import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import FixedLocator
from matplotlib.transforms import offset_copy

WIDE = 5.0  # inches: from this width on, a figure has the layout of a page, below that of a column
FULL = 7.16  # inches: width of two columns, for which panels define their shares
PAGE, SLENDER = 4.5, 1.2  # largest height: half a page in inches, and relative to the width
SQUEEZED = 0.78  # rows may shrink to this share of their heights before the last one is left out
KEY, LINE, LETTERS = 0.35, 0.145, 6.5  # legend: its height and line height in inches, font in pt


def tallest(width: float) -> float:
    """Return the largest height in inches of a figure of a width, as one float of a paper."""
    return min(PAGE, SLENDER * width)


def arranged(panels: Mapping[str, Any], result, width: float, heading: str = "") -> Figure:
    """Draw panels in rows, `width` inches wide, below a heading and a common legend.

    The last rows are left out if the figure would be taller than `tallest`. `figure.left_out` names
    their panels, and `figure.omitted` lists what the others have no room for.
    """
    rows, heights, count = _fitted(panels, result, width)
    figure: Any = Figure(figsize=(width, sum(heights[:count])), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03, wspace=0.02, hspace=0.02)
    ends: list[tuple] = []
    shares = [[share for _, share in row] for row in rows[:count]]
    equal = all(one == shares[0] for one in shares)
    grid = figure.add_gridspec(
        count, len(shares[0]) if equal else 1, height_ratios=heights[:count],
        width_ratios=shares[0] if equal else None,
    )  # fmt: skip
    for k, row in enumerate(rows[:count]):
        cells = grid if equal else grid[k, 0].subgridspec(1, len(row), width_ratios=shares[k])
        drawn = [figure.add_subplot(cells[k if equal else 0, c]) for c in range(len(row))]
        for axes, (name, _) in zip(drawn, row, strict=True):
            ends += _drawn(panels[name], name, axes, result)
        _names_once(drawn)
    lines = _key(figure, width, heading)
    figure.set_size_inches(width, min(tallest(width), sum(heights[:count]) + lines * LINE + 0.05))
    if any(axes.get_aspect() != "auto" for axes in figure.axes):
        # The first layout shrinks pictures; the next one moves the texts below them.
        figure.get_layout_engine().execute(figure)
    label_lines(figure, ends)
    figure.left_out, figure.omitted = left_out(panels, result, width)
    return figure


def left_out(panels: Mapping[str, Any], result, width: float) -> tuple[list[str], list[str]]:
    """Return the panels for which `arranged` has no room, and what the others omit."""
    rows, _, count = _fitted(panels, result, width)
    drawn = (one for row in rows[:count] for one in row)
    omitted = [text for name, share in drawn for text in panels[name].omits(result, share * width)]
    return [name for row in rows[count:] for name, _ in row], omitted


def _fitted(panels, result, width) -> tuple[list, list[float], int]:
    """Return rows of panels, their heights in inches, and how many of them are drawn."""
    rows = _rows(panels, width)
    talls = {name: one.tall for name, one in panels.items()}
    heights = [
        max(tall(result, width * s) if callable(tall := talls[k]) else tall for k, s in row)
        for row in rows
    ]
    count = len(rows)
    while count > 1 and SQUEEZED * sum(heights[:count]) > tallest(width) - KEY:
        count -= 1
    return rows, heights, count


def _drawn(panel, name: str, axes, result) -> list[tuple]:
    """Draw a panel, and return its labels for line ends; a ValueError names the panel."""
    try:
        return panel.draw(axes, result) or []
    except ValueError as error:
        raise ValueError(f"the panel '{name}' cannot be drawn: {error}") from error


def into(axes, panel, name: str, result) -> None:
    """Draw one panel with its own legend into axes of any figure; log what it omits."""
    if omitted := panel.omits(result, room(axes)):
        logging.getLogger(__name__).warning("no room for %s", ", ".join(omitted))
    ends = _drawn(panel, name, axes, result)
    for one in (axes, *getattr(axes, "parts", ())):
        if one.get_legend_handles_labels()[0] and one.get_legend() is None:
            one.legend()
            break
    label_lines(axes.figure, ends)


def split(axes, rows: int, columns: int, **how):
    """Replace axes by a grid of axes (rows, columns), and return it; `axes.parts` lists them.

    `how` are arguments of `GridSpec` (ratios, spaces) and of its `subplots` (sharex, sharey).
    """
    shared = {name: how.pop(name) for name in ("sharex", "sharey") if name in how}
    place, figure = axes.get_subplotspec(), axes.figure
    if place is None:
        box = axes.get_position()
        edges = dict(zip(("left", "bottom", "right", "top"), box.extents, strict=True))
        grid: Any = GridSpec(rows, columns, figure=figure, **edges, **how)
    else:
        grid = place.subgridspec(rows, columns, **how)
    axes.set_axis_off()
    every = grid.subplots(squeeze=False, **shared)
    axes.parts = every.ravel().tolist()
    return every


def room(axes) -> float:
    """Return the approximate width in inches of axes with their labels."""
    figure, share, place = axes.figure, 1.0, axes.get_subplotspec()
    wide = figure.bbox.width / figure.dpi
    if place is None:
        return float(wide * axes.get_position().width)
    while place is not None:
        grid = place.get_gridspec()
        ratios = grid.get_width_ratios()
        share *= sum(ratios[k] for k in place.colspan) / sum(ratios)
        place = getattr(grid, "_subplot_spec", None)
    return float(wide * share)


def _rows(panels: Mapping[str, Any], width: float) -> list[list[tuple[str, float]]]:
    """Return rows of (name, share of the width): as few as possible, filled evenly."""
    wanted = {name: one.narrow for name, one in panels.items()}
    if width >= WIDE:  # as many inches as on a full page, up to half of this one, but no less
        wanted = {
            name: max(one.share, min(one.share * FULL / width, 1 / 2))
            for name, one in panels.items()
        }

    def filled(most: float) -> list[list[str]]:
        rows: list[list[str]] = []
        room = 0.0
        for name, share in wanted.items():
            if not rows or share > room + 1e-6:
                rows.append([])
                room = most
            rows[-1].append(name)
            room -= share
        return rows

    tries = [filled(most) for most in np.linspace(1, 0.2, 49)]
    even = [rows for rows in tries if len(rows) == len(tries[0])][-1]
    whole = [sum(wanted[name] for name in row) for row in even]
    return [
        [(name, wanted[name] / all_of) for name in row]
        for row, all_of in zip(even, whole, strict=True)
    ]


def _names_once(row: Sequence) -> None:
    """Label the y axis of neighbouring panels once if ranges and labels are the same."""
    for left, right in reversed([*pairwise(row)]):
        axes, named = (left.yaxis, right.yaxis), left.get_ylabel()
        if left.get_ylim() != right.get_ylim() or named != right.get_ylabel():
            continue
        fixed = all(isinstance(one.get_major_locator(), FixedLocator) for one in axes)
        texts = [[text.get_text() for text in one.get_ticklabels()] for one in axes]
        if (fixed and any(texts[0]) and texts[0] == texts[1]) or (named and not fixed):
            right.tick_params(axis="y", labelleft=False)
            right.set_ylabel("")


def _key(figure, width: float, heading: str) -> int:
    """Draw the heading and one legend for all panels without a legend; return its lines."""
    every: dict[tuple[str, int], Any] = {}  # by label, and its earlier uses in the same axes
    for axes in figure.axes:
        if axes.get_legend() is None:
            handles, labels = axes.get_legend_handles_labels()
            for k, label in enumerate(labels):
                every.setdefault((label, labels[:k].count(label)), handles[k])
    entries = [label for label, _ in every]
    heading = wrapped(heading, width - 0.2, LETTERS)
    lines = heading.count("\n") + 1 if heading else 0
    if not entries:
        if heading:
            figure.suptitle(heading, fontsize=LETTERS)
        return lines
    letters = [max(map(len, label.split("\n"))) for label in entries]
    for columns in range(len(entries), 0, -1):
        parts = np.array_split(letters, columns)  # as matplotlib fills legends
        if sum(0.42 + 0.052 * max(part) for part in parts) <= width:
            break
    down = len(parts[0])
    columns = -(-len(entries) // down)
    figure.legend(
        [*every.values()], entries, loc="outside upper center", ncols=columns,
        title=heading or None, title_fontsize=LETTERS, handlelength=2.2,
    )  # fmt: skip
    return lines + sum(
        max(label.count("\n") + 1 for label in entries[k::down]) for k in range(down)
    )


def label_lines(figure, entries):
    """Label lines at the right of their axes, without overlap, each connected to its line's end.

    Call it after everything else is drawn, because it needs the final height of the axes.

    Parameters
    ----------
    entries  (axes, line, text): a `Line2D` with data, and its label.
    """
    by_axes = {}
    for axes, line, text in entries:
        x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
        known = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        if not known.size:
            continue
        beside = offset_copy(axes.get_yaxis_transform(), figure, x=8, units="points")
        place = known[-1]
        look = {"linewidth": 0.5, "color": line.get_color(), "shrinkA": 0, "shrinkB": 0}
        note = axes.annotate(
            text, (x[place], y[place]), (1, y[place]), textcoords=beside, va="center",
            color=legible(line.get_color()), fontsize=6.5, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "relpos": (0, 0.5), **look},
        )  # fmt: skip
        by_axes.setdefault(axes, []).append(note)
    if by_axes and (engine := figure.get_layout_engine()):  # without one, axes do not move
        engine.execute(figure)
    for axes, notes in by_axes.items():
        box, scale = axes.get_window_extent(), figure.dpi / 72
        ends = np.array([axes.transData.transform(note.xy)[1] for note in notes])
        heights = [1.25 * note.get_fontsize() * (note.get_text().count("\n") + 1) for note in notes]
        middles = spread(ends / scale, heights, box.y0 / scale, box.y1 / scale)
        for note, middle in zip(notes, middles * scale, strict=True):
            note.set_y(axes.transData.inverted().transform((box.x1, middle))[1])


def legible(colour) -> tuple[float, float, float]:
    """Darken a colour until text in it is legible on white: contrast 4.5 (WCAG 2.1)."""
    rgb = np.array(to_rgb(colour))
    for _ in range(20):
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        if 1.05 / (linear @ (0.2126, 0.7152, 0.0722) + 0.05) >= 4.5:
            break
        rgb = rgb * 0.93
    red, green, blue = (float(part) for part in rgb)
    return red, green, blue


def spread(targets, heights, low: float, high: float) -> np.ndarray:
    """Return centres of boxes near their targets, in the same order and without overlap.

    They lie between `low` and `high` if there is room for all; otherwise they start at `low`.
    """
    targets, heights = np.asarray(targets, float), np.asarray(heights, float)
    order = np.argsort(targets, kind="stable")
    sizes = heights[order]
    starts = np.concatenate([[0], np.cumsum((sizes[:-1] + sizes[1:]) / 2)])  # if packed
    places = ascending(targets[order] - starts)  # boxes that touch share their mean
    top = high - sizes[-1] / 2 - starts[-1]
    places = np.maximum(np.minimum(places, top), low + sizes[0] / 2) + starts
    middles = np.empty(len(targets))
    middles[order] = places
    return middles


def ascending(values: np.ndarray) -> np.ndarray:
    """Fit an isotonic regression: max over a <= i of min over b >= i of the mean from a to b.

    scipy.optimize has it, but takes longer to import than a figure takes to draw.
    """
    sums, (first, last) = np.cumsum([0, *values]), np.indices((len(values), len(values)))
    means = (sums[1:] - sums[:-1, None]) / np.maximum(last - first + 1, 1)  # used for b >= a alone
    least = np.minimum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
    return np.maximum.accumulate(least, axis=0).diagonal()


def wrapped(text: str, inches: float, points: float = 6.5) -> str:
    """Wrap a text to lines of approximately at most `inches`."""
    letters = max(8, int(inches * 72 / (0.56 * points)))
    return "\n".join(
        "\n".join(textwrap.wrap(line, letters, break_long_words=False)) or ""
        for line in text.split("\n")
    )
