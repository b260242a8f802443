"""Drawings for `perturb`: the sheet of one image, and the effect table of a class."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from capsviz.analyses.perturb.measure import clear, ground, plus_minus
from capsviz.results import COLOURS
from capsviz.results.panels import GAP, beside, mosaic, show, wrapped

OWN = COLOURS[4]
WIDE = 5.0  # inches: from here on names and words have the room of a page
SMALLEST, CELL = 0.25, 0.5  # inches of a picture, at least and at most
LABEL = 0.36  # inches of "−0.25"
NAMES = {
    "slant_deg": "slant, °",
    "width_px": "width, px",
    "height_px": "height, px",
    "thickness_px": "stroke, px",
    "x_px": "right, px",
    "y_px": "down, px",
}


def sheet(result, width):
    """Draw every dimension over its range, a row each, its effect in words beside it."""
    E, *_, tall, wide = result.images.shape
    narrow = width < WIDE
    left, words = (0.5, 1.5) if narrow else (0.8, 1.7)  # inches
    numbers = _columns(result, width - left - words)
    columns = numbers.shape[1]
    across = min(width - left - words, CELL * columns)
    down = across * (E * (tall + GAP) - GAP) / (columns * (wide + GAP) - GAP) + 0.5
    text = wrapped(_heading_text(result), width - 1.5, 6)
    head = max(0.8, 0.2 + 0.135 * (text.count("\n") + 1))
    figure = Figure(figsize=(width, head + down))
    upper, lower = figure.subfigures(2, 1, height_ratios=[head, down])
    first, second, third = upper.subplots(1, 3, width_ratios=[0.5, 0.5, width - 1.2])
    show(first, result.input, "input")
    show(second, result.reconstruction, "decoded")
    third.set_axis_off()
    third.text(0, 1.2, text, va="top", fontsize=6, linespacing=1.3)
    axes = lower.subplots()
    y, x = mosaic(axes, result.images[np.arange(E)[:, None], numbers], columns)
    axes.set_yticks(y, _names(result, narrow))
    for d, own in enumerate(result.own):
        (column,) = np.flatnonzero(numbers[d] == own)
        corner = (column * (wide + GAP) - 1.5, d * (tall + GAP) - 1.5)
        look = {"fill": False, "color": OWN, "linewidth": 1, "clip_on": False}
        axes.add_patch(Rectangle(corner, wide + 2, tall + 2, **look))
    axes.set_xticks([])
    if result.span == "paper":
        shifts = (result.values[0] - result.values[0, result.own[0]])[numbers[0]]
        step = -(-LABEL // (across / columns))  # a label has the room of so many pictures
        some = [k for k in range(columns) if (k - columns // 2) % step == 0]
        texts = [f"{s:+.2f}".replace("-", "−") if s else "0" for s in shifts[some].round(6)]
        axes.set_xticks(x[some], texts)
        axes.set_xlabel(f"change{'' if narrow else ' of the dimension'}; framed: unchanged")
    else:
        axes.set_xlabel("5 % to 95 % quantile of the class\nframed: the image's own value")
    texts = [wrapped(one, words - 0.2, 6.3) for one in result.captions]
    beside(axes, "right", y, texts, fontsize=6, linespacing=1.05)
    return figure


def _columns(result, inches) -> np.ndarray:
    """Which of the K values are shown, (E, columns): as many as have room, their own among them."""
    E, K = result.values.shape
    count = min(K, max(3, int(inches / SMALLEST)))
    if count == K:
        return np.tile(np.arange(K), (E, 1))
    if result.span == "paper":  # symmetric about the own value in the middle
        half = (K - 1) // 2
        steps = np.unique(np.linspace(0, half, (count - 1) // 2 + 1).round().astype(int))
        return np.tile(np.concatenate([half - steps[:0:-1], half + steps]), (E, 1))
    numbers = np.tile(np.linspace(0, K - 1, count).round().astype(int), (E, 1))
    for row, own in zip(numbers, result.own, strict=True):
        row[np.abs(row - own).argmin()] = own
    return numbers


def _heading_text(result) -> str:
    """Lines that say what the input and the words are."""
    shown, true = len(result.images), ""
    if result.label is not None:
        true = f"true {result.classes[result.label]}, "
    most = f"; the {shown} strongest of {result.count}" if shown < result.count else ""
    return (
        f"{true}predicted {result.classes[result.predicted]}\n"
        f"changed: the pose of {result.classes[result.capsule]}, {result.score.split()[-1]} "
        f"{result.length:.2f}{most}\n"
        f"beside each row: the largest effects of +{result.step:g}, clear of zero (Holm's method, "
        f"{result.tests} tests), relative to their spread in the class; ±: 95 %, n = {result.n}"
        f"{ground(result.images)}"
    )


def table(result, width):
    """Draw standardised effects as colours, means and intervals as text; beside it pixel change."""
    E, M = result.effect.value.shape
    double = width >= 5
    row = 0.24 if double else 0.27
    figure = Figure(figsize=(width, row * E + 1.4))
    left, right = figure.subplots(
        1, 2, sharey=True, width_ratios=[M * (1.0 if double else 0.8), 1.6]
    )
    limit = max(1e-9, np.abs(result.standardised).max())
    picture = left.imshow(result.standardised, cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto")
    effect, marked = result.effect, clear(result)
    gap = " " if double else "\n"
    look = {"ha": "center", "va": "center", "fontsize": 6, "linespacing": 0.95}
    for d in range(E):
        for m in range(M):
            mean, half = effect.value[d, m], effect.high[d, m] - effect.value[d, m]
            light = abs(result.standardised[d, m]) > 0.62 * limit
            words = plus_minus(mean, half, "+", gap) if marked[d, m] else "·"
            left.text(m, d, words, color="white" if light else "black", **look)
    left.set_xticks(
        range(M), [NAMES[name] for name in result.measures], rotation=0 if double else 40
    )
    left.xaxis.tick_top()
    left.set_yticks(range(E), [f"dim {d}" for d in range(E)])
    left.tick_params(length=0)
    left.spines[:].set_visible(False)
    change, half = result.difference.value, result.difference.high - result.difference.value
    right.errorbar(change, range(E), xerr=half, fmt="o", color="black", elinewidth=0.9)
    right.tick_params(axis="y", length=0, labelleft=False)
    right.set_xlim(0, 1.12 * max(1e-9, result.difference.ci95.max()))
    right.locator_params(axis="x", nbins=3)
    right.set_xlabel("mean change\nof a pixel")
    right.grid(axis="y", linewidth=0.3)
    bar = {"orientation": "horizontal", "shrink": 0.9, "aspect": 40 if double else 18, "pad": 0.02}
    scale = figure.colorbar(picture, ax=left, **bar)
    if not double:
        scale.ax.locator_params(nbins=5)
    gap = " " if double else "\n"
    scale.set_label(f"effect / standard deviation of{gap}the measure in the class")
    figure.suptitle(
        f"effect of +{result.step:g} of a dimension, class {result.classes[result.capsule]}\n"
        f"{result.n} images of {result.dataset}, mean ±95 %\n"
        f"·: does not differ from zero (Holm's method, {E * M} effects)"
        f"{ground(result).replace('; ', chr(10), 1)}"
    )
    return figure


def _names(result, narrow) -> list[str]:
    """Of the rows: dimensions, and their ranges where those differ."""
    names = [f"dim {d}" for d in result.dimensions]
    if result.span == "data" and not narrow:
        low, high = result.values[:, [0, -1]].T
        digits = np.maximum(2, np.ceil(-np.log10(np.maximum(high - low, 1e-9)))).astype(int)
        ends = zip(names, low + 0.0, high + 0.0, digits, strict=True)
        names = [f"{name}\n{a:.{d}f} to {b:.{d}f}" for name, a, b, d in ends]
    return names
