"""Parts that the drawings of several analyses share: images, a mosaic of many, names of lines."""

from __future__ import annotations

import textwrap

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.transforms import offset_copy

from capsviz.results import COLOURS

MARKERS = "osD^vPX<>*"  # of networks and their like, one each
GAP = 2  # pixels between the pictures of a mosaic


def picture(image: np.ndarray) -> np.ndarray:
    """An image (C, H, W) as `imshow` takes it: grey (H, W), or colour (H, W, 3)."""
    return image[0] if len(image) < 3 else np.moveaxis(image[:3], 0, -1)


def show(axes, image, title=None):
    """One uint8 image (C, H, W), grey or colour, without ticks, on the scale 0 to 255."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    if title is not None:
        axes.set_title(title, fontsize=6.5)
    return axes.imshow(picture(image), cmap="gray", vmin=0, vmax=255)


def mosaic(axes, pictures, columns):
    """Pictures (rows, n, C, H, W) uint8 as one image, on axes for `columns` >= n side by side.

    Returns
    -------
    The centres of rows and of pictures, in the axes' coordinates.
    """
    rows, n, channels, height, width = pictures.shape
    tall, wide = height + GAP, width + GAP
    apart = np.pad(pictures, [(0, 0)] * 3 + [(0, GAP)] * 2, constant_values=255)
    image = apart.transpose(2, 0, 3, 1, 4).reshape(channels, rows * tall, n * wide)
    image = image[:, :-GAP, :-GAP]
    drawn = axes.imshow(picture(image), cmap="gray", vmin=0, vmax=255)
    drawn.pictures = (rows, n)  # how many it holds
    axes.set_xlim(-0.5, columns * wide - GAP - 0.5)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=2)
    return np.arange(rows) * tall + (height - 1) / 2, np.arange(n) * wide + (width - 1) / 2


def intervals(axes, estimate, rows, look, left):
    """Values (N,) with their intervals in rows; a hollow arrow where one goes beyond the left edge.

    Of a value beyond the edge the arrow stands alone.
    """
    inside = estimate.value >= left
    ends = np.maximum(estimate.ci95, left)
    axes.hlines(rows[inside], *ends[inside].T, color=look["color"], linewidth=0.9)
    axes.plot(estimate.value[inside], rows[inside], linestyle="none", **look)
    beyond = (estimate.value < left) | (estimate.low < left)
    if beyond.any():
        hollow = {"fillstyle": "full", "markerfacecolor": "white", "zorder": 3}  # above the spine
        arrow = look | {"marker": "<", "clip_on": False, "linestyle": "none"} | hollow
        axes.plot(np.full(beyond.sum(), left), rows[beyond], **arrow)


def points(axes, estimate, colour, marker, name=None, shift=0.0, **look):
    """Values (N,) with their intervals, in rows 0, 1, ... that are shifted by a number or (N,)."""
    values, ends = np.atleast_1d(estimate.value), np.reshape(estimate.ci95, (-1, 2))
    rows = np.arange(len(values)) + shift
    axes.hlines(rows, *ends.T, color=colour, linewidth=1)
    look = {"markersize": 3.5, "clip_on": False, "linestyle": "none", **look}
    axes.plot(values, rows, marker=marker, color=colour, label=name, **look)


def name_rows(axes, names, **letters):
    """Name the rows 0, 1, ... of a plot, the first on top."""
    axes.set_yticks(range(len(names)), names, **letters)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def album(figure, pictures, columns, rows, above, below=None, *, colours=None, rotation=0):
    """Draw pictures (rows, n, C, H, W) in lines of `columns`, with texts above and below each.

    Returns
    -------
    The axis of the texts below the last line, if there are any.
    """
    n, under = pictures.shape[1], None
    for line, axes in enumerate(figure.subplots(-(-n // columns), 1, squeeze=False)[:, 0]):
        part = slice(line * columns, (line + 1) * columns)
        y, x = mosaic(axes, pictures[:, part], columns)
        axes.set_yticks(y, rows, linespacing=1.0)
        axes.set_xticks(x, above[part], rotation=rotation)
        axes.xaxis.tick_top()
        for text, colour in zip(axes.get_xticklabels(), (colours or [])[part], strict=False):
            text.set_color(colour)
        if below is not None:
            under = beside(axes, "bottom", x, below[part])
    return under


def label_end(axes, x, y, text):
    """Write a number beside the end of its interval."""
    axes.annotate(text, (x, y), (4, 0), textcoords="offset points", va="center", fontsize=6)


def rule(axes, axis="x"):
    """Draw pale lines at the ticks of an axis, behind all else."""
    axes.grid(axis=axis, color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)


def groups(axes, estimates, names) -> list:
    """Draw estimates (K,) of K networks, a group of rows each; return a marker of each network."""
    K = len(estimates[0])
    for g, estimate in enumerate(estimates):
        for k, one in enumerate(estimate):
            colour, marker = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
            points(axes, one, colour, marker, shift=g * (K + 1) + k, zorder=3)
    axes.set_yticks(np.arange(len(names)) * (K + 1) + (K - 1) / 2, names)
    axes.set_ylim(len(names) * (K + 1) - 1.5, -0.7)
    axes.tick_params(axis="y", length=0)
    percent(axes.xaxis)
    rule(axes)
    return axes.get_lines()[:K]


def beside(axes, edge, places, names, **letters):
    """Write names at the other edge of an image, "bottom" or "right"; return that axis."""
    other = axes.secondary_xaxis(edge) if edge == "bottom" else axes.secondary_yaxis(edge)
    other.spines[:].set_visible(False)
    other.tick_params(length=0, pad=2)
    (other.set_xticks if edge == "bottom" else other.set_yticks)(places, names, **letters)
    return other


def legend_columns(width, labels, margin=0.5, letter=0.062) -> int:
    """Return how many of these labels stand side by side in a legend, in so many inches."""
    return max(1, min(len(labels), int(width / (margin + letter * max(map(len, labels))))))


def look(s: int) -> dict:
    """Colour and marker of the s-th of a few kinds."""
    colour, marker = COLOURS[s % len(COLOURS)], MARKERS[s % len(MARKERS)]
    return {"color": colour, "marker": marker, "markersize": 3}


def percent(axis):
    """Shares at the ticks of an axis, in percent, with all the digits that they have."""
    axis.set_major_formatter(lambda share, _: f"{100 * share:.6g} %".replace("-", "−"))


def label_lines(figure, entries):
    """Names at the right of axes, spread so that none lies on another, a hair to each line's end.

    To be called when all else is on the figure: how tall the axes are is known only then.

    Parameters
    ----------
    entries  (axes, line, text): a `Line2D` with data, and what it is called.
    """
    by_axes = {}
    for axes, line, text in entries:
        x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
        known = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        if not known.size:
            continue
        beside = offset_copy(axes.get_yaxis_transform(), figure, x=8, units="points")
        place = known[-1]
        look = {"linewidth": 0.5, "color": line.get_color(), "shrinkA": 0, "shrinkB": 0}
        note = axes.annotate(
            text, (x[place], y[place]), (1, y[place]), textcoords=beside, va="center",
            color=legible(line.get_color()), fontsize=6.5, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "relpos": (0, 0.5), **look},
        )  # fmt: skip
        by_axes.setdefault(axes, []).append(note)
    if (engine := figure.get_layout_engine()) is not None:  # none: axes stay where they are
        engine.execute(figure)
    for axes, notes in by_axes.items():
        box, scale = axes.get_window_extent(), figure.dpi / 72
        ends = np.array([axes.transData.transform(note.xy)[1] for note in notes])
        heights = [1.25 * note.get_fontsize() * (note.get_text().count("\n") + 1) for note in notes]
        middles = spread(ends / scale, heights, box.y0 / scale, box.y1 / scale)
        for note, middle in zip(notes, middles * scale, strict=True):
            note.set_y(axes.transData.inverted().transform((box.x1, middle))[1])


def legible(colour) -> tuple[float, float, float]:
    """A colour as dark as letters on white must be, of the same hue: contrast 4.5 (WCAG 2.1)."""
    rgb = np.array(to_rgb(colour))
    for _ in range(20):
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        if 1.05 / (linear @ (0.2126, 0.7152, 0.0722) + 0.05) >= 4.5:
            break
        rgb = rgb * 0.93
    red, green, blue = (float(part) for part in rgb)
    return red, green, blue


def spread(targets, heights, low: float, high: float) -> np.ndarray:
    """Middles of boxes of these heights, near those wanted, in their order, without overlap.

    Between low and high where there is room for all; else from low on upwards.
    """
    from scipy.optimize import isotonic_regression  # takes time to import

    targets, heights = np.asarray(targets, float), np.asarray(heights, float)
    order = np.argsort(targets, kind="stable")
    sizes = heights[order]
    starts = np.concatenate([[0], np.cumsum((sizes[:-1] + sizes[1:]) / 2)])  # if packed
    places = isotonic_regression(targets[order] - starts).x  # boxes that touch share their mean
    top = high - sizes[-1] / 2 - starts[-1]
    places = np.maximum(np.minimum(places, top), low + sizes[0] / 2) + starts
    middles = np.empty(len(targets))
    middles[order] = places
    return middles


def wrapped(text: str, inches: float, points: float = 6.5) -> str:
    """A text in lines that are at most so many inches long, about."""
    letters = max(8, int(inches * 72 / (0.56 * points)))
    return "\n".join(
        "\n".join(textwrap.wrap(line, letters, break_long_words=False)) or ""
        for line in text.split("\n")
    )
