"""Drawing for the law of a warp: R2 of the vector and of its change, by law and kind of vector."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from capsviz.analyses.equivariance.law.words import BASELINES
from capsviz.analyses.equivariance.words import LOWEST
from capsviz.results.panels import intervals, look

WIDE = 5.0  # inches from which on the key stands in two columns
LINE = 0.135  # inches of a line of the key
PAGE = 9.0  # inches, the height of one
FIELDS = (("explained", "R² of the vector"), ("change", "R² of its change"))


def sheet(result, width):
    """Two panels for each warp; a key above."""
    F, S, L = result.explained.value.shape[1], len(result.sources), len(result.laws)
    across = 2 if width >= WIDE else 1
    key = LINE * -(-S // across)
    tall = min(L * max(0.3, 0.07 * S), (PAGE - key - 0.15) / F - 0.5)
    figure = Figure(figsize=(width, F * (tall + 0.5) + key + 0.15))
    grid = figure.subplots(F, 2, squeeze=False, sharey=True)
    for f in range(F):
        for axes, (field, name) in zip(grid[f], FIELDS, strict=True):
            _rows(axes, result, getattr(result, field), f)
            axes.set_xlabel(f"{name},{' ' if width >= WIDE else chr(10)}{result.warps[f]}")
    lines = [Line2D([], [], linewidth=0.8, **look(s)) for s in range(S)]
    words = [
        f"{one}: {count:,} numbers"
        for one, count in zip(result.sources, result.dimensions, strict=True)
    ]
    figure.legend(lines, words, loc="outside upper center", ncols=across, handlelength=1.6)
    return figure


def _rows(axes, result, estimate, f):
    """A row for each law, a point with its interval for each kind of vector."""
    S, L = len(result.sources), len(result.laws)
    y, low = np.arange(L), np.fmin.reduce(estimate.low[:, f], None, initial=0.0)  # some may be NaN
    left = max(LOWEST, low - 0.05)
    for s in range(S):
        at = y + (s - (S - 1) / 2) * 0.7 / S
        intervals(axes, estimate[s, f], at, look(s), left)
    for law in BASELINES[1:]:
        axes.axhline(law - 0.5, color="#BBBBBB", linewidth=0.5)
    axes.axhline(BASELINES[0] + 0.5, color="#BBBBBB", linewidth=0.5)
    axes.axvline(0, color="#7F7F7F", linewidth=0.5)
    axes.set_yticks(y, result.laws)
    axes.set(xlim=(left, 1.03), ylim=(L - 0.5, -0.5))
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
