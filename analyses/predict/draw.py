"""Drawing for `predict`: a row for each picture, a column for each step."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import PlaceHolderLayoutEngine

from capsviz.results.panels import mosaic
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
TEXT = 1.6  # inches of the words beside a row
CELL = 1.0  # inches of a picture, at most
HEAD = 0.75  # inches of the longest head
LINE = 0.115  # inches of a line of these words
LONGEST = 22  # letters of a file's name


def sheet(result, width):
    """Draw the steps from left to right, and the prediction beside them."""
    count, steps = len(result.files), len(result.steps)
    cell = min(CELL, (width - TEXT) / steps)
    rotated = cell < HEAD
    words = [_words(result, row) for row in range(count)]
    heights = [max(cell, LINE * (text.count("\n") + 1)) + 0.06 for text in words]
    height = sum(heights) + (HEAD if rotated else 0.25)
    # Not "none": saving sets that back to the house style's own layout.
    figure = Figure(figsize=(width, height), layout=PlaceHolderLayoutEngine(True, False))
    top = 0.04
    for row, text in reversed(list(enumerate(words))):
        middle = top + heights[row] / 2
        top += heights[row]
        place = (0.04, middle - cell / 2, cell * steps, cell)
        axes = figure.add_axes(np.divide(place, (width, height, width, height)))
        axes.set_anchor("W")
        y, x = mosaic(axes, result.pictures[row : row + 1], steps)
        axes.set_xticks([])
        if row == 0:
            axes.xaxis.tick_top()
            heads = [HEADS[name] for name in result.steps]
            axes.set_xticks(x, heads, rotation=90 if rotated else 0)
        axes.yaxis.tick_right()
        axes.set_yticks(y, [text], fontsize=6)
        axes.tick_params(length=0)
    return figure


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
