"""Panels of `predict`: a row for each picture, a column for each step."""

from __future__ import annotations

from capsviz.analysis import Panel
from capsviz.results.panels import mosaic, room, split
from capsviz.statistics.detection import remarks

HEADS = {
    "original": "original",
    "grey": "original, grey",
    "inverted": "bright strokes",
    "ink": "strokes alone",
    "cropped": "cropped",
    "input": "network sees",
    "reconstruction": "reconstruction",
}
TEXT = 1.9  # inches of the words beside a row
CELL = 1.0  # inches of a picture, at most
HEAD = 0.75  # inches of the longest head
LINE = 0.115  # inches of a line of these words
LONGEST = 22  # letters of a file's name


def _layout(result, width: float) -> tuple[list[int], bool, list[float]]:
    """Return the steps with a picture, whether heads are upright, and the heights of rows."""
    steps = [k for k in range(len(result.steps)) if (result.pictures[:, k] < 255).any()]
    cell = min(CELL, (width - TEXT) / len(steps))
    words = [_words(result, row) for row in range(len(result.files))]
    heights = [max(cell, LINE * (text.count("\n") + 1)) + 0.06 for text in words]
    return steps, cell < HEAD, heights


def _steps(axes, result):
    """Draw the steps from a picture to what the network sees, and the prediction beside them."""
    steps, rotated, heights = _layout(result, room(axes))
    grid = split(axes, len(heights), 1, height_ratios=heights)[:, 0]
    for row, one in enumerate(grid):
        y, x = mosaic(one, result.pictures[row : row + 1, steps], len(steps))
        one.set(anchor="W", xticks=[])
        one.yaxis.tick_right()
        one.set_yticks(y, [_words(result, row)], fontsize=6)
        one.tick_params(length=0)
    grid[0].xaxis.tick_top()
    heads = [HEADS[result.steps[k]] for k in steps]
    grid[0].set_xticks(x, heads, rotation=90 if rotated else 0)


def _tall(result, width: float) -> float:
    _, rotated, heights = _layout(result, width)
    return sum(heights) + (HEAD if rotated else 0.25)


def _words(result, row) -> str:
    name, sse = result.files[row], result.sse[row]
    if len(name) > LONGEST:
        name = f"{name[: LONGEST - 1]}…"
    prediction = f"{result.predicted[row]} ({result.score} {result.lengths[row]:.2f})"
    texts = [name, prediction + ("" if sse is None else f", SSE {sse:.1f}")]
    if result.unlike[row] is False:
        texts.append("like the training data")
    odd = (result.unlike[row], result.reasons[row], result.pieces[row])
    for text in remarks(*odd, result.score):
        texts += text.replace(" (", "\n(").replace(": ", ":\n").splitlines()
    return "\n".join(texts)


PANELS = {"steps": Panel(_steps, _tall, 1)}
