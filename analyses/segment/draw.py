"""Panels of `segment`: pairs of digits in two colours; error and overlap."""

from functools import partial

import numpy as np
from matplotlib.colors import to_rgb

from capsviz.analysis import Panel
from capsviz.results.panels import album, numbered, room

FIRST, SECOND = "#0072B2", "#E69F00"  # dark and light in greyscale; their sum is nearly white
BOTH = tuple(np.minimum(1, np.add(to_rgb(FIRST), to_rgb(SECOND))))
WRONG, CONTROL = "#882255", "#D55E00"
ROWS = ("input", "digits", "recon-\nstructed", "wrong\npair *")
NAMES, LINE = 0.5, 0.12  # inches: row names, a line of text
CELL, SMALLEST = 0.6, 0.44  # inches: largest and smallest picture


def _shown_indices(wrong: bool, result) -> list[int]:
    """Return the indices of the misclassified images if `wrong`, else of the other examples."""
    right = len(result.inputs) - result.failures
    return list(range(right, len(result.inputs)) if wrong else range(right))


def _columns(wrong: bool, result, width: float) -> int:
    return min(max(1, int((width - NAMES) / SMALLEST)), len(_shown_indices(wrong, result)))


def _pictures(wrong: bool, axes, result):
    """Draw two digits in one image, and the reconstructions from the two longest capsules. *: a
    wrong pair, whose second class is neither label nor prediction.
    """
    some, columns = _shown_indices(wrong, result), _columns(wrong, result, room(axes))
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
    album(axes, rows, columns, ROWS, above, below, colours=colours)
    which = f"images from {result.first} on"
    axes.parts[0].set_title("misclassified" if wrong else which)
    for colour, label in ((FIRST, "first of the pair"), (SECOND, "second"), (BOTH, "both")):
        look = {"markeredgecolor": "black", "markeredgewidth": 0.4, "markersize": 5}
        axes.parts[0].plot([], [], "s", color=colour, label=label, **look)


def _tall(wrong: bool, result, width: float) -> float:
    columns, count = _columns(wrong, result, width), len(_shown_indices(wrong, result))
    cell = min(CELL, (width - NAMES) / columns) * result.inputs.shape[2] / result.inputs.shape[3]
    return -(-count // columns) * (len(ROWS) * cell + 6 * LINE) + 2.5 * LINE


def overlay(pairs: np.ndarray) -> np.ndarray:
    """Return pairs (P, 2, C, H, W) uint8 overlaid in two colours, (P, 3, H, W) uint8."""
    colours = np.array([to_rgb(FIRST), to_rgb(SECOND)])
    added = np.einsum("pkhw,kc->pchw", pairs.mean(2), colours)
    return np.minimum(added, 255).round().astype(np.uint8)


def _measure(field: str, names: str, label: str, axes, result):
    """Draw a mean over the images with its controls."""
    estimate = getattr(result, field)
    looks = [(FIRST, "o"), *[(CONTROL, "s")] * (len(estimate) - 1)]
    form = ".2f" if field == "iou" else ".1f"
    numbered(axes, getattr(result, names), estimate, looks, form)
    axes.set(xlim=(0, 1.12 if field == "iou" else 1.2 * estimate.ci95.max()), xlabel=label)


MATCH = "for the digits that the two longest capsules decode to, with controls, the mean "
PANELS = {
    "examples": Panel(partial(_pictures, False), partial(_tall, False), 0.67),
    "failures": Panel(
        partial(_pictures, True), partial(_tall, True), 0.33,
        shown=lambda result: result.failures > 0,
        caption="misclassified images, the longest wrong capsule first",
    ),
    "sse": Panel(
        partial(_measure, "sse", "drawings", "mean SSE from the digit alone"), 1.45,
        figure="measures", marks="bars",
        caption=f"{MATCH}|reconstruction error (SSE)",
    ),
    "iou": Panel(
        partial(_measure, "iou", "divisions", "mean IoU with the digit"), 1.45, figure="measures",
        marks="bars", caption=f"{MATCH}|overlap (IoU)",
    ),
}  # fmt: skip
