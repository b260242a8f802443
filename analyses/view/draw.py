"""Drawing for `view`: the images in a row; below them the scores and the pose."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from capsviz.results import COLOURS
from capsviz.results.maps import are_short
from capsviz.results.panels import show

HATCHES = ("", "////", "....", "xxxx")  # networks differ in print as well
WIDE = 5.0  # inches: from here on scores and pose stand side by side


def draw(result, width):
    """Draw images, scores and the pose."""
    wide = width >= WIDE
    name = result.classes[result.capsule]
    images = [(result.image, "image")]
    if (result.warped != result.image).any():
        images.append((result.warped, "warped"))
    if result.own is not None:
        images.append((result.own, f"decoded: pose of {name}"))
        if result.changes.any():
            images.append((result.changed, "decoded: changed pose"))
    rows = 1 if wide or len(images) < 3 else 2
    heights = [rows * (width / (4 if wide else 2) + 0.25), 1.9 if wide else 3.8]
    figure = Figure(figsize=(width, sum(heights)))
    top, bottom = figure.subfigures(2, 1, height_ratios=heights)
    grid = top.subplots(rows, -(-len(images) // rows), squeeze=False)
    for axes, (image, title) in zip(grid.flat, images, strict=False):
        show(axes, image, title)
    for axes in top.axes[len(images) :]:
        axes.set_axis_off()
    scores, pose = bottom.subplots(*((1, 2) if wide else (2, 1)))
    _scores(scores, result)
    _pose(pose, result, name)
    return figure


def _scores(axes, result):
    K, J = result.scores.shape
    each = 0.8 / K
    for k, (network, row) in enumerate(zip(result.networks, result.scores, strict=True)):
        at = np.arange(J) + (k - (K - 1) / 2) * each
        routing = f" ({result.routing})" if k == 0 and result.routing != "as trained" else ""
        axes.bar(
            at, row, each, color=COLOURS[k % len(COLOURS)], hatch=HATCHES[k % len(HATCHES)],
            edgecolor="white", linewidth=0, label=f"{network}{routing}",
        )  # fmt: skip
    kinds = " or ".join(dict.fromkeys(kind.split()[-1] for kind in result.kinds))
    axes.set(ylim=(0, 1.05 + 0.2 * -(-K // 2)), ylabel=kinds, xlabel="class")
    axes.set_yticks([0, 0.5, 1])
    axes.set_xticks(range(J), result.classes, rotation=0 if are_short(result.classes) else 90)
    axes.legend(loc="upper center", ncols=2, borderaxespad=0)


def _pose(axes, result, name):
    at, now = np.arange(len(result.pose)), result.pose + result.changes
    axes.axhline(0, color="#7F7F7F", linewidth=0.6)
    axes.vlines(at, result.pose, now, color=COLOURS[6], linewidth=0.8)
    if (moved := np.flatnonzero(result.changes)).size:
        axes.plot(moved, now[moved], "o", color=COLOURS[1], label="changed")
    axes.plot(at, result.pose, "o", color=COLOURS[0], mfc="white", label="of the image")
    low, high = axes.get_ylim()
    axes.set(ylim=(low, high + 0.25 * (high - low)), xlabel="dimension", ylabel="value")
    axes.set_title(f"pose of {name}")
    axes.set_xticks(at[:: max(1, len(at) // 8)])
    axes.legend(loc="upper center", ncols=2, borderaxespad=0)
