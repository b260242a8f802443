"""Drawing for `curves`: a panel for each quantity, training and validation side by side."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

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
NONE = {"marker": "v", "markersize": 4, "markerfacecolor": "white", "linestyle": "none"}
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
    hidden = [
        _panel(axes, result, looks, *panel) for axes, panel in zip(grid.flat, drawn, strict=False)
    ]
    for axes in grid.flat[max(0, len(drawn) - columns) : len(drawn)]:  # nothing is below them
        axes.set_xlabel("epoch")
    for axes in grid.flat[len(drawn) :]:
        axes.set_axis_off()
    marks = [("best validation epoch", BEST)]
    if any(hidden):
        marks.append(("no error", NONE))
    lines = _legend(figure, result.names, looks, marks, width)
    figure.set_size_inches(width, rows * (0.5 + 0.3 * width / columns) + 0.15 * lines + 0.3)
    return figure


def _values(result, field: str) -> list[np.ndarray]:
    """Return the values of every run: errors in percent for accuracies; NaN for nothing."""
    runs = [np.array(run, float) for run in getattr(result, field)]
    if field.endswith("accuracy"):
        return [100 * (1 - run) for run in runs]
    return [1000 * run for run in runs] if field == "learning_rate" else runs


def _panel(axes, result, looks, field, title, runs) -> bool:
    """Draw one quantity; return whether zeros lie off its logarithmic axis."""
    logarithmic = _scale(axes, np.concatenate(runs), field)
    foot = {"transform": axes.get_xaxis_transform()}  # where zeros are marked
    few = max(map(len, runs)) <= FEW
    for epochs, values, look, best in zip(result.epochs, runs, looks, result.best, strict=True):
        gone = (values == 0) & logarithmic
        shown = np.where(gone, np.nan, values)
        axes.plot(epochs, shown, marker="." if few or len(epochs) == 1 else None, **look)
        mark = {"color": look["color"], "clip_on": False, "zorder": 4}
        for x in np.array(epochs)[gone]:
            axes.plot(x, 0, **mark, **NONE, **foot)
        if field.startswith("validation"):
            k = epochs.index(best)
            axes.plot(best, values[k], **mark, **BEST, **(foot if gone[k] else {}))
    axes.set_title(title)
    axes.set_xlim(0, 1.03 * max(epochs[-1] for epochs in result.epochs))
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=(1, 2, 5, 10)))
    rule(axes, "y")
    return logarithmic and any((values == 0).any() for values in runs)


def _scale(axes, values, field: str) -> bool:
    """Choose and label the y axis; return whether it is logarithmic."""
    positive = values[values > 0]
    logarithmic = len(positive) > 0 and positive.max() > SPAN * positive.min()
    logarithmic = logarithmic and field != "learning_rate"
    if logarithmic:
        axes.set_yscale("log")
        span = positive.max() / positive.min()
        digits = (1, 2, 3, 5, 7) if span < 8 else (1, 2, 5) if span < 200 else (1,)
        axes.yaxis.set_major_locator(LogLocator(subs=digits))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if field == "learning_rate":
        axes.set_ylim(0, 1.08 * values.max())
    return logarithmic


def _legend(figure, names, looks, marks, width) -> int:
    """Draw the legend of runs and marks above the panels; return the number of its lines."""
    room = int((width - 0.6) / WIDEST)
    labels = [n if len(n) <= room else f"…{n[1 - room :]}" for n in names]
    labels = [label.replace("$", r"\$") for label in labels] + [label for label, _ in marks]
    handles = [Line2D([], [], **look) for look in looks]
    handles += [Line2D([], [], color="0.3", **mark) for _, mark in marks]
    columns = legend_columns(width, labels, margin=0.55)
    figure.legend(handles, labels, loc="outside upper center", ncols=columns)
    return -(-len(labels) // columns)
