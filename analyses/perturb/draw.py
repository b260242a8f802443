"""Panels of `perturb`: the sheet of one image, and the effect table of a class."""

import numpy as np
from matplotlib.patches import Rectangle

from capsviz.analyses.perturb import clear, ground, plus_minus
from capsviz.analysis import Panel
from capsviz.results import COLOURS
from capsviz.results.panels import GAP, beside, by_rows, mosaic, name_rows, room, wrapped

OWN = COLOURS[4]
WIDE = 5.0  # inches: from this width on, names and words are in full
SMALLEST, CELL = 0.25, 0.5  # smallest and largest width of a picture, inches
LABEL = 0.36  # width of "−0.25", inches
NAMES = {
    "slant_deg": "slant, °",
    "width_px": "width, px",
    "height_px": "height, px",
    "thickness_px": "stroke, px",
    "x_px": "right, px",
    "y_px": "down, px",
}


def _image(axes, result):
    """Draw the image and its reconstruction."""
    _, x = mosaic(axes, np.stack([result.input, result.reconstruction])[None], 2)
    axes.set(yticks=[])
    axes.set_xticks(x, ["input", "decoded"])


def _layout(result, width: float) -> tuple[bool, float, float, np.ndarray]:
    """Return whether the figure is narrow, inches of words and of pictures, and `_columns`."""
    narrow = width < WIDE
    left, words = (0.5, 1.5) if narrow else (0.8, 1.7)
    numbers = _columns(result, width - left - words)
    return narrow, words, min(width - left - words, CELL * numbers.shape[1]), numbers


def _tall_dimensions(result, width: float) -> float:
    *_, across, numbers = _layout(result, width)
    E, *_, tall, wide = result.images.shape
    columns = numbers.shape[1]
    return across * (E * (tall + GAP) - GAP) / (columns * (wide + GAP) - GAP) + 0.5


def _dimensions(axes, result):
    """Draw every dimension over its range, a row each, its effect in words beside it."""
    narrow, words, across, numbers = _layout(result, room(axes))
    E, *_, tall, wide = result.images.shape
    columns = numbers.shape[1]
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
        step = -(-LABEL // (across / columns))  # pictures per label
        some = [k for k in range(columns) if (k - columns // 2) % step == 0]
        texts = [f"{s:+.2f}".replace("-", "−") if s else "0" for s in shifts[some].round(6)]
        axes.set_xticks(x[some], texts)
        axes.set_xlabel(f"change{'' if narrow else ' of the dimension'}; framed: unchanged")
    else:
        axes.set_xlabel("5 % to 95 % quantile of the class\nframed: the image's own value")
    texts = [wrapped(one, words - 0.2, 6.3) for one in result.captions]
    beside(axes, "right", y, texts, fontsize=6, linespacing=1.05)


def _columns(result, inches) -> np.ndarray:
    """Return which of the K values to show (E, columns): as many as fit, with the image's own."""
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


def _effects(axes, result):
    """Draw standardised effects of each dimension as colours, means and intervals as text."""
    E, M = result.effect.value.shape
    double = room(axes) >= 3.5
    limit = max(1e-9, np.abs(result.standardised).max())
    picture = axes.imshow(result.standardised, cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto")
    effect, marked = result.effect, clear(result)
    gap = " " if double else "\n"
    look = {"ha": "center", "va": "center", "fontsize": 6, "linespacing": 0.95}
    for d in range(E):
        for m in range(M):
            mean, half = effect.value[d, m], effect.high[d, m] - effect.value[d, m]
            light = abs(result.standardised[d, m]) > 0.62 * limit
            words = plus_minus(mean, half, "+") if double else f"{mean:+.2f}"
            words = words if marked[d, m] else "·"
            axes.text(m, d, words, color="white" if light else "black", **look)
    names = [NAMES[name] for name in result.measures]
    axes.set_xticks(range(M), names, rotation=0 if double else 40)
    axes.xaxis.tick_top()
    name_rows(axes, [f"dim {d}" for d in range(E)])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = {"orientation": "horizontal", "shrink": 0.9, "aspect": 40 if double else 18, "pad": 0.02}
    scale = axes.figure.colorbar(picture, ax=axes, **bar)
    if not double:
        scale.ax.locator_params(nbins=5)
    scale.set_label(f"effect / standard deviation of{gap}the measure in the class")


def _change(axes, result):
    """Draw the mean change of a pixel by each dimension."""
    change, half = result.difference.value, result.difference.high - result.difference.value
    rows = range(len(change))
    axes.errorbar(change, rows, xerr=half, fmt="o", color="black", elinewidth=0.9)
    name_rows(axes, [f"dim {d}" for d in rows])
    axes.set_xlim(0, 1.12 * max(1e-9, result.difference.ci95.max()))
    axes.locator_params(axis="x", nbins=3)
    axes.set_xlabel("mean change\nof a pixel")
    axes.grid(axis="y", linewidth=0.3)


def _names(result, narrow) -> list[str]:
    """Return the names of the rows: dimensions, and their ranges if these differ."""
    names = [f"dim {d}" for d in result.dimensions]
    if result.span == "data" and not narrow:
        low, high = result.values[:, [0, -1]].T
        digits = np.maximum(2, np.ceil(-np.log10(np.maximum(high - low, 1e-9)))).astype(int)
        ends = zip(names, low + 0.0, high + 0.0, digits, strict=True)
        names = [f"{name}\n{a:.{d}f} to {b:.{d}f}" for name, a, b, d in ends]
    return names


def _about(result) -> str:
    """Return the caption of the dimensions."""
    most = ", strongest first" if len(result.captions) < result.count else ""
    return (
        f"one image's pose of class {result.classes[result.capsule]}, decoded with one dimension "
        f"changed at a time{most}\nwords: the largest effects of +{result.step:g}, relative to the "
        "class's spread, among those that differ from zero (Holm's method, "
        f"{result.tests} tests){ground(result.images)}\n±: 95 % intervals of the mean "
        f"(Student's t) over {result.n:,} images of the class"
    )


PANELS = {
    "image": Panel(_image, 0.75, 1),
    "dimensions": Panel(_dimensions, _tall_dimensions, 1, caption=_about),
}
TALL = by_rows("standardised", 0.2, 0.55)
MANY = {
    "effects": Panel(
        _effects, TALL, 0.8, 0.75, marks="intervals",
        caption=lambda result: f"effect of +{result.step:g} of each pose dimension of class "
        f"{result.classes[result.capsule]} on measures of the decoded image\nnumbers: effects that "
        "differ from zero (t-test, Holm's correction for the whole table)",
    ),
    "pixels": Panel(_change, TALL, 0.2, 0.25, marks="bars"),
}  # fmt: skip
