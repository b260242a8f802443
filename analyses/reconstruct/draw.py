"""Panels of `reconstruct`: examples by class, confident failures, SSE per class."""

from functools import partial

import numpy as np

from capsviz.analysis import Panel
from capsviz.results.panels import album, room, wrapped

ROWS = ("input", "from\npredicted", "from\ntrue")
PREDICTED, TRUE = "#D55E00", "#0072B2"
LETTER, LINE, NAMES = 0.06, 0.12, 0.75  # inches: a letter, a text line, the row names
CELL = 0.5  # inches: largest size of a picture


def _layout(kind: str, result, width: float) -> tuple[list[str], int, int, float]:
    """Return the names above the pictures, columns, name rotation, and panel height in inches."""
    truth, winner = (getattr(result, f"{kind}_{what}") for what in ("labels", "predicted"))
    names = [
        result.classes[a] + (f"\nas {result.classes[b]}" if a != b else "")
        for a, b in zip(truth, winner, strict=True)
    ]
    count = len(names)
    columns = max(1, min(10 if width >= 5 else 6, count))
    cell = min(CELL, (width - NAMES) / max(columns, 4))
    rotation = rotation_of(names, cell)
    head = LETTER * _longest(names) if rotation else LINE * 2
    foot = 3.4 * LINE if kind == "failure" else 0.0
    tall = -(-count // columns) * (3 * cell + head + foot + LINE) + 2 * LINE
    return names, columns, rotation, tall


def _pictures(kind: str, axes, result):
    """Draw images, and their reconstructions from the predicted and from the true class. Orange
    names: misclassified images.
    """
    names, columns, rotation, _ = _layout(kind, result, room(axes))
    failed = kind == "failure"
    below = [f"{p:.2f}\n{t:.2f}" for p, t in result.failure_lengths] if failed else None
    wrong = getattr(result, f"{kind}_labels") != getattr(result, f"{kind}_predicted")
    under = album(
        axes, getattr(result, f"{kind}s").swapaxes(0, 1), columns, ROWS, names, below,
        colours=[PREDICTED if one else "black" for one in wrong], rotation=rotation,
    )  # fmt: skip
    title = f"test images of {result.dataset} by class"
    if failed:
        title = f"misclassified, {len(names)} of {result.wrong}, most confident first"
    axes.parts[0].set_title(wrapped(title, 0.9 * room(axes), 7.5))
    if under is not None:
        under.set_xlabel(f"{result.score.split()[-1]}: predicted, below it true")


def _tall(kind: str, result, width: float) -> float:
    return _layout(kind, result, width)[-1]


def rotation_of(names, inches) -> int:
    """Return 0 degrees if every name fits into so many inches, else 90."""
    return 90 if LETTER * _longest(names) > inches else 0


def _longest(names) -> int:
    return max((len(line) for name in names for line in name.split("\n")), default=0)


def _errors(axes, result):
    """Draw squared error of reconstructions from the predicted and from the true class."""
    place, inches = np.arange(len(result.numbers)), 0.85 * room(axes)
    for sse, colour, marker, shift, name in (
        (result.sse_predicted, PREDICTED, "o", -0.13, "from the predicted class"),
        (result.sse_true, TRUE, "s", 0.13, "from the true class"),
    ):
        look = {"fmt": marker, "color": colour, "elinewidth": 0.9, "label": name}
        axes.errorbar(place + shift, sse.value, sse.high - sse.value, **look)
    names = [result.classes[k] for k in result.numbers]
    axes.set_xticks(place, names, rotation=rotation_of(names, inches / max(1, len(names))))
    axes.set(xlabel="true class", ylabel="SSE per image", xlim=(-0.6, len(names) - 0.4))
    axes.set_ylim(bottom=0)


PANELS = {
    "examples": Panel(partial(_pictures, "example"), partial(_tall, "example"), 1),
    "sse": Panel(_errors, 1.9, 1 / 2, figure="errors", marks="bars"),
    "failures": Panel(
        partial(_pictures, "failure"), partial(_tall, "failure"), figure="errors",
        shown=lambda result: len(result.failures) > 0,
        caption="misclassified images with the longest wrong capsules",
    ),
}  # fmt: skip
