"""Panels of `detect`: AUROC with controls and shares; distances; an example of every set."""

import numpy as np

from capsviz.analysis import Panel
from capsviz.results import COLOURS
from capsviz.results.panels import album, by_rows, dots, name_rows, room, wrapped

MARKS = (  # of each score
    (COLOURS[0], "o"), (COLOURS[1], "s"), (COLOURS[2], "^"), (COLOURS[3], "D"), (COLOURS[6], "x"),
)  # fmt: skip
SHARES = {
    "misclassified": (COLOURS[4], "s", "misclassified"), "flagged": (COLOURS[0], "^", "flagged"),
    "undetected": (COLOURS[5], "o", "misclassified,\nnot flagged"),
}  # fmt: skip
LINE, NAMES = 0.12, 0.62  # inches: height of a line; width of the names of rows
CELL, NARROWEST = 0.72, 0.5  # inches: largest and smallest width of an example


def _distances(axes, result):
    """Draw the distance of every image, with median, quartiles and the threshold."""
    height = np.random.default_rng(0).uniform(-0.28, 0.28, result.n)
    for y, values in enumerate(result.values[:, 0]):
        low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
        axes.plot(values, y + height, ".", color="#7F7F7F", markersize=1.5, alpha=0.5)
        axes.plot([low, high], [y, y], color=COLOURS[0], linewidth=3, solid_capstyle="butt")
        axes.plot(middle, y, "o", color=COLOURS[0], markerfacecolor="white", markersize=4)
    axes.axvline(result.threshold, color=COLOURS[1], linewidth=0.9, label="threshold")
    name_rows(axes, result.sets)
    axes.set_xlim(0, None)
    text = "L2 distance to the reconstruction; bars: quartiles, rings: median"
    axes.set_xlabel(wrapped(text, 0.75 * room(axes)))


def _lines(result, width: float) -> tuple[int, int, float]:
    """Return lines and columns of examples, and the width of a picture in inches."""
    lines = -(-len(result.sets) // int((width - NAMES) / NARROWEST))
    columns = -(-len(result.sets) // lines)
    return lines, columns, min((width - NAMES) / columns, CELL)


def _examples(axes, result):
    """Draw the first image of each set, its reconstruction, class and distance (*: flagged)."""
    _, columns, _ = _lines(result, room(axes))
    below = [
        f"{result.classes[k]}\n{far:.1f}{' *' if far > result.threshold else ''}"
        for k, far in zip(result.predicted[:, 0], result.values[:, 0, 0], strict=True)
    ]
    above = [name.replace(" ", "\n", 1) for name in result.sets]
    rows = ("input", "recon-\nstruction")
    under = album(axes, result.examples.swapaxes(0, 1), columns, rows, above, below)
    under.set_xlabel("predicted class, below it the distance; *: flagged")


def _tall_examples(result, width: float) -> float:
    lines, _, cell = _lines(result, width)
    return lines * (2 * cell + 5.4 * LINE) + 0.2


def _areas(axes, result):
    """Draw AUROC of the distance to the predicted class's reconstruction, against unchanged
    images.
    """
    name_rows(axes, result.sets)
    each = [result.auroc[:, s] for s in range(len(result.scores))]
    kinds = zip(each, MARKS, result.scores, strict=True)
    dots(axes, ((one, *mark, f"distance: {name}") for one, mark, name in kinds), 0.145, start=1)
    axes.axvline(0.5, color="#7F7F7F", linewidth=0.6, linestyle=":")
    axes.set(xlim=(-0.03, 1.03), xlabel="AUROC against unchanged")


def _shares(axes, result):
    """Draw shares of images that are misclassified, flagged, and misclassified but not flagged."""
    dots(axes, ((100 * getattr(result, field), *look) for field, look in SHARES.items()), 0.22)
    axes.set(xlim=(-3, 103), xlabel="% of images")
    name_rows(axes, result.sets)


PANELS = {
    "auroc": Panel(_areas, by_rows("sets", 0.2, 0.6), 0.56, 0.56, marks="bars"),
    "shares": Panel(_shares, by_rows("sets", 0.2, 0.6), 0.44, 0.44, marks="bars"),
    "distances": Panel(_distances, by_rows("sets", 0.24, 0.6), 1, figure="distances"),
    "examples": Panel(_examples, _tall_examples, 1, figure="examples", shown="examples"),
}  # fmt: skip
