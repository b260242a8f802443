"""The leaderboard drawn: a panel for each measure, a line for each network."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from capsviz.results import COLOURS
from capsviz.results.leaderboard import Row, is_by_definition
from capsviz.results.leaderboard.columns import COLUMNS, Column
from capsviz.results.panels import wrapped
from capsviz.statistics.estimate import Estimate

GREY = "#7F7F7F"
LINE, LEAST = 0.145, 0.075  # inches of a network's line, and where a page is full
PANEL, REST = 0.62, 0.6  # inches of a panel's width, at least; of its title and scale
PAGE = 8.6  # inches, the height that many networks fill
KEY = (
    "dot: mean; line: 95 %; tick: one run; hollow: by definition of the routing; "
    "dashed: reference level; no mark: not measured"
)


ACCURACY = Column("accuracy", "accuracy on test images", {})


def measures(
    table: Sequence[Row], names: Sequence[str] | None = None
) -> list[tuple[Column, list[Estimate | None]]]:
    """Return the columns that at least two rows have, or the only row, with their numbers."""
    every = [(ACCURACY, [row.network.accuracy for row in table])]
    for column in COLUMNS:
        cells = [row.cells.get(column.title) for row in table]
        every.append((column, [cell and cell.estimate for cell in cells]))
    every = [one for one in every if names is None or one[0].title in names]
    least = min(2, len(table))
    return [one for one in every if sum(number is not None for number in one[1]) >= least]


def draw(table: Sequence[Row], width: float, columns: Sequence[str] | None = None) -> Figure:
    """Draw numbers with their 95 % intervals, and ticks for single training runs.

    Dashed lines are levels of columns. Hollow dots follow from the definition of the routing.

    Parameters
    ----------
    width    of the figure, inches.
    columns  names of columns; None: all.
    """
    names = [row.network.name for row in table]
    panels = measures(table, columns)
    letters = 0.055 * max(map(len, names)) + 0.15
    across = max(1, min(len(panels), int((width - letters) / PANEL)))
    down = math.ceil(len(panels) / across)
    across = math.ceil(len(panels) / down)  # rows alike
    line = max(LEAST, min(LINE, (PAGE / down - REST) / len(names)))
    key = wrapped(KEY, width - 0.2, 6)
    tall = down * (line * len(names) + REST) + 0.11 * (1 + key.count("\n"))
    figure = Figure(figsize=(width, tall))
    grid = figure.subplots(down, across, squeeze=False, sharey=True)
    for axes, (column, numbers) in zip(grid.flat, panels, strict=False):
        _panel(axes, numbers, column.level, [is_by_definition(row, column) for row in table])
        axes.set_title(column.title.replace(" ", "\n", 1), fontsize=6.5, pad=3)
        if column.form.endswith("%"):
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:g}"))
            axes.set_xlabel(column.unit.rpartition(" ")[2], fontsize=6, labelpad=1)
    for axes in grid.flat[len(panels) :]:
        axes.axis("off")
    figure.supxlabel(key, fontsize=6)
    for row in grid:
        row[0].set_yticks(range(len(names)), names, fontsize=6)
        row[0].set_ylim(len(names) - 0.5, -0.5)
    return figure


def _panel(axes, numbers: Sequence[Estimate | None], level: float | None, hollow) -> None:
    for k, number in enumerate(numbers):
        if number is None:
            continue
        if number.runs is not None:
            runs = np.ravel(number.runs)
            axes.plot(runs, np.full(len(runs), k), "|", color=GREY, alpha=0.7, markersize=4)
        axes.hlines(k, *number.ci95, color=COLOURS[0], linewidth=0.9)
        inside = "white" if hollow[k] else COLOURS[0]
        axes.plot(number.value, k, "o", color=COLOURS[0], markerfacecolor=inside, markersize=3)
    if level is not None:
        axes.axvline(level, color=GREY, linewidth=0.6, linestyle="--")
    axes.xaxis.set_major_locator(MaxNLocator(3, min_n_ticks=2))
    axes.tick_params(axis="x", labelsize=6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="both", color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)
