"""Drawings for `equivariance`: R2 by size of each warp, what can be read off, and R2 by law."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from capsviz.results.common_panels import band, name_rows
from capsviz.results.panels import intervals, look, wrapped
from capsviz.statistics.estimate import Estimate

WIDE = 5.0  # inches from which on panels stand in three columns
LINES = ("-", "--", "-.", (0, (3, 1, 1, 1, 1, 1)))
LINE = 0.135  # inches of a line of the key
LOWEST = -0.6  # of the axes of R2: lower values run out of them
PAGE = 9.0  # inches, the height of one
FIELDS = (("explained", "R² of the vector"), ("change", "R² of its change"))


def sheet(result, width):
    """Draw panels of all warps, of the probe, and of the number of images; a key above."""
    # The warps whose curve in the number of images is shown: as many as fill the last row.
    counted = [0, len(result.warps) // 2][: 1 + (len(result.warps) > 3)]
    counted = counted if len(result.fit_counts) > 1 else []
    panels = len(result.warps) + 1 + len(counted)
    columns = 2 if width < WIDE else 4 if panels > 6 else 3
    rows = -(-panels // columns)
    sources = range(len(result.sources))
    lines = [Line2D([], [], **_look(s)) for s in sources]
    words = [_words(result, s) for s in sources]
    lines.append(Line2D([], [], color="black", linestyle=":", linewidth=0.9))
    words.append(f"{result.sources[0]}, unchanged")
    across = 2 if width >= 6.8 else 1
    words = [wrapped(text, width / across - 0.5) for text in words]
    key = LINE * sum(text.count("\n") + 1 for text in words) / across + 0.02 * len(words)
    figure = Figure(figsize=(width, 1.75 * rows + key + LINE + 0.1))
    grid = figure.add_gridspec(rows, columns)
    first = None
    for f in range(len(result.warps)):
        first = axes = figure.add_subplot(grid[divmod(f, columns)], sharey=first)
        _curves(axes, result, f)
        _left(axes, f, columns)
    axes = figure.add_subplot(grid[divmod(len(result.warps), columns)])
    _probe(axes, result, "\n" if width < WIDE else " ")
    for place, f in enumerate(counted, len(result.warps) + 1):
        axes = figure.add_subplot(grid[divmod(place, columns)])
        _by_count(axes, result, f)
        _left(axes, place if place > len(result.warps) + 1 else 0, columns)
    figure.legend(
        lines, words, loc="outside upper center", ncols=across, handlelength=2.8,
        title=f"{result.n:,} images of {result.dataset}; bands: 95 %", title_fontsize=6.5,
    )  # fmt: skip
    return figure


def _left(axes, place, columns):
    """The name of the axis at the left of a row alone."""
    if place % columns:
        axes.tick_params(labelleft=False)
    else:
        axes.set_ylabel("R² of an affine map")


def _by_count(axes, result, f):
    """R2 of the affine maps of one warp by the number of images that they are fitted on."""
    for s in range(len(result.sources)):
        band(axes, result.fit_counts, result.by_count[s, f], **_look(s))
    low = min(0.0, float(result.by_count.low[:, f].min()))
    axes.set(xscale="log", ylim=(max(LOWEST, low - 0.03), 1.03))
    axes.axhline(0, color="#7F7F7F", linewidth=0.5)
    axes.set_xticks(result.fit_counts, [str(m) for m in result.fit_counts])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(f"images a class, {result.warps[f]}")


def _look(s: int) -> dict:
    return look(s) | {"linestyle": LINES[s % len(LINES)], "markersize": 2.8}


def _untrained(name: str) -> str:
    """A kind of vectors as pictures have it."""
    return name.replace("freshly initialised", "untrained")


def _words(result, s: int) -> str:
    count, kept = result.dimensions[s], result.kept
    number = f"{count} numbers" if count <= kept else f"{kept} components of {count:,} numbers"
    if count > kept:
        ends = sorted({f"{100 * kept:.0f}" for kept in result.variance_kept[s]}, key=float)
        number += f" ({'–'.join((ends[0], ends[-1])[: len(ends)])} % of variance)"
    return f"{_untrained(result.sources[s])}: {number}"


def _curves(axes, result, f):
    """Affine maps of all vectors with bands; the first one's unchanged, dotted."""
    middle = result.sizes.shape[1] // 2
    x = np.insert(result.sizes[f], middle, result.neutral[f])
    measured = np.delete(np.arange(len(x)), middle).tolist()
    for s in range(len(result.sources)):
        one = result.fitted[s, f]  # R2 is 1 where nothing is warped
        whole = Estimate(*(np.insert(part, middle, 1.0, axis=0) for part in (one.value, one.ci95)))
        band(axes, x, whole, **_look(s), markevery=measured)
    unchanged = np.insert(result.unchanged.value[0, f], middle, 1.0)
    axes.plot(x, unchanged, color="black", linestyle=":", linewidth=0.9)
    axes.axhline(0, color="#7F7F7F", linewidth=0.5)
    unit = f", {result.units[f].strip()}".removesuffix(", ")
    axes.set(ylim=(LOWEST, 1.03), xlabel=result.labels[f].split(",")[0] + unit)
    axes.set_xticks([*result.sizes[f, [0, -1]], result.neutral[f]])


