"""Draw maps of couplings and of evidence: colours, scales, and a map over its image."""

import numpy as np
from matplotlib.colors import CenteredNorm, Normalize
from matplotlib.ticker import MaxNLocator

from capsviz.arrangement import WIDE
from capsviz.results import COLOURS
from capsviz.results.panels import picture

BLUE, RED, GREEN, GREY = COLOURS[0], COLOURS[1], COLOURS[2], "#7F7F7F"
COUPLING, SIGNED = "cividis", "RdBu_r"
LINE = 6.5  # points between class names
EVEN = 1e-6  # half the range of a colour scale of uniform couplings


def halfrange(values) -> float:
    """Return half the range of a symmetric colour scale, wide enough to hide rounding errors."""
    return max(float(np.abs(values).max()), EVEN)


def coupling_scale(values, even: float) -> Normalize:
    """Return a linear colour scale of couplings: centred on `even`, or from 0 for sharp ones.

    `even` is the value of uniform couplings.
    """
    reach = halfrange(np.asarray(values) - even)
    if reach <= even:
        return CenteredNorm(even, reach)
    return Normalize(min(0.0, float(np.min(values))), even + reach)


def coupling_bar(drawn, axes, even: float, label="mean coupling $c_{ij}$", **place):
    """Draw a colour bar of couplings beside axes, with ticks at its ends and, if it fits, `even`.

    If no coupling is negative, it starts at 0.
    """
    scale = drawn.norm
    least = min(image.get_array().min() for one in np.ravel(axes) for image in one.images)
    low = 0.0 if scale.vmin < 0 <= least else scale.vmin
    ticks = [low, even, scale.vmax]
    if scale.vmax - even < 1.01 * EVEN:  # all are equal up to rounding
        ticks = [even]
    elif not 0.15 < (even - low) / (scale.vmax - low) < 0.85:
        ticks = [low, scale.vmax]
    bar = colour_bar(drawn, axes, label, **place)
    if len(ticks) > 1 and low > scale.vmin:
        (bar.ax.set_xlim if bar.orientation == "horizontal" else bar.ax.set_ylim)(low, scale.vmax)
    bar.set_ticks(ticks, labels=[f"{tick:.3f}" for tick in ticks])


def colour_bar(drawn, axes, label: str, **place):
    """Draw a labelled colour bar beside axes, on the right unless `place` says otherwise."""
    several = np.ravel(axes).tolist()
    aspect = 13 if several[0].figure.get_figwidth() > WIDE + 1 else 9
    place = {"fraction": 0.05, "aspect": aspect, "pad": 0.015, **place}
    bar = several[0].figure.colorbar(drawn, ax=several, label=label, **place)
    bar.outline.set_visible(False)
    return bar


def are_short(names) -> bool:
    """Return whether class names are as short as digits, at most two letters."""
    return max(map(len, names)) <= 2


def class_ticks(axis, names, step=1):
    """Write the names of up to `12 // step` classes, upright below an axis if they are words."""
    axis.set_major_locator(MaxNLocator(12 // step, integer=True))
    axis.set_major_formatter(lambda at, _: dict(enumerate(names)).get(round(at), ""))
    rotation = 90 if axis.axis_name == "x" and not are_short(names) else 0
    axis.set_tick_params(labelsize=6, labelrotation=rotation)


def one_map(axes, image, extent_px, values, scale):
    """Draw a map over a pale image and its outline; − marks clearly negative values."""
    axes.set_axis_on()
    axes.set_facecolor("white")  # the background of the pale image, in any style
    axes.imshow(picture(image), cmap="gray_r", vmin=0, vmax=255, alpha=0.5)
    drawn = axes.imshow(values, cmap=SIGNED, norm=scale, extent=extent_px, zorder=2)
    outline(axes, image, 0.5)
    left, right, bottom, top = extent_px
    rows, columns = np.nonzero(values < -scale.halfrange / 5)
    axes.plot(
        left + (columns + 0.5) * (right - left) / values.shape[1],
        top + (rows + 0.5) * (bottom - top) / values.shape[0],
        linestyle="none", marker="_", color="black", markersize=2.2, markeredgewidth=0.5, zorder=4,
    )  # fmt: skip
    x, y = (right - left) / 2, (bottom - top) / 2  # context around the map
    _, height, width = image.shape
    axes.set(
        xlim=(max(left - x, -0.5), min(right + x, width - 0.5)),
        ylim=(min(bottom + y, height - 0.5), max(top - y, -0.5)),
        xticks=[],
        yticks=[],
    )
    axes.spines[:].set(visible=True, linewidth=0.3, color=GREY)
    return drawn


def outline(axes, image, linewidth: float):
    """Draw the outline of an image (C, H, W) at half of its brightness range, if it has any."""
    grey = image.mean(0)
    if (reach := np.ptp(grey)) > 0:
        half = grey.min() + reach / 2
        axes.contour(grey, [half], colors="black", linewidths=linewidth, zorder=3)
