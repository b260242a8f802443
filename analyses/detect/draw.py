"""Drawings for `detect`: distances, AUROC with controls, shares, and an example of every set."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from capsviz.figures import COLOURS
from capsviz.figures.panels import mosaic

DASHES = ("-", (0, (5, 1.5)), (0, (5, 1, 1, 1)), (0, (1, 0.7)), (0, (3, 1)), (0, (8, 1)), "-")
ATTACKS = ("attack", "adaptive")
MARKS = (  # of each score
    ("o", "#0072B2"), ("s", "#D55E00"), ("^", "#009E73"), ("D", "#CC79A7"), ("x", "#7F7F7F"),
)  # fmt: skip
SHARES = {"misread": ("s", "#E69F00"), "flagged": ("^", "#56B4E9"), "undetected": ("o", "#882255")}
ROW = 0.2  # inches of a set in the panels
HEAD, LINE, NAMES = 1.05, 0.12, 0.62  # inches: title, axis and key; a line; names of the rows
CELL = 0.72  # inches of an example, at most
FEWEST = 9  # rows that the panels are high enough for: the keys below them need the room


def sheet(result, width):
    """Distances beside AUROC and shares over the examples; below each other in one column."""
    A, beside = len(result.sets), width >= 5
    panel = max(A, FEWEST) * ROW + HEAD
    columns = A if beside else -(-A // 2)
    cell = min((width - NAMES) / columns, CELL)
    lines = -(-A // columns)
    below = lines * (2 * cell + 5.4 * LINE) + 3.4 * LINE
    heights = [panel, below] if beside else [2.2 + 0.15 * -(-A // 2), panel, below]
    figure = Figure(figsize=(width, sum(heights)))
    parts = list(figure.subfigures(len(heights), 1, height_ratios=heights))
    if beside:
        parts[:1] = parts[0].subfigures(1, 2, width_ratios=[0.34, 0.66])
    _distances(parts[0].subplots(), result)
    areas, shares = parts[1].subplots(1, 2, sharey=True, width_ratios=[0.56, 0.44])
    _areas(areas, result, ncols=2 if beside else 1)
    _shares(shares, result)
    _examples(parts[2], result, columns, lines)
    return figure


def _lines(result):
    """Look of every set's line: an attack has a colour and dashes, a larger eps a wider line."""
    names = [name.split()[0] if kind in ATTACKS else name
             for name, kind in zip(result.sets, result.kinds, strict=True)]  # fmt: skip
    first = list(dict.fromkeys(names))
    for place, name in enumerate(names):
        k = first.index(name)
        yield {
            "color": ("black", *COLOURS[1:])[k % len(COLOURS)],
            "linestyle": DASHES[k % len(DASHES)],
            "linewidth": 1.0 + 0.8 * names[:place].count(name),
        }


def _distances(axes, result):
    """Cumulative distributions of the distance, with the threshold."""
    for values, name, look in zip(result.values[:, 0], result.sets, _lines(result), strict=True):
        axes.ecdf(values, label=name, **look)
    axes.axvline(result.threshold, color="#7F7F7F", linewidth=0.9)
    axes.annotate(
        "threshold", (result.threshold, 1.01), xycoords=("data", "axes fraction"),
        ha="center", va="bottom", fontsize=6,
    )  # fmt: skip
    axes.set(
        xlabel="L2 distance to the winning\ncapsule's reconstruction",
        ylabel="share of images at most as far",
        xlim=(0, None),
        ylim=(0, 1.0),
    )
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=2, handlelength=3, fontsize=6
    )


def _areas(axes, result, *, ncols):
    """AUROC of the winning capsule's distance, with 95 % intervals, and of the controls."""
    y = np.arange(1, len(result.sets))
    for s, (name, (marker, colour)) in enumerate(zip(result.scores, MARKS, strict=True)):
        _points(axes, y + (s - 2) * 0.145, result.auroc[:, s],
                marker=marker, color=colour, label=name)  # fmt: skip
    axes.axvline(0.5, color="#7F7F7F", linewidth=0.6, linestyle=":")
    axes.set_yticks(range(len(result.sets)), result.sets)
    axes.set(xlim=(-0.03, 1.03), ylim=(len(y) + 0.5, -0.5), xlabel="AUROC against unchanged")
    axes.set_title("by the reconstruction from ...")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=ncols, fontsize=6)


def _shares(axes, result):
    """Shares that are misread, flagged, and misread but not flagged, with 95 % intervals."""
    y = np.arange(len(result.sets))
    for s, (name, (marker, colour)) in enumerate(SHARES.items()):
        _points(axes, y + (s - 1) * 0.22, 100 * getattr(result, name),
                marker=marker, color=colour, label=name)  # fmt: skip
    axes.set(xlim=(-3, 103), xlabel="% of images")
    axes.tick_params(axis="y", length=0)
    axes.set_title(f"{result.n:,} of each, 95 %")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), fontsize=6)


def _points(axes, y, estimate, **look):
    axes.hlines(y, estimate.low, estimate.high, color=look["color"], linewidth=0.8)
    axes.plot(estimate.value, y, linestyle="none", **look)


def _examples(figure, result, columns, lines):
    """The first image of every set, above its reconstruction; class and distance below."""
    figure.suptitle("the first image of each set, and its reconstruction")
    for line, axes in enumerate(figure.subplots(lines, 1, squeeze=False)[:, 0]):
        part = slice(line * columns, (line + 1) * columns)
        y, x = mosaic(axes, result.examples[part].swapaxes(0, 1), columns)
        axes.set_yticks(y, ("input", "recon-\nstruction"), linespacing=1.0)
        axes.set_xticks(x, [name.replace(" ", "\n", 1) for name in result.sets[part]], fontsize=6)
        axes.xaxis.tick_top()
        under = axes.secondary_xaxis("bottom")
        under.spines[:].set_visible(False)
        under.tick_params(length=0, pad=2)
        under.set_xticks(
            x,
            [
                f"{result.classes[k]}\n{far:.1f}{' *' if far > result.threshold else ''}"
                for k, far in zip(result.predicted[part, 0], result.values[part, 0, 0], strict=True)
            ],
        )
        if line == lines - 1:
            under.set_xlabel("class it is read as, below it the distance; *: flagged")
