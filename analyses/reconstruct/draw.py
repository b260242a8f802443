"""Drawings for `reconstruct`: examples by class, confident failures, SSE per class."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from capsviz.results.panels import album, wrapped

ROWS = ("input", "from\npredicted", "from\ntrue")
PREDICTED, TRUE = "#D55E00", "#0072B2"
LETTER, LINE, NAMES = 0.06, 0.12, 0.75  # inches: a letter, a line of text, the names of the rows
CELL = 0.66  # inches of a picture, at most


def sheet(result, width):
    """Examples above; failures and SSE beside each other, or below each other in one column."""
    beside = width >= 5 and len(result.failures) > 0
    blocks = [_block(result, "example", width, 10)]
    if len(result.failures):
        blocks.append(_block(result, "failure", 0.56 * width if beside else width, 6))
    heights = [height for height, _ in blocks]
    if beside:
        heights[-1] = max(heights[-1], 2.3)
    else:
        heights.append(2.0 if width < 5 else 2.3)
    figure = Figure(figsize=(width, sum(heights)))
    parts = list(figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0])
    if beside:
        parts[1:] = parts[1].subfigures(1, 2, width_ratios=[0.56, 0.44])
    drawn = set(result.example_labels.tolist())
    absent = [name for k, name in enumerate(result.classes) if k not in drawn]
    none = f"; none of {', '.join(absent)} among them" if absent else ""
    count = f"{len(result.failures)} of {result.wrong}"
    titles = [f"test images of each class, {result.dataset}{none}",
              f"misclassified, {count}, most confident first"]  # fmt: skip
    for (_, draw), part, title in zip(blocks, parts, titles, strict=False):
        part.suptitle(title)
        under = draw(part)
        if under is not None:
            word = result.score.split()[-1]
            under.set_xlabel(f"{word} of the predicted capsule, below it of the true one")
    _errors(parts[-1], result, inches=0.4 * width if beside else 0.85 * width)
    return figure


def _block(result, kind, width, columns):
    """Return the height of pictures in threes, wrapped into lines, and what draws them."""
    pictures = getattr(result, f"{kind}s")
    truth, winner = (getattr(result, f"{kind}_{what}") for what in ("labels", "predicted"))
    names = [
        result.classes[a] + (f"\nas {result.classes[b]}" if a != b else "")
        for a, b in zip(truth, winner, strict=True)
    ]
    columns = min(columns, max(len(pictures), 4))
    cell = min(CELL, (width - NAMES) / columns)
    rotation = rotation_of(names, cell)
    head = LETTER * _longest(names) if rotation else LINE * 2
    below, foot = None, 0.0
    if kind == "failure":
        below, foot = [f"{p:.2f}\n{t:.2f}" for p, t in result.failure_lengths], 3.4 * LINE
    height = -(-len(pictures) // columns) * (3 * cell + head + foot + LINE) + 2.5 * LINE
    colours = [PREDICTED if wrong else "black" for wrong in truth != winner]
    return height, lambda figure: album(
        figure, pictures.swapaxes(0, 1), columns, ROWS, names, below, colours=colours,
        rotation=rotation,
    )  # fmt: skip


def rotation_of(names, inches) -> int:
    """Return the rotation of names, in degrees, with which each fits into so many inches."""
    return 90 if LETTER * _longest(names) > inches else 0


def _longest(names) -> int:
    return max((len(line) for name in names for line in name.split("\n")), default=0)


def _errors(figure, result, inches):
    axes = figure.subplots()
    place = np.arange(len(result.numbers))
    for sse, colour, marker, shift, name in (
        (result.sse_predicted, PREDICTED, "o", -0.13, "from the predicted class"),
        (result.sse_true, TRUE, "s", 0.13, "from the true class"),
    ):
        look = {"fmt": marker, "color": colour, "elinewidth": 0.9, "label": name}
        axes.errorbar(place + shift, sse.value, sse.high - sse.value, **look)
    names = [result.classes[k] for k in result.numbers]
    axes.set_xticks(place, names, rotation=rotation_of(names, inches / max(1, len(names))))
    top = max(sse.ci95.max(initial=0) for sse in (result.sse_predicted, result.sse_true)) or 1
    columns = 2 if inches > 2.5 else 1  # of the key, in the free room above
    axes.set(xlabel="true class", ylabel="SSE per image", ylim=(0, (1.75 - 0.2 * columns) * top))
    axes.set_xlim(-0.6, len(names) - 0.4)
    text = f"mean and 95 %, {result.n:,} images of {result.dataset}"
    axes.set_title(wrapped(text, 0.85 * inches, 7.5))
    axes.legend(loc="upper center", ncols=columns, columnspacing=1, handletextpad=0.3)
