"""Drawing for `side_by_side`: what was counted over a test set, network by network."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from capsviz.results import COLOURS
from capsviz.results.panels import wrapped

BLUE, RED, GREY = COLOURS[0], COLOURS[1], "#7F7F7F"
WIDE = 5.0  # inches: from here on the panels stand side by side


def draw(result, width):
    """Accuracy, what uniform couplings cost, effective parents; a row for each network."""
    wide, K = width >= WIDE, len(result.networks)
    shape = (1, 3) if wide else (3, 1)
    tall = 0.27 * K + 0.65
    figure = Figure(figsize=(width, tall * shape[0] + 0.45))
    grid = figure.subplots(*shape, sharey=True).flat
    at = np.arange(K)
    _points(grid[0], at - 0.12, 100 * result.accuracy, RED, "o", "routed")
    _points(grid[0], at + 0.12, 100 * result.uniform_accuracy, BLUE, "s", "uniform")
    grid[0].set(xlabel="accuracy, %")
    grid[0].legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2, frameon=False
    )
    _points(grid[1], at, 100 * result.cost, RED, "o")
    grid[1].axvline(0, color=GREY, linewidth=0.6)
    grid[1].set(xlabel="accuracy lost with\nuniform couplings, points")
    _points(grid[2], at, result.effective_parents, RED, "o")
    J = len(result.classes)
    grid[2].axvline(J, color=GREY, linestyle=":")
    grid[2].set(xlabel=f"effective parents of a capsule\n(dotted: all {J})", xlim=(0.5, J + 0.5))
    for axes in grid:
        axes.set_ylim(K - 0.5, -0.5)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_yticks(at, [name.replace("-", "-\n", 1) for name in result.networks], fontsize=6.5)
    text = f"{result.n:,} images of {result.dataset}; bars: 95 % intervals"
    figure.suptitle(wrapped(text, width - 0.1, 6.5), fontsize=6.5)
    return figure


def _points(axes, at, estimate, colour, marker, label=None):
    away = np.maximum([estimate.value - estimate.low, estimate.high - estimate.value], 0)
    axes.errorbar(
        estimate.value, at, xerr=away, fmt=marker, color=colour, capsize=1.5, label=label,
        mfc="white" if label == "uniform" else colour,
    )  # fmt: skip
