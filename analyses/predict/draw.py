"""Drawing for `predict`: a row for each picture, a column for each step."""

from __future__ import annotations

from matplotlib.figure import Figure

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
    steps = len(result.steps)
    cell = min(CELL, (width - TEXT) / steps)
    rotated = cell < HEAD
    words = [_words(result, row) for row in range(len(result.files))]
    heights = [max(cell, LINE * (text.count("\n") + 1)) + 0.06 for text in words]
    figure = Figure(figsize=(width, sum(heights) + (HEAD if rotated else 0.25)))
    grid = figure.subplots(len(words), 1, squeeze=False, height_ratios=heights)[:, 0]
    for row, (axes, text) in enumerate(zip(grid, words, strict=True)):
        y, x = mosaic(axes, result.pictures[row : row + 1], steps)
        axes.set(anchor="W", xticks=[])
        axes.yaxis.tick_right()
        axes.set_yticks(y, [text], fontsize=6)
        axes.tick_params(length=0)
    grid[0].xaxis.tick_top()
    heads = [HEADS[name] for name in result.steps]
    grid[0].set_xticks(x, heads, rotation=90 if rotated else 0)
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
