"""Drawings for `segment`: pairs of digits in two colours; error and overlap."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from capsviz.results.panels import mosaic

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
    first = _Block(result, range(P - F), fits)
    blocks = [first, _Block(result, range(P - F, P), fits)] if F else [first]
    cell = min(CELL, (width - (1 + beside) * NAMES) / (P if beside else min(fits, P)))
    tops = [block.height(cell) for block in blocks]
    heights = [max(tops)] if beside else tops
    figure = Figure(figsize=(width, LINE * 2 + sum(heights)), layout="constrained")
    key, *places = figure.subfigures(
        len(heights) + 1, 1, height_ratios=[2 * LINE, *heights], squeeze=False
    )[:, 0]
    _key(key)
    if beside:
        ratios = [NAMES + cell * len(block.which) for block in blocks]
        places = places[0].subfigures(1, 2, width_ratios=ratios)
    last = result.first + P - F - 1
    which = f"images {result.first} to {last}" if last > result.first else f"image {last}"
    wrong = round(result.n * (1 - float(result.right.value)))
    titles = [f"{result.dataset}, {which}", f"{F} of {wrong:,} misclassified"]
    for block, place, title in zip(blocks, places, titles, strict=False):
        block.draw(place, title)
    return figure


class _Block:
    """Columns of pictures, wrapped into lines."""

    def __init__(self, result, which, columns):
        self.result, self.which = result, list(which)
        self.columns = min(columns, len(self.which))
        self.lines = -(-len(self.which) // self.columns)

    def height(self, cell):
        tall = cell * self.result.inputs.shape[2] / self.result.inputs.shape[3]
        return self.lines * (len(ROWS) * tall + 4.5 * LINE) + 1.5 * LINE

    def draw(self, figure, title):
        r = self.result
        figure.suptitle(title)
        for line, axes in enumerate(figure.subplots(self.lines, 1, squeeze=False)[:, 0]):
            some = self.which[line * self.columns : (line + 1) * self.columns]
            grey = np.repeat(r.inputs[some].mean(1, keepdims=True), 3, 1)
            rows = [grey, *(overlay(pair[some]) for pair in (r.parts, r.drawn, r.wrong_pair))]
            y, x = mosaic(axes, np.stack(rows), self.columns)
            axes.set_yticks(y, ROWS, linespacing=1.0)
            labels, predicted = ([self._pair(v[i]) for i in some] for v in (r.labels, r.predicted))
            pairs = zip(labels, predicted, strict=True)
            axes.set_xticks(x, [f"true {true}\npred. {winner}" for true, winner in pairs])
            axes.xaxis.tick_top()
            for text, i in zip(axes.get_xticklabels(), some, strict=True):
                text.set_color("black" if (r.labels[i] == r.predicted[i]).all() else WRONG)
            under = axes.secondary_xaxis("bottom")
            under.spines[:].set_visible(False)
            under.tick_params(length=0, pad=2)
            pairs = [(r.labels[i, 0], r.absent[i]) for i in some]
            under.set_xticks(x, [f"* {self._pair(pair)}" for pair in pairs])

    def _pair(self, classes):
        return ", ".join(self.result.classes[k] for k in classes)


def overlay(pairs: np.ndarray) -> np.ndarray:
    """Pairs (P, 2, C, H, W) uint8 as images (P, 3, H, W) uint8, a colour each, added."""
    colours = np.array([to_rgb(FIRST), to_rgb(SECOND)])
    added = np.einsum("pkhw,kc->pchw", pairs.mean(2), colours)
    return np.minimum(added, 255).round().astype(np.uint8)


def _key(figure):
    parts = ((FIRST, "first of the pair"), (SECOND, "second"), (BOTH, "both"))
    handles = [Patch(facecolor=c, edgecolor="black", linewidth=0.4, label=t) for c, t in parts]
    figure.legend(handles=handles, loc="center", ncols=3, title=None)


def measures(result, width):
    """Error and overlap of the drawings with their controls."""
    side = width >= 5
    figure = Figure(figsize=(width, 1.75 if side else 3.4))
    axes = figure.subplots(*((1, 2) if side else (2, 1)))
    for one, kind, names in zip(
        axes, ("sse", "iou"), (result.drawings, result.divisions), strict=True
    ):
        estimate = getattr(result, kind)
        for y, (value, interval) in enumerate(zip(estimate.value, estimate.ci95, strict=True)):
            colour, marker = (FIRST, "o") if y == 0 else (CONTROL, "s")
            one.plot(interval, [y, y], color=colour)
            one.plot(value, y, marker, color=colour)
            one.annotate(
                f"{value:.2f}" if kind == "iou" else f"{value:.1f}",
                (interval[1], y), (4, 0), textcoords="offset points", va="center", fontsize=6,
            )  # fmt: skip
        one.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.4, -0.6))
        one.set_xlim(0, 1.2 * estimate.ci95.max())
    axes[0].set_xlabel("mean SSE from the digit alone")
    axes[1].set(xlabel="mean IoU with the digit", xlim=(0, 1.12))
    axes[0].set_title(f"{result.n:,} images of {result.dataset}")
    axes[1].set_title("bars: 95 %")
    return figure
