"""Drawings for `probes`: R2 by measure, disentanglement, the cycle, paths, and a film strip."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from capsviz.results import COLOURS
from capsviz.results.common_panels import band, name_rows
from capsviz.results.panels import intervals, look, mosaic

NAMES = {
    "slant_deg": "slant",
    "width_px": "width",
    "height_px": "height",
    "thickness_px": "thickness",
    "x_px": "position, x",
    "y_px": "position, y",
}
WIDE = 5.0  # inches from which on panels stand side by side
LOWEST = -0.6  # of the axes of R2: what is worse is an arrow at the edge
LINE = 0.135  # inches of a line of the key
PATH, FADE, GREY, OTHER = COLOURS[0], COLOURS[1], "#7F7F7F", "#C00000"


def sheet(result, width):
    """Draw probes and DCI."""
    wide = width >= WIDE
    S = len(result.sources)
    tall = 6 * max(0.26, 0.055 * S)
    across = 2 if wide else 1
    key = LINE * (-(-(S + 2) // across))
    heights = [tall] if wide else [tall, 1.1]
    figure = Figure(figsize=(width, sum(heights) + 0.45 * len(heights) + key + LINE + 0.15))
    grid = figure.add_gridspec(len(heights), 6 if wide else 1, height_ratios=heights)
    _probes(figure.add_subplot(grid[0, :4] if wide else grid[0, 0]), result)
    _dci(figure.add_subplot(grid[0, 4:] if wide else grid[1, 0]), result)
    lines = [Line2D([], [], linewidth=0.8, **look(k)) for k in range(len(result.codes))]
    words = [f"{_word(one)}{_count(result, one)}" for one in result.codes]
    lines.append(Line2D([], [], linestyle="none", marker="o", fillstyle="none", color=GREY))
    figure.legend(
        lines, [*words, "hollow: control task"], loc="outside upper center", ncols=across,
        handlelength=1.6, title=f"{result.n:,} images of {result.dataset}; bars: 95 %",
        title_fontsize=6.5,
    )  # fmt: skip
    return figure


def paths(result, width):
    """Draw the cycle, and activation and distance along paths."""
    wide = width >= WIDE
    figure = Figure(figsize=(width, 1.8 if wide else 3.1))
    names = [["cycle", "read", "far"]] if wide else [["cycle", "cycle"], ["read", "far"]]
    axes = figure.subplot_mosaic(names, height_ratios=[1] if wide else [0.8, 1.35])
    for one, name, draw in (
        ("cycle", "cycle", _cycle),
        ("read", "path_activation", _path),
        ("far", "path_distance", _path),
    ):
        if getattr(result, name) is None:
            axes[one].remove()
        else:
            draw(axes[one], result, name)
    return figure


def _word(name: str) -> str:
    """A code as pictures have it."""
    return name.replace("freshly initialised", "untrained").replace("turned", "rotated")


def _count(result, name: str) -> str:
    if name not in result.sources or "components" in name:
        return ""
    return f": {result.dimensions[result.sources.index(name)]} numbers"


def _probes(axes, result):
    """R2 of every measure from every kind of vector, filled; of the control task, hollow."""
    S, y = len(result.sources), np.arange(len(result.measures))
    low = min(float(result.r2.low.min()), float(result.control.low.min()))
    left = max(LOWEST, min(0.0, low) - 0.05)
    for s, name in enumerate(result.sources):
        own, rows = look(result.codes.index(name)), y + (s - (S - 1) / 2) * 0.7 / S
        intervals(axes, result.control[s], rows, own | {"fillstyle": "none"}, left)
        intervals(axes, result.r2[s], rows, own, left)
    names = [NAMES.get(one, one) for one in result.measures]
    name_rows(axes, names, left, "R² within a class, linear probe")


def _dci(axes, result):
    """Disentanglement and completeness of every code."""
    S = len(result.codes)
    pair = (result.disentanglement, result.completeness)
    for s, name in enumerate(result.codes):
        shift = (s - (S - 1) / 2) * 0.7 / S
        for row, estimate in enumerate(pair):
            one = estimate[s : s + 1]
            intervals(axes, one, np.array([row + shift]), look(result.codes.index(name)), 0)
    right = min(1.03, max(float(one.high.max()) for one in pair) + 0.1)
    name_rows(axes, ["disen-\ntangled", "complete"], 0, "DCI, mean over classes", right=right)


def _cycle(axes, result, _):
    """R2 of the pose by that of its drawing, and of the controls."""
    left = max(-1.6, min(0.0, float(result.cycle.low.min())) - 0.05)
    rows = np.arange(len(result.returns))
    own = {"color": COLOURS[0], "marker": "o", "markersize": 3}
    intervals(axes, result.cycle, rows, own, left)
    short = ["reconstruction", "equal noise", "another image's\nreconstruction"]
    name_rows(axes, short, left, "R² of the pose, encoded again")


def _path(axes, result, field):
    """One quantity along paths and cross-fades, with 95 % bands."""
    estimate = getattr(result, field)
    for one, colour, marker, words in (
        (estimate[0], PATH, "o", "path of poses"),
        (estimate[1], FADE, "s", "cross-fade"),
    ):
        band(axes, result.t, one, f"{marker}-", color=colour, label=words)
    axes.set(xlim=(0, 1), xlabel="t", xticks=[0, 0.5, 1])
    if field == "path_activation":
        axes.set(ylim=(0, 1.02), ylabel="activation")
        axes.legend(loc="lower center", fontsize=6)
    else:
        axes.set(ylim=(0, 1.1 * float(estimate.high.max())), ylabel="rms to nearest image")


def strip(result, width):
    """Draw film strips of path and cross-fade, with the two images; activations below.

    Below each image is its predicted class, in red where that is not the class of the path.
    """
    steps = np.arange(len(result.t))[:: 1 if width >= WIDE else 2]  # fewer on a narrow page
    columns = len(steps) + 2
    cell = (width - 0.45) / columns
    figure = Figure(figsize=(width, 2 * cell + 2.3))
    rows = figure.add_gridspec(3, 1, height_ratios=[cell, cell, 1.1])
    first, last = result.images[:1], result.images[1:]
    blank = np.full_like(first, 255)
    axes = figure.add_subplot(rows[0])
    names = ["image a", *(f"t = {result.t[i]:.3g}" for i in steps), "image b"]
    activations = [result.activations[0], *result.path_activations[steps], result.activations[1]]
    _row(axes, np.concatenate([first, result.path[steps], last]), result, activations, names)
    axes.set_ylabel("path of\nposes", color=PATH, fontsize=6.5)
    axes = figure.add_subplot(rows[1])
    activations = [None, *result.fade_activations[steps], None]
    _row(axes, np.concatenate([blank, result.fade[steps], blank]), result, activations)
    axes.set_ylabel("cross-fade\nof pixels", color=FADE, fontsize=6.5)
    _curves(figure.add_subplot(rows[2]), result)
    return figure


def _row(axes, pictures, result, activations, names=None):
    """Pictures (n, C, H, W) side by side, their predicted classes below and names above."""
    _, centres = mosaic(axes, pictures[None], len(pictures))
    axes.set_yticks([])
    texts, colours = [], []
    for one in activations:
        read = None if one is None else int(one.argmax())
        texts.append("" if one is None else f"{result.classes[read]}: {one[read]:.2f}")
        colours.append("black" if read in (None, result.capsule) else OTHER)
    axes.set_xticks(centres, texts, fontsize=6.5)
    for label, colour in zip(axes.get_xticklabels(), colours, strict=True):
        label.set_color(colour)
    if names is not None:
        for place, name in zip(centres, names, strict=True):
            axes.annotate(name, (place, 1), (0, 2), xycoords=("data", "axes fraction"),
                          textcoords="offset points", ha="center", fontsize=6.5)  # fmt: skip


def _curves(axes, result):
    """Activations of the class, and of the longest other one, along both."""
    name = result.classes[result.capsule]
    most = "longest" if result.score.endswith("length") else "highest"
    for what, activations, colour, marker in (
        ("path", result.path_activations, PATH, "o"),
        ("cross-fade", result.fade_activations, FADE, "s"),
    ):
        others = np.delete(activations, result.capsule, 1).max(1)
        axes.plot(result.t, activations[:, result.capsule], f"{marker}-", color=colour,
                  markersize=3, label=f"{what}: {name}")  # fmt: skip
        axes.plot(result.t, others, ":", color=colour, linewidth=0.9,
                  label=f"{what}: {most} other")  # fmt: skip
    axes.set(xlabel="t, from image a to image b", ylabel="activation", ylim=(0, 1.02), xlim=(0, 1))
    heights = np.concatenate([line.get_ydata() for line in axes.lines])
    free = not ((heights > 0.35) & (heights < 0.65)).any()
    place = {"loc": "center"} if free else {"loc": "lower center", "bbox_to_anchor": (0.5, 1)}
    axes.legend(ncols=2, fontsize=6, **place)
