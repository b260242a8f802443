"""Panels of `predict`: a row for each picture, a column for each step."""

from capsviz.analysis import Panel
from capsviz.arrangement import tallest
from capsviz.results.panels import mosaic, room, split, wrapped
from capsviz.statistics.detection import remarks

HEADS = {
    "original": "original",
    "grey": "original, grey",
    "inverted": "bright strokes",
    "ink": "strokes alone",
    "cropped": "cropped",
    "input": "network sees",
    "reconstruction": "decoder output",
}
# Sizes are in inches.
TEXT = 2.05  # width of the words beside a row
CELL, NARROW = 1.0, 0.45  # largest picture; below the second size, heads are vertical
HEAD, UPRIGHT = 0.3, 0.75  # height of horizontal and vertical heads
LINE, GAP = 0.115, 0.06  # height of a line of words, space between rows
LONGEST = 22  # letters of a name, at most
ROWS = 8  # rows of pictures, at most
FEW, WIDE = 4, 6.6  # more pictures than this are in two columns, if the figure is wider than this


def _layout(result, width: float) -> tuple[list[int], int, int, float, float]:
    """Return the steps with a picture, columns, rows, and inches of a picture and of a row."""
    steps = [k for k in range(len(result.steps)) if (result.pictures[:, k] < 255).any()]
    count = len(result.files)
    lines = max(_words(result, row).count("\n") + 1 for row in range(count))
    columns = 1 + (count > FEW and width > WIDE)
    rows = min(ROWS, -(-count // columns))
    tall = (tallest(width) - HEAD) / rows - GAP
    cell = min(CELL, (width / columns - TEXT) / len(steps), tall)
    return steps, columns, rows, cell, max(cell, LINE * lines) + GAP


def _steps(axes, result):
    """Draw the steps from a picture to what the network sees, and the prediction beside them."""
    steps, columns, rows, cell, _ = _layout(result, room(axes))
    grid = split(axes, rows, columns)
    every = grid.T.ravel()
    count, upright = len(result.files), cell < NARROW
    heads = [HEADS[result.steps[k]] for k in steps]
    heads = heads if upright else [wrapped(head, cell, 6) for head in heads]
    for row, one in enumerate(every):
        if row >= count:
            one.axis("off")
            continue
        y, x = mosaic(one, result.pictures[row : row + 1, steps], len(steps))
        one.set(anchor="W", xticks=[])
        one.yaxis.tick_right()
        one.set_yticks(y, [_words(result, row)], fontsize=6)
        one.tick_params(length=0)
        if one in grid[0]:
            one.xaxis.tick_top()
            one.set_xticks(x, heads, rotation=90 if upright else 0, fontsize=6)
    if len(every) < count:
        every[rows - 1].set_xlabel(
            f"{len(every)} of {result.of or count} pictures", loc="left", fontsize=6
        )


def _tall(result, width: float) -> float:
    _, _, rows, cell, row = _layout(result, width)
    return row * rows + (UPRIGHT if cell < NARROW else HEAD)


def _words(result, row) -> str:
    name, predicted = (
        one if len(one) <= LONGEST else f"{one[: LONGEST - 1]}…"
        for one in (result.files[row], result.predicted[row])
    )
    error = "" if (sse := result.sse[row]) is None else f", SSE {sse:.1f}"
    texts = [name, f"{predicted} ({result.score} {result.lengths[row]:.2f}){error}"]
    if result.unlike[row] is False:
        texts.append("like the training data")
    odd = (result.unlike[row], result.reasons[row], result.pieces[row])
    return wrapped("\n".join([*texts, *remarks(*odd, result.score)]), TEXT - 0.15, 6)


PANELS = {"steps": Panel(_steps, _tall, 1)}
