"""Parts of drawings that several analyses share: images, mosaics, points with intervals, names."""

import numpy as np

from capsviz.arrangement import room as room
from capsviz.arrangement import split as split
from capsviz.arrangement import wrapped as wrapped
from capsviz.results import COLOURS

MARKERS = "osD^vPX<>*"  # one for each network
GAP = 2  # pixels between the pictures of a mosaic


def picture(image: np.ndarray) -> np.ndarray:
    """Return an image (C, H, W) in the shape of `imshow`: grey (H, W), or colour (H, W, 3)."""
    return image[0] if len(image) < 3 else np.moveaxis(image[:3], 0, -1)


def show(axes, image, title=None):
    """Draw one uint8 image (C, H, W), grey or colour, without ticks, on the scale 0 to 255."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    if title is not None:
        axes.set_title(title, fontsize=6.5)
    return axes.imshow(picture(image), cmap="gray", vmin=0, vmax=255)


def mosaic(axes, pictures, columns):
    """Draw pictures (rows, n, C, H, W) uint8 as one image, on axes for `columns` >= n of them.

    Returns
    -------
    The centres of the rows (y) and of the pictures (x), in data coordinates.
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


def points(axes, estimate, colour, marker, name=None, shift=0.0, *, left=-np.inf, **look):
    """Draw values (N,) with intervals in rows 0, 1, ..., shifted by a number or by (N,).

    A hollow arrow marks an interval that goes beyond the `left` edge. If the value is beyond it,
    only the arrow is drawn.
    """
    values, ends = np.atleast_1d(estimate.value), np.reshape(estimate.ci95, (-1, 2))
    rows, inside, beyond = np.arange(len(values)) + shift, ~(values < left), ends[:, 0] < left
    look = {"markersize": 3.5, "clip_on": False, "linestyle": "none", "color": colour, **look}
    axes.hlines(rows[inside], *np.maximum(ends[inside], left).T, color=colour, linewidth=1)
    axes.plot(values[inside], rows[inside], marker=marker, label=name, **look)
    if beyond.any():
        arrow = {"marker": "<", "fillstyle": "full", "markerfacecolor": "white", "zorder": 3}
        axes.plot(np.full(beyond.sum(), left), rows[beyond], **look | arrow)


def kind(estimate, s: int, name) -> tuple:
    """Return an estimate with the colour and marker of the s-th kind, and its name."""
    return estimate, COLOURS[s % len(COLOURS)], MARKERS[s % len(MARKERS)], name


def dots(axes, kinds, gap, start=0.0, **look):
    """Draw `points` of several kinds (estimate, colour, marker, name) beside each other in rows."""
    kinds = list(kinds)
    for k, kind in enumerate(kinds):
        points(axes, *kind, shift=start + (k - (len(kinds) - 1) / 2) * gap, **look)


def upright(axes, x, estimate, style, **look):
    """Draw values (N,) as points or a line, with vertical intervals; return the line."""
    axes.vlines(x, estimate.low, estimate.high, color=look["color"], linewidth=0.8)
    return axes.plot(x, estimate.value, style, **look)[0]


def level(axes, estimate, colour, label=None):
    """Draw one value as a dashed line across axes, in the band of its interval."""
    axes.axhspan(*estimate.ci95.tolist(), color=colour, alpha=0.3, linewidth=0)
    axes.axhline(float(estimate.value), color=colour, linestyle="--", linewidth=0.8, label=label)


def band(axes, x, estimate, *style, **look):
    """Draw values (N,) as a line, with their intervals as a band of its colour; return the line."""
    (line,) = axes.plot(x, estimate.value, *style, **look)
    axes.fill_between(
        x, estimate.low, estimate.high, color=line.get_color(), alpha=0.2, linewidth=0
    )
    return line


def rows_from(axes, names, left, label, *, right=1.03, at=0.0, **letters):
    """Name rows from top to bottom; the x axis starts at `left` and has a line `at` a number."""
    name_rows(axes, names, **letters)
    rule(axes)
    axes.axvline(at, color="#7F7F7F", linewidth=0.5)
    axes.set(xlim=(left, right), xlabel=label)


def name_rows(axes, names, **letters):
    """Name the rows 0, 1, ... of a plot, the first on top."""
    axes.set_yticks(range(len(names)), names, **letters)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def album(axes, pictures, columns, rows, above, below=None, *, colours=None, rotation=0):
    """Draw pictures (rows, n, C, H, W) in lines of `columns`, with texts above and below.

    Returns
    -------
    The axis of the texts below the last line, if there are any.
    """
    n, under = pictures.shape[1], None
    for line, one in enumerate(split(axes, -(-n // columns), 1)[:, 0]):
        part = slice(line * columns, (line + 1) * columns)
        y, x = mosaic(one, pictures[:, part], columns)
        one.set_yticks(y, rows, linespacing=1.0)
        one.set_xticks(x, above[part], rotation=rotation)
        one.xaxis.tick_top()
        for text, colour in zip(one.get_xticklabels(), (colours or [])[part], strict=False):
            text.set_color(colour)
        if below is not None:
            under = beside(one, "bottom", x, below[part])
    return under


def numbered(axes, names, estimate, looks, form):
    """Draw estimates (N,) in named rows, each with its number beside it."""
    for row, (one, look) in enumerate(zip(estimate, looks, strict=True)):
        points(axes, one, *look, shift=row)
        text, beside = f"{one.value:{form}}", {"textcoords": "offset points", "va": "center"}
        axes.annotate(text, (one.high, row), (4, 0), fontsize=6, **beside)
    name_rows(axes, names)


def by_rows(field: str, each: float, more: float):
    """Return a function for the height in inches of a panel with a row per item of a field."""
    return lambda result, width: more + each * len(getattr(result, field))


def rule(axes, axis="x"):
    """Draw pale lines at the ticks of an axis, behind all else."""
    axes.grid(axis=axis, color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)


def groups(axes, estimates, names, networks):
    """Draw estimates (K,) of K networks as named groups of rows, with labels for a legend."""
    K = len(estimates[0])
    for g, estimate in enumerate(estimates):
        for k, one in enumerate(estimate):
            points(axes, *kind(one, k, None if g else networks[k]), g * (K + 1) + k, zorder=3)
    axes.set_yticks(np.arange(len(names)) * (K + 1) + (K - 1) / 2, names)
    axes.set_ylim(len(names) * (K + 1) - 1.5, -0.7)
    axes.tick_params(axis="y", length=0)
    percent(axes.xaxis)
    rule(axes)


def beside(axes, edge, places, names, **letters):
    """Write names at an edge of an image, "top", "bottom" or "right"; return the new axis."""
    level = edge in ("top", "bottom")
    other = axes.secondary_xaxis(edge) if level else axes.secondary_yaxis(edge)
    other.spines[:].set_visible(False)
    other.tick_params(length=0, pad=2)
    (other.set_xticks if level else other.set_yticks)(places, names, **letters)
    return other


def look(s: int) -> dict:
    """Return colour and marker of the s-th kind."""
    _, colour, marker, _ = kind(None, s, None)
    return {"color": colour, "marker": marker, "markersize": 3}


def percent(axis):
    """Format the ticks of an axis of shares in percent, without rounding."""
    axis.set_major_formatter(lambda share, _: f"{100 * share:.6g} %".replace("-", "−"))
