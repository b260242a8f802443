"""Drawings for `segment`: pairs of digits in two colours; error and overlap."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from capsviz.results.panels import album, label_end, name_rows, points

FIRST, SECOND = "#0072B2", "#E69F00"  # as grey: dark and light; both together are nearly white
BOTH = tuple(np.minimum(1, np.add(to_rgb(FIRST), to_rgb(SECOND))))
WRONG, CONTROL = "#882255", "#D55E00"
ROWS = ("input", "digits", "recon-\nstructed", "wrong\npair *")
NAMES, LINE = 0.5, 0.12  # inches: names of rows, a line of text
CELL, SMALLEST = 0.64, 0.44  # inches of a picture, at most and at least


def sheet(result, width):
    """Draw examples and misclassified images."""
    P, F = len(result.inputs), result.failures
    fits = int((width - NAMES) / SMALLEST)  # pictures side by side
    beside = F > 0 and fits - 1 >= P
    blocks = [list(range(P - F)), list(range(P - F, P))][: 1 + (F > 0)]
    cell = min(CELL, (width - (1 + beside) * NAMES) / (P if beside else min(fits, P)))
    tall = cell * result.inputs.shape[2] / result.inputs.shape[3]
    lines = [-(-len(which) // fits) for which in blocks]
    heights = [n * (len(ROWS) * tall + 4.5 * LINE) + 1.5 * LINE for n in lines]
    heights = [max(heights)] if beside else heights
    figure = Figure(figsize=(width, LINE * 2 + sum(heights)), layout="constrained")
    key, *places = figure.subfigures(
        len(heights) + 1, 1, height_ratios=[2 * LINE, *heights], squeeze=False
    )[:, 0]
    parts = ((FIRST, "first of the pair"), (SECOND, "second"), (BOTH, "both"))
    handles = [Patch(facecolor=c, edgecolor="black", linewidth=0.4, label=t) for c, t in parts]
    key.legend(handles=handles, loc="center", ncols=3)
    if beside:
        ratios = [NAMES + cell * len(which) for which in blocks]
        places = places[0].subfigures(1, 2, width_ratios=ratios)
    last = result.first + P - F - 1
    which = f"images {result.first} to {last}" if last > result.first else f"image {last}"
    wrong = round(result.n * (1 - float(result.right.value)))
    titles = [f"{result.dataset}, {which}", f"{F} of {wrong:,} misclassified"]
    for some, place, title in zip(blocks, places, titles, strict=False):
        place.suptitle(title)
        _pictures(place, result, some, min(fits, len(some)))
    return figure


def _pictures(figure, result, some, columns):
    """Draw input, digits, reconstructions and wrong pair of some images."""
    grey = result.inputs[some].mean(1, keepdims=True).round().astype(np.uint8)
    grey = np.repeat(grey, 3, 1)
    pairs = (result.parts, result.drawn, result.wrong_pair)
    rows = np.stack([grey, *(overlay(pair[some]) for pair in pairs)])

    def named(classes):
        return ", ".join(result.classes[k] for k in classes)

    labels, predicted = result.labels[some], result.predicted[some]
    above = [
        f"true {named(true)}\npred. {named(won)}"
        for true, won in zip(labels, predicted, strict=True)
    ]
    below = [f"* {named((result.labels[i, 0], result.absent[i]))}" for i in some]
    colours = ["black" if right else WRONG for right in (labels == predicted).all(1)]
    album(figure, rows, columns, ROWS, above, below, colours=colours)


def overlay(pairs: np.ndarray) -> np.ndarray:
    """Pairs (P, 2, C, H, W) uint8 as images (P, 3, H, W) uint8, a colour each, added."""
    colours = np.array([to_rgb(FIRST), to_rgb(SECOND)])
    added = np.einsum("pkhw,kc->pchw", pairs.mean(2), colours)
    return np.minimum(added, 255).round().astype(np.uint8)


def measures(result, width):
    """Error and overlap of the drawings with their controls."""
    side = width >= 5
    figure = Figure(figsize=(width, 1.75 if side else 3.4))
    axes = figure.subplots(*((1, 2) if side else (2, 1)))
    for one, kind, names in zip(
        axes, ("sse", "iou"), (result.drawings, result.divisions), strict=True
    ):
        estimate = getattr(result, kind)
        for y, each in enumerate(estimate):
            points(one, each, *((FIRST, "o") if y == 0 else (CONTROL, "s")), shift=y)
            form = ".2f" if kind == "iou" else ".1f"
            label_end(one, each.high, y, f"{each.value:{form}}")
        name_rows(one, names)
        one.set_xlim(0, 1.2 * estimate.ci95.max())
    axes[0].set_xlabel("mean SSE from the digit alone")
    axes[1].set(xlabel="mean IoU with the digit", xlim=(0, 1.12))
    axes[0].set_title(f"{result.n:,} images of {result.dataset}")
    axes[1].set_title("bars: 95 %")
    return figure
