"""Drawings for `importance`: one image without each group of its children."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure

from capsviz.results import COLOURS
from capsviz.results.panels import picture, show

WIDE = 6.0  # inches: a figure from here on has a page's layout, below it a column's
SIGNED = "RdBu"
RANDOM = "#7F7F7F"


def one_image(result, width):
    """The image, a map of places, and a bar for each type and dimension."""
    wide = width >= WIDE
    mapped = result.extent_px is not None and "places" in result.change
    bars = [kind for kind in result.change if not (mapped and kind == "places")]
    panels = 1 + mapped + len(bars)
    if wide:
        figure = Figure(figsize=(width, 1.95))
        ratios = [1, *([1.25] if mapped else []), *[1.5] * len(bars)]
        grid = figure.add_gridspec(1, panels, width_ratios=ratios)
        places = [grid[0, k] for k in range(panels)]
    else:
        rows = 1 + len(bars)
        figure = Figure(figsize=(width, 1.75 + 1.55 * len(bars)))
        grid = figure.add_gridspec(rows, 2)
        places = [grid[0, 0], *([grid[0, 1]] if mapped else [])]
        places += [grid[1 + k, :] for k in range(len(bars))]
    axes = [figure.add_subplot(place) for place in places]
    show(axes[0], result.image)
    name = result.classes[result.watched]
    axes[0].set_title("image", fontsize=6.5)
    whole = result.activations[result.watched]
    axes[0].set_xlabel(f"activation of {name}:\n{whole:.3f}", fontsize=6.5)
    if mapped:
        _map(figure, axes[1], result)
    for one, kind in zip(axes[1 + mapped :], bars, strict=True):
        _bars(one, result, kind)
    figure.suptitle(
        f"what the activation of class {name} changes by without ...;{' ' if wide else chr(10)}"
        "band: 5 to 95 % of random removals of equal norm",
        fontsize=6.5,
    )
    return figure


def _map(figure, axes, result):
    """The change without each place, on the image."""
    _, rows, columns = result.grid
    change = result.change["places"].reshape(rows, columns)
    scale = CenteredNorm(0, float(np.abs(change).max()) or 1e-6)
    axes.imshow(picture(result.image), cmap="gray_r", vmin=0, vmax=255, alpha=0.6)
    drawn = axes.imshow(change, cmap=SIGNED, norm=scale, extent=result.extent_px, zorder=2)
    grey = result.image.mean(0)
    if np.ptp(grey) > 0:
        axes.contour(
            grey, [grey.min() + np.ptp(grey) / 2], colors="black", linewidths=0.5, zorder=3
        )
    height, width = grey.shape
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    low, high = result.control["places"]
    axes.set_title("the children of a place", fontsize=6.5)
    text = f"random: {low:+.3f} to {high:+.3f}".replace("-", "\N{MINUS SIGN}")
    axes.set_xlabel(text, fontsize=6.5)
    bar = figure.colorbar(drawn, ax=axes, fraction=0.05, pad=0.02)
    bar.ax.tick_params(labelsize=6)
    bar.outline.set_visible(False)


def _bars(axes, result, kind):
    """A bar for each group."""
    change = result.change[kind]
    axes.axhspan(*result.control[kind], color=RANDOM, alpha=0.3, linewidth=0)
    axes.bar(range(len(change)), change, color=COLOURS[0], width=0.8)
    axes.axhline(0, color="black", linewidth=0.5)
    if len(change) < 6:  # no ticks between them
        axes.set_xticks(range(len(change)))
    axes.set_xlabel({"types": "a capsule type", "dimensions": "a dimension of all poses"}.get(
        kind, "a group of children"))  # fmt: skip
    axes.set_ylabel("change", fontsize=6, labelpad=3)
    axes.tick_params(labelsize=6)
