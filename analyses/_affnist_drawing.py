"""Drawings for `affnist`: accuracy and gap by network, and digits with their variants."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from analyses._panels import mosaic
from capsviz.figures import COLOURS

STATES = {"matched": (COLOURS[0], "o"), "full": (COLOURS[1], "s")}


def table(result, width):
    """Accuracy and paired gap to CapsNet of every network, by state; open: on shifted digits."""
    from analyses.affnist import TITLES

    names = list(dict.fromkeys(result.networks))
    figure = Figure(figsize=(width, 0.9 + 0.32 * len(names)))
    left, right = figure.subplots(1, 2, sharey=True)
    both = len(set(result.states)) > 1
    for i, (name, state) in enumerate(zip(result.networks, result.states, strict=True)):
        colour, marker = STATES[state]
        y = names.index(name) + (0.13 if state == "full" else -0.13) * both
        for axes, value, ends in (
            (left, result.affine[i], result.affine_ci95[i]),
            (right, result.gap[i], result.gap_ci95[i]),
        ):
            if np.isnan(value):
                continue
            axes.plot(100 * ends, [y, y], color=colour, linewidth=1.2)
            axes.plot(100 * value, y, marker, color=colour, markersize=4)
        left.plot(100 * result.test[i], y, marker, color=colour, markersize=4, fillstyle="none")
        if len(result.seeds[i]) > 1:
            for end in result.affine_range[i]:
                left.plot(100 * end, y, "|", color=colour, markersize=6)
    for state, (colour, marker) in STATES.items():
        if state in result.states:
            label = state
            if state == "matched":
                label = f"stopped at {100 * result.target:g} % held-out accuracy"
            left.plot([], [], marker, color=colour, markersize=4, label=label)
    left.plot([], [], "o", color="0.4", markersize=4, fillstyle="none", label="shifted test digits")
    left.set_yticks(range(len(names)), [TITLES.get(name, name) for name in names])
    left.set_ylim(len(names) - 0.5, -0.5)
    left.set_xlabel("accuracy on\naffnist_like, %")
    right.axvline(0, color="0.5", linewidth=0.6)
    right.set_xlabel("less CapsNet's,\npercentage points")
    for axes in (left, right):
        axes.grid(axis="x", linewidth=0.4, color="0.9")
        axes.tick_params(axis="y", length=0)
    columns = 3 if width > 5 else 1
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=columns)
    return figure


def variants(result, width):
    """Rows: classes. Left the padded original, then its variants."""
    J, columns, _, _, side = result.images.shape
    figure = Figure(figsize=(width, width * (J + 0.7) / (columns + 0.6)))
    axes = figure.add_subplot()
    rows, places = mosaic(axes, result.images, columns)
    axes.set_yticks(rows, result.classes)
    axes.set_xticks([places[0], places[1:].mean()], ["original", "variants of affnist_like"])
    axes.xaxis.tick_top()
    axes.axvline(places[0] + side / 2 + 0.5, color=COLOURS[1], linewidth=1)
    return figure
