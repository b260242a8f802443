"""Drawings for `perturb`: the sheet of one image, and the effect table of a class."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import PlaceHolderLayoutEngine
from matplotlib.patches import Rectangle

from capsviz.analyses.perturb.measure import clear, plus_minus
from capsviz.figures.panels import GAP, mosaic, show

OWN = "#E69F00"
NAMES = {
    "slant_deg": "slant, °",
    "width_px": "width, px",
    "height_px": "height, px",
    "thickness_px": "stroke, px",
    "x_px": "right, px",
    "y_px": "down, px",
}


def sheet(result, width):
    """Every dimension over its range, one row each, its effect in words beside it."""
    E, K, _, tall, wide = result.images.shape
    left, words = (0.45, 1.5) if width < 5 else (0.8, 1.5)  # inches
    head, foot = 0.8, 0.5
    across = width - left - words
    down = across * (E * (tall + GAP) - GAP) / (K * (wide + GAP) - GAP)
    height = head + down + foot
    # Not "none": saving sets that back to the house style's own layout.
    figure = Figure(figsize=(width, height), layout=PlaceHolderLayoutEngine(True, False))
    _heading(figure, result, width, height)
    axes = figure.add_axes((left / width, foot / height, across / width, down / height))
    y, x = mosaic(axes, result.images, K)
    dimensions = range(E) if result.dimensions is None else result.dimensions
    names = [f"dim {d}" for d in dimensions]
    if result.span == "data" and width >= 5:
        ends = result.values[:, [0, -1]]
        names = [
            f"{n}\n{_minus(f'{a:.2f} to {b:.2f}')}" for n, (a, b) in zip(names, ends, strict=True)
        ]
    axes.set_yticks(y, names)
    for d, column in enumerate(result.own):
        corner = (column * (wide + GAP) - 1.5, d * (tall + GAP) - 1.5)
        axes.add_patch(
            Rectangle(corner, wide + 2, tall + 2, fill=False, color=OWN, linewidth=1, clip_on=False)
        )
    if result.span == "paper":
        shifts = result.values[0] - result.values[0, result.own[0]]
        some = slice(None, None, 5 if width < 5 else 1)
        axes.set_xticks(x[some], [_minus(f"{s:+.2f}") if s else "0" for s in shifts.round(6)[some]])
        axes.set_xlabel(f"change{' of the dimension' if width >= 5 else ''}; framed: unchanged")
    else:
        axes.set_xticks([])
        axes.set_xlabel("5 % to 95 % quantile of the class\nframed: the image's own value")
    right = axes.secondary_yaxis("right")
    right.spines[:].set_visible(False)
    right.tick_params(length=0, pad=3)
    right.set_yticks(y, result.captions, fontsize=6)
    return figure


def _heading(figure, result, width, height):
    """Input, reconstruction, and what they are."""
    side = 0.5  # inches
    for i, (image, name) in enumerate(
        ((result.input, "input"), (result.reconstruction, "decoded"))
    ):
        place = (0.1 + 0.6 * i, height - 0.2 - side, side, side)
        axes = figure.add_axes(np.divide(place, (width, height, width, height)))
        show(axes, image)
        axes.set_title(name, fontsize=6.5, pad=2)
    name = result.classes[result.capsule]
    true = "" if result.label is None else f"true {result.classes[result.label]}, "
    lines = [
        f"{true}predicted {result.classes[result.predicted]}",
        f"changed: pose of {name}, length {result.length:.2f}",
    ]
    if result.tests is None:
        lines += ["words: effect of +0.1 that is largest against its", "spread in the class, "]
    else:
        lines += [
            "words: largest effect of +0.1, of those clear of",
            f"zero (Holm, {result.tests}), against its spread in the class,",
            "",
        ]
    lines[-1] += f"mean ±95 %, n = {result.n}"
    if result.count is not None and len(result.images) < result.count:
        lines[-1] += f"; the {len(result.images)} strongest of {result.count}"
    text = "\n".join(lines)
    figure.text(1.3 / width, 1 - 0.45 / height, text, va="center", fontsize=6, linespacing=1.6)


def table(result, width):
    """Standardised effects as colours, means and intervals in units; the pixel change beside."""
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
    for d in range(E):
        for m in range(M):
            mean, half = effect.value[d, m], effect.high[d, m] - effect.value[d, m]
            left.text(
                m,
                d,
                _minus(plus_minus(mean, half, "+", gap)) if marked[d, m] else "·",
                ha="center",
                va="center",
                fontsize=6,
                linespacing=0.95,
                color="white" if abs(result.standardised[d, m]) > 0.62 * limit else "black",
            )
    left.set_xticks(
        range(M), [NAMES[name] for name in result.measures], rotation=0 if double else 40
    )
    left.xaxis.tick_top()
    left.set_yticks(range(E), [f"dim {d}" for d in range(E)])
    left.tick_params(length=0)
    left.spines[:].set_visible(False)
    right.errorbar(
        result.difference.value,
        range(E),
        xerr=result.difference.high - result.difference.value,
        fmt="o",
        color="black",
        elinewidth=0.9,
    )
    right.tick_params(axis="y", length=0, labelleft=False)
    right.set_xlim(0, 1.12 * max(1e-9, result.difference.ci95.max()))
    right.locator_params(axis="x", nbins=3)
    right.set_xlabel("mean change\nof a pixel")
    right.grid(axis="y", linewidth=0.3)
    scale = figure.colorbar(
        picture, ax=left, orientation="horizontal", shrink=0.7, aspect=40, pad=0.02
    )
    scale.set_label("effect / standard deviation of the measure in the class")
    figure.suptitle(
        f"effect of +0.1 of a dimension, class {result.classes[result.capsule]}\n"
        f"{result.n} images of {result.dataset}, mean ±95 %\n"
        f"·: not clear of zero (Holm's method, {E * M} effects)"
    )
    return figure


def _minus(text: str) -> str:
    """The typographic minus, as on the axes."""
    return text.replace("-", "−")
