"""Drawings for `corrupt`: examples, errors as a heat map, differences with their intervals.

The table of `corrupt`: a row for each corruption, a column for each network.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from capsviz.results import COLOURS
from capsviz.results.panels import MARKERS, points
from capsviz.statistics.estimate import Estimate

ROW = 0.245  # inches of a row at least, so that its picture can be recognised
WIDE = 5.0  # inches from which the differences are shown too
NAMES = 1.3  # inches that the names of the rows and their pictures take, about
LETTER = 0.055  # inches of a letter of the columns' names


def overview(result, width):
    """A row for the clean images, one for each corruption, one for the mean."""
    C, K = len(result.corruptions), len(result.networks)
    wide = width >= WIDE
    height = ROW * (C + 2) + 1.0
    figure = Figure(figsize=(width, height))
    ratios = [ROW, min(0.62 * K, 0.42 * width)] + [0.36 * width] * wide
    grid = figure.add_gridspec(1, len(ratios), width_ratios=ratios)
    figure.get_layout_engine().set(wspace=0.015, w_pad=0.02)
    axes = [figure.add_subplot(cell) for cell in grid]
    for one in axes:
        one.set_ylim(C + 1.5, -0.5)
    _examples(axes[0], result)
    cell = (width - NAMES) * ratios[1] / sum(ratios[1:]) / K
    image = _errors(axes[1], result, cell)
    bar = figure.colorbar(image, ax=axes[1], location="bottom", aspect=18, pad=0.01)
    bar.set_label("error, %")
    bar.outline.set_visible(False)
    if wide:
        _intervals(axes[2], result)
    gap = " " if wide else "\n"
    figure.suptitle(f"{result.source}:{gap}{result.n:,} images of {result.dataset}", fontsize=7.5)
    return figure


def _examples(axes, result):
    """Draw the first image, original and under each corruption, beside the names of the rows."""
    for r, image in enumerate(() if result.examples is None else result.examples[:, 0]):
        extent = (-0.46, 0.46, r + 0.46, r - 0.46)
        axes.imshow(image, cmap="gray", vmin=0, vmax=255, extent=extent)
        axes.add_patch(Rectangle((-0.46, r - 0.46), 0.92, 0.92, fill=False, color="0.6", lw=0.4))
    C = len(result.corruptions)
    axes.set(xlim=(-0.5, 0.5), ylim=(C + 1.5, -0.5), xticks=[], anchor="E")
    names = ["clean", *(name.replace("_", " ") for name in result.corruptions), "mean of these"]
    axes.set_yticks(range(C + 2), names)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _errors(axes, result, cell):
    """Errors in percent, one cell for each row and network, all on one scale."""
    columns = [result.clean.value, result.error.value, result.mean.value]
    values = 100 * np.column_stack(columns).T
    top = max(10, 10 * int(np.ceil(values.max() / 10)))
    image = axes.imshow(values, cmap="Blues", vmin=0, vmax=top, aspect="auto")
    for (r, k), value in np.ndenumerate(values):
        colour = "white" if value > 0.65 * top else "black"
        axes.text(k, r, f"{value:.1f}", ha="center", va="center", fontsize=6.5, color=colour)
    for edge in (0.5, len(values) - 1.5):
        axes.axhline(edge, color="black", linewidth=0.6)
    narrow = max(map(len, result.networks)) * LETTER > cell
    rotated = {"rotation": 35, "ha": "left", "rotation_mode": "anchor"} if narrow else {}
    axes.set_xticks(range(len(result.networks)), result.networks, **rotated)
    axes.set_yticks([])
    axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False, pad=2)
    axes.spines[:].set_visible(False)
    return image


def _intervals(axes, result):
    """Errors of a single network, or differences from the baseline's, with their intervals."""
    several, C = len(result.networks) > 1, len(result.corruptions)
    drawn = range(int(several), len(result.networks))
    offsets = np.linspace(-0.28, 0.28, len(drawn)) if several and len(drawn) > 1 else [0]
    for k, offset in zip(drawn, offsets, strict=True):
        parts = [result.clean[[k]], result.error[k], result.mean[[k]]]
        if several:
            parts = [part.difference for part in parts[1:]]
        values = np.concatenate([part.value for part in parts])
        one = 100 * Estimate(values, np.concatenate([part.ci95 for part in parts]))
        look = (COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)])
        points(axes, one, *look, result.networks[k], offset + several)
    for edge in np.arange(0.5, C + 1):
        outer = edge in (0.5, C + 0.5)
        axes.axhline(edge, color="black" if outer else "0.88", linewidth=0.6, zorder=0)
    axes.axvline(0, color="black", linewidth=0.6)
    if several:
        axes.set_xlabel(f"error minus that of {result.baseline}, points\n(bars: 95 %)")
        axes.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1), ncols=min(2, len(drawn)), borderaxespad=0.2
        )
    else:
        axes.set_xlabel("error, % (bars: 95 %)")
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.04)


def table(result) -> tuple[list[str], list[list[str]], str]:
    """Header, rows and caption; errors and ratios in percent, with their intervals."""
    each = {name.replace("_", " "): result.error[:, c] for c, name in enumerate(result.corruptions)}
    each = {"clean": result.clean, **each, "mean of the corruptions": result.mean}
    ratios = ("mce", "relative_mce", "total", "relative_total")
    each |= {result.titles[field]: getattr(result, field) for field in ratios}
    rows = [_row(name, estimate) for name, estimate in each.items()]
    text = (
        f"Error in percent on {result.n} {result.dataset} images under {result.source}, with 95 % "
        "intervals: Wilson's for errors, of resampled images for ratios. mCE: mean over the "
        f"corruptions of the ratio of the error to that of {result.baseline} (Hendrycks & "
        "Dietterich 2019). Relative total error: ratio of the sums over the corruptions. Relative "
        "mCE and relative total excess: the same for the increase over the clean error. –: the "
        "baseline has nothing to divide by."
    )
    return ["corruption", *result.networks], rows, text


def _row(name, estimate) -> list[str]:
    """Estimates (K,) in percent; without the interval where there is none."""
    cells = []
    for one in (100 * estimate[k] for k in range(len(estimate))):
        known = np.isfinite(one.ci95).all()
        cells.append(f"{one:.1f}" if known else f"{one.value:.1f}".replace("nan", "–"))
    return [name, *cells]
