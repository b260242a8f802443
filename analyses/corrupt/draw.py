"""Panels of `corrupt`: examples, errors as a heat map, differences with their intervals.

The table of `corrupt`: a row for each corruption, a column for each network.
"""

import numpy as np
from matplotlib.patches import Rectangle

from capsviz.analysis import Panel
from capsviz.results.panels import by_rows, dots, kind, name_rows, room
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.words import number

LETTER = 0.055  # inches: width of a letter in the names of columns


def _name_rows(axes, result):
    """Name the rows: the clean images, each corruption, and the mean."""
    names = ["clean", *(name.replace("_", " ") for name in result.corruptions), "mean of these"]
    name_rows(axes, names)


def _examples(axes, result):
    """Draw the first image, original and under each corruption."""
    for r, image in enumerate(result.examples.transpose(0, 2, 3, 1)):
        extent = (-0.49, 0.49, r + 0.49, r - 0.49)
        axes.imshow(image, cmap="gray", vmin=0, vmax=255, extent=extent)
        axes.add_patch(Rectangle((-0.49, r - 0.49), 0.98, 0.98, fill=False, color="0.6", lw=0.4))
    axes.set(xlim=(-0.5, 0.5), xticks=[], anchor="E")
    _name_rows(axes, result)
    axes.spines[:].set_visible(False)


def _errors(axes, result):
    """Draw errors in percent, a cell for each row and network."""
    columns = [result.clean.value, result.error.value, result.mean.value]
    values = 100 * np.column_stack(columns).T
    top = max(10, 10 * int(np.ceil(values.max() / 10)))
    axes.imshow(values, cmap="Blues", vmin=0, vmax=top, aspect="auto")
    for (r, k), value in np.ndenumerate(values):
        colour = "white" if value > 0.65 * top else "black"
        axes.text(k, r, f"{value:.1f}", ha="center", va="center", fontsize=6.5, color=colour)
    for edge in (0.5, len(values) - 1.5):
        axes.axhline(edge, color="black", linewidth=0.6)
    narrow = max(map(len, result.networks)) * LETTER > 0.8 * room(axes) / len(result.networks)
    rotated = {"rotation": 35, "ha": "left", "rotation_mode": "anchor"} if narrow else {}
    axes.set_xticks(range(len(result.networks)), result.networks, **rotated)
    _name_rows(axes, result)
    axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False, pad=2)
    axes.spines[:].set_visible(False)


def _intervals(axes, result):
    """Draw errors of one network, or differences from the baseline's, with their intervals."""
    several, kinds = len(result.networks) > 1, []
    for k in range(int(several), len(result.networks)):
        parts = [result.clean[[k]], result.error[k], result.mean[[k]]]
        if several:
            parts = [part.difference for part in parts[1:]]
        values = np.concatenate([part.value for part in parts])
        one = 100 * Estimate(values, np.concatenate([part.ci95 for part in parts]))
        kinds.append(kind(one, k, result.networks[k]))
    dots(axes, kinds, 0.56 / max(1, len(kinds) - 1), start=several)
    last = len(result.corruptions) + 0.5
    for edge in np.arange(0.5, last + 0.5):
        outer = edge in (0.5, last)
        axes.axhline(edge, color="black" if outer else "0.88", linewidth=0.6, zorder=0)
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set_xlabel(f"error minus that of {result.baseline}, points" if several else "error, %")
    _name_rows(axes, result)
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.04)


PANELS = {
    "examples": Panel(_examples, by_rows("corruptions", 0.205, 0.68), 0.2, 0.4, shown="examples"),
    "errors": Panel(
        _errors, by_rows("corruptions", 0.205, 0.68), 0.4, 0.6,
        caption="the error of each network on {n:,} images of {dataset} ({source})",
    ),
    "intervals": Panel(
        _intervals, by_rows("corruptions", 0.205, 0.98), 0.4, marks="bars",
        caption=lambda result: "errors on each corruption" if len(result.networks) == 1 else
        f"errors minus those of {result.baseline}, not corrected for the number of corruptions",
    ),
}  # fmt: skip


def table(result) -> tuple[list[str], list[list[str]], str]:
    """Return header, rows and caption; errors and ratios are in percent, with intervals."""
    each = {name.replace("_", " "): result.error[:, c] for c, name in enumerate(result.corruptions)}
    each = {"clean": result.clean, **each, "mean of the corruptions": result.mean}
    ratios = () if result.unsaid else ("mce", "relative_mce", "total", "relative_total")
    each |= {result.titles[field]: getattr(result, field) for field in ratios}
    rows = [[name, *map(_cell, 100 * estimate)] for name, estimate in each.items()]
    how = ": Wilson's for errors" + ", of resampled images for ratios" * bool(ratios)
    text = (
        f"Error in percent on {result.n} {result.dataset} images under {result.source}, with 95 % "
        f"intervals{how if result.clean.runs is None else ' over training runs and images'}."
    )
    of_ratios = (
        f" mCE: mean over the corruptions of the ratio of the error to that of {result.baseline} "
        "(Hendrycks & Dietterich 2019). Relative total error: ratio of the sums over the "
        "corruptions. Relative mCE and relative total excess: the same for the increase over the "
        "clean error. –: the ratio is undefined."
    )
    return ["corruption", *result.networks], rows, text + of_ratios * bool(ratios)


def _cell(one) -> str:
    """Return an estimate as text, without an interval if it has none."""
    return f"{one:.1f}" if np.isfinite(one.ci95).all() else number(float(one.value), ".1f")