def _probe(axes, result, space):
    """R2 of the size read from each vector, by warp, with 95 % intervals."""
    S = len(result.sources)
    y = np.arange(len(result.warps))
    for s in range(S):
        look = _look(s) | {"linestyle": "none"}
        at = y + (s - (S - 1) / 2) * 0.7 / S
        axes.hlines(at, *result.probe.ci95[s].T, color=look["color"], linewidth=0.8)
        axes.plot(result.probe.value[s], at, **look)
    left = max(LOWEST, min(0, float(result.probe.low.min())) - 0.05)
    name_rows(axes, result.warps, left, f"R² of the size,{space}linear probe")


def laws(result, width):
    """Draw two panels for each warp; a key above."""
    F, S, L = result.explained.value.shape[1], len(result.sources), len(result.laws)
    across = 2 if width >= WIDE else 1
    key = LINE * -(-S // across)
    tall = min(L * max(0.3, 0.07 * S), (PAGE - key - 0.15) / F - 0.5)
    figure = Figure(figsize=(width, F * (tall + 0.5) + key + 0.15))
    grid = figure.subplots(F, 2, squeeze=False, sharey=True)
    for f in range(F):
        for axes, (field, name) in zip(grid[f], FIELDS, strict=True):
            label = f"{name},{' ' if width >= WIDE else chr(10)}{result.warps[f]}"
            _law_rows(axes, result, getattr(result, field), f, label)
    lines = [Line2D([], [], linewidth=0.8, **look(s)) for s in range(S)]
    words = [
        f"{_untrained(one)}: {count:,} numbers"
        for one, count in zip(result.sources, result.dimensions, strict=True)
    ]
    figure.legend(lines, words, loc="outside upper center", ncols=across, handlelength=1.6)
    return figure


def _law_rows(axes, result, estimate, f, label):
    """A row for each law, a point with its interval for each kind of vector."""
    S, L = len(result.sources), len(result.laws)
    y, low = np.arange(L), np.fmin.reduce(estimate.low[:, f], None, initial=0.0)  # some may be NaN
    left = max(LOWEST, low - 0.05)
    for s in range(S):
        at = y + (s - (S - 1) / 2) * 0.7 / S
        intervals(axes, estimate[s, f], at, look(s), left)
    for edge in (0.5, L - 1.5):  # the first and the last are what laws are compared with
        axes.axhline(edge, color="#BBBBBB", linewidth=0.5)
    name_rows(axes, result.laws, left, label)
