"""Drawing for `probes`: the film strip of a path, its cross-fade, and the activation along both."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from capsviz.results import COLOURS
from capsviz.results.panels import mosaic

WIDE = 5.0  # inches: from here on all steps of a path are shown, below it every second one
PATH, FADE, OTHER = COLOURS[0], COLOURS[1], "#C00000"


def strip(result, width):
    """Film strips of path and cross-fade, the images at the ends of the first; activations below.

    Below each drawing is what it is read as, in red where that is not the class of the path.
    """
    steps = np.arange(len(result.t))[:: 1 if width >= WIDE else 2]
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
    """Pictures (n, C, H, W) side by side, their readings below and names above."""
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
