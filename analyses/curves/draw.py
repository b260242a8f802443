"""Drawing for `curves`: a panel for each quantity, training and validation side by side."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
    SymmetricalLogLocator,
)

from capsviz.results import COLOURS
from capsviz.results.panels import legend_columns, rule

LINES = ("-", "--", ":", "-.")  # another for each run, and colour: forty runs differ
SPAN = 3  # highest over lowest value, from which an axis is logarithmic
FEW = 15  # epochs of the longest run, up to which each epoch has a dot
PANELS = (  # field and title
    ("train_accuracy", "training error, %"),
    ("validation_accuracy", "validation error, %"),
    ("train_loss", "training loss"),
    ("train_margin_loss", "training margin loss"),
    ("validation_margin_loss", "validation margin loss"),
    ("train_reconstruction_loss", "training reconstruction"),
    ("validation_sse", "validation SSE"),
    ("learning_rate", "learning rate × 1000"),
)
BEST = {"marker": "o", "markersize": 4.5, "markerfacecolor": "white", "linestyle": "none"}
WIDEST = 0.09  # inches of the widest letter in a legend


def panels(result, width):
    """Draw every quantity by epoch; one that no run has gets no panel."""
    if len(result.names) > len(LINES) * len(COLOURS):
        raise ValueError(
            f"expected at most {len(LINES) * len(COLOURS)} runs, because more lines do not differ, "
            f"got {len(result.names)}"
        )
    drawn = [(field, title, _values(result, field)) for field, title in PANELS]
    drawn = [panel for panel in drawn if not all(np.isnan(run).all() for run in panel[2])]
    looks = [
        {
            "color": COLOURS[s % len(COLOURS)],
            "linestyle": LINES[(s + s // len(COLOURS)) % len(LINES)],
        }
        for s in range(len(result.names))
    ]
    figure = Figure()
    columns = 3 if width > 5 else 2
    rows = -(-len(drawn) // columns)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, panel in zip(grid.flat, drawn, strict=False):
        _panel(axes, result, looks, *panel)
    for axes in grid.flat[max(0, len(drawn) - columns) : len(drawn)]:  # nothing is below them
        axes.set_xlabel("epoch")
    for axes in grid.flat[len(drawn) :]:
        axes.set_axis_off()
    lines = _legend(figure, result.names, looks, width)
    figure.set_size_inches(width, rows * (0.5 + 0.3 * width / columns) + 0.15 * lines + 0.3)
    return figure


def _values(result, field: str) -> list[np.ndarray]:
    """Return the values of every run: errors in percent for accuracies; NaN for nothing."""
    runs = [np.array(run, float) for run in getattr(result, field)]
    if field.endswith("accuracy"):
        return [100 * (1 - run) for run in runs]
    return [1000 * run for run in runs] if field == "learning_rate" else runs


def _panel(axes, result, looks, field, title, runs) -> None:
    """Draw one quantity."""
    _scale(axes, np.concatenate(runs), field)
    few = max(map(len, runs)) <= FEW
    for epochs, values, look, best in zip(result.epochs, runs, looks, result.best, strict=True):
        axes.plot(epochs, values, marker="." if few or len(epochs) == 1 else None, **look)
        if field.startswith("validation"):
            mark = {"color": look["color"], "clip_on": False, "zorder": 4, **BEST}
            axes.plot(best, values[epochs.index(best)], **mark)
    axes.set_title(title)
    axes.set_xlim(0, 1.03 * max(epochs[-1] for epochs in result.epochs))
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=(1, 2, 5, 10)))
    rule(axes, "y")


def _scale(axes, values, field: str) -> None:
    """Choose and label the y axis; a logarithmic one with zeros ends in a linear part."""
    positive = values[values > 0]
    span = positive.max() / positive.min() if len(positive) else 0
    if field == "learning_rate":
        axes.set_ylim(0, 1.08 * values.max())
    elif span > SPAN:
        digits = (1, 2, 3, 5, 7) if span < 8 else (1, 2, 5) if span < 200 else (1,)
        least = 10.0 ** np.floor(np.log10(positive.min()))
        zeros = {"linthresh": least, "linscale": 0.3} if (values == 0).any() else {}
        axes.set_yscale("symlog" if zeros else "log", **zeros)
        locator = SymmetricalLogLocator(base=10, linthresh=least, subs=digits)
        axes.yaxis.set_major_locator(locator if zeros else LogLocator(subs=digits))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _legend(figure, names, looks, width) -> int:
    """Draw the legend of runs above the panels; return the number of its lines."""
    room = int((width - 0.6) / WIDEST)
    labels = [n if len(n) <= room else f"…{n[1 - room :]}" for n in names]
    labels = [label.replace("$", r"\$") for label in labels] + ["best validation epoch"]
    handles = [Line2D([], [], **look) for look in (*looks, {"color": "0.3", **BEST})]
    columns = legend_columns(width, labels, margin=0.55)
    figure.legend(handles, labels, loc="outside upper center", ncols=columns)
    return -(-len(labels) // columns)
