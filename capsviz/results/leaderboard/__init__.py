"""Compare networks from files: their cards and results of analyses. No network is run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from capsviz import discovery
from capsviz.results import COLOURS
from capsviz.results.leaderboard.columns import COLUMNS, FIRST, Column
from capsviz.results.leaderboard.sources import NONE, Network, Record, read, read_shipped, unnamed
from capsviz.results.panels import name_rows, points, rule, wrapped
from capsviz.statistics.estimate import Estimate
from capsviz.tracing.needs import BY_DEFINITION

__all__ = ["Row", "beside", "caption", "cells", "draw", "read", "rows", "table"]
BY_DEFINITION_SIGN = "†"
GREY = "#7F7F7F"
LINE, LEAST = 0.145, 0.075  # inches per network: usual, and smallest if there are many
PANEL, REST = 0.62, 0.6  # inches: smallest width of a panel; height of its title and scale
PAGE = 8.6  # inches: height of a full page
KEY = (
    "dot: mean; line: 95 %; tick: one run; hollow: by definition of the routing; "
    "dashed: reference level; no mark: not measured"
)
BETTER = {None: "", True: " (higher is better)", False: " (lower is better)"}
CARD = ("data", "runs", "accuracy", "parameters", "training")  # columns from a network's card
TITLES = [*CARD[:3], *(column.title for column in COLUMNS), *CARD[3:]]
USUAL = ("data", "runs", "accuracy", "inside", "outside", "parameters")  # if there is no --columns


class Cell(NamedTuple):
    """A number and the file that it comes from."""

    estimate: Estimate
    runs: int  # training runs behind it
    file: Path | None


class Row(NamedTuple):
    """One network, or the runs of one recipe."""

    network: Network
    cells: dict[str, Cell]  # by column title; cells without a result are missing


def table(places: Sequence = ()) -> list[Row]:
    """Return rows of the networks at these places, or of the networks of results there.

    Without places, all shipped networks are returned. Shipped results are used for networks
    anywhere.
    """
    known, shipped = read_shipped()
    if not places:
        return rows(known, shipped)
    own, results = read(places)
    if own:
        given = {record.path for record in results}
        return rows(own, [*results, *(record for record in shipped if record.path not in given)])
    networks = [*known, *unnamed(results, known)]
    return [row for row in rows(networks, results) if row.cells]


def rows(networks: Sequence[Network], records: Sequence[Record]) -> list[Row]:
    """Return a row for every network.

    If several results give one cell, the one with the most training runs is used, then the one with
    the most images. A result belongs to a network if its weights have the same digest.
    """
    table = [Row(one, {}) for one in networks]
    for column in COLUMNS:
        for record in records:
            take = column.kinds.get((record.about["analysis"], record.about["kind"]))
            options = record.about.get("options", {})
            if take is None or any(
                (options.get(name) or None) not in (None, *usual)
                for name, usual in column.only.items()
            ):
                continue
            for name, estimate in take(record.result):
                several = name is FIRST or name in record.recipes
                runs = estimate.training_runs if several else 1
                if estimate.n is None:  # not recorded with the estimate
                    estimate = replace(estimate, n=getattr(record.result, "n", None))
                cell, weight = Cell(estimate, runs, record.path), (runs, estimate.n or 0)
                for row in table:
                    if _is_of(record, name, row.network):
                        best = row.cells.get(column.title)
                        if best is None or weight > (best.runs, best.estimate.n or 0):
                            row.cells[column.title] = cell
    return table


def beside(measured: Sequence[tuple[Any, Mapping]]) -> list[Row]:
    """Return a row for each network of results that compare the same networks.

    `measured` has the pairs of `results.read_result`. Accuracy and size are from the last result.
    """
    last, about = measured[-1]
    runs = (about["runs"], *about["runs"].get("others", ())) if "runs" in about else ()
    seeds = [*(one["seeds"] for one in runs), *([0] for _ in last.networks)]
    table = {
        name: Row(Network(name, last.dataset, seeds[k], [], last.clean[k], size), {})
        for k, (name, size) in enumerate(zip(last.networks, last.parameters, strict=True))
    }
    for column in COLUMNS:
        for result, about in measured:
            take = column.kinds.get((about["analysis"], about["kind"]))
            for name, estimate in take(result) if take else ():
                cell = Cell(estimate, estimate.training_runs, None)
                table[last.networks[0] if name is FIRST else name].cells[column.title] = cell
    return list(table.values())


def _is_of(record: Record, name: str | None, network: Network) -> bool:
    if getattr(record.result, "dataset", network.dataset) != network.dataset:
        return False  # from another data set
    if name is FIRST:
        return record.digests <= set(network.digests)
    return record.digest(name) in set(network.digests) - {None}


def choose(names: Sequence[str]) -> list[str]:
    """Return names of columns, each once; `USUAL` for none, ValueError for an unknown one."""
    if not names:
        return list(USUAL)
    for name in names:
        discovery.require_known("column", name, (*TITLES, "all"))
    return TITLES if "all" in names else list(dict.fromkeys(names))


def cells(table: Sequence[Row], names: Sequence[str] = TITLES) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of a table of these columns, after the name of the network."""
    known = {column.title: column for column in COLUMNS}
    units = {column.title: column.unit for column in COLUMNS}
    units |= {"accuracy": "%", "training": "min"}
    header = [", ".join(filter(None, [name, units.get(name)])) for name in names]

    def text(row, name):
        column = known.get(name)
        if column is None:
            return _of_card(row, name)
        return _cell(row.cells.get(name), column, row)

    rows = [[row.network.name, *(text(row, name) for name in names)] for row in table]
    return ["network", *header], rows


def _of_card(row: Row, name: str) -> str:
    network = row.network
    return {
        "data": network.dataset,
        "runs": str(len(network.seeds)),
        "accuracy": NONE if network.accuracy is None else _interval(network.accuracy, ".1%"),
        "parameters": NONE if network.parameters is None else f"{network.parameters:,}",
        "training": NONE if network.seconds is None else f"{network.seconds / 60:.0f}",
    }[name]


def _cell(cell: Cell | None, column: Column, row: Row) -> str:
    if cell is None:
        return NONE
    differ = cell.runs != len(row.network.seeds) and bool(row.network.digests)
    runs = f" ({cell.runs} run{'s' * (cell.runs > 1)})" * differ
    mark = BY_DEFINITION_SIGN * is_by_definition(row, column)
    return _interval(cell.estimate, column.form) + runs + mark


def is_by_definition(row: Row, column: Column) -> bool:
    """Return whether a number follows from the definition of the routing."""
    return column.title in BY_DEFINITION.get(row.network.routing or "", ())


def _interval(estimate, form: str) -> str:
    """Return a number with its interval, shares in percent without the sign."""
    scale, form = (100, form.replace("%", "f")) if form.endswith("%") else (1, form)
    return f"{scale * estimate:{form}}".replace("-", "−")


def caption(table: Sequence[Row], names: Sequence[str] = TITLES) -> str:
    """Return the meaning of the columns, and the notes on the networks' data."""
    columns = " ".join(
        f"{column.title.capitalize()}: {column.meaning}{BETTER[column.higher]}."
        for column in COLUMNS
        if column.title in names
    )
    notices = {row.network.name: row.network.notice for row in table if row.network.notice}
    return " ".join([
        "Intervals are 95 %: over images for one training run, over runs and images for several.",
        f"{NONE}: no result. {BY_DEFINITION_SIGN}: follows from the definition of the routing.",
        *filter(None, [columns]),
        "Compare only rows of the same data set and of the same number of images.",
        *(f"{name}: {notice}." for name, notice in notices.items()),
    ])  # fmt: skip


def measures(
    table: Sequence[Row], names: Sequence[str] = TITLES
) -> list[tuple[Column, list[Estimate | None]]]:
    """Return the columns with numbers in at least two rows, or in the only row, and the numbers."""
    accuracy = Column("accuracy", "accuracy on test images", {})
    every = [(accuracy, [row.network.accuracy for row in table])]
    for column in COLUMNS:
        cells = [row.cells.get(column.title) for row in table]
        every.append((column, [cell and cell.estimate for cell in cells]))
    least = min(2, len(table))
    return [
        (column, numbers)
        for column, numbers in every
        if column.title in names and sum(one is not None for one in numbers) >= least
    ]


def draw(table: Sequence[Row], width: float, names: Sequence[str] = TITLES) -> Figure:
    """Draw numbers with their 95 % intervals, and ticks for single training runs.

    Dashed lines are reference levels. Hollow dots follow from the definition of the routing.
    """
    networks = [row.network.name for row in table]
    panels = measures(table, names)
    letters = 0.055 * max(map(len, networks)) + 0.15
    across = max(1, min(len(panels), int((width - letters) / PANEL)))
    down = math.ceil(len(panels) / across)
    across = math.ceil(len(panels) / down)  # rows of similar length
    line = max(LEAST, min(LINE, (PAGE / down - REST) / len(networks)))
    key = wrapped(KEY, width - 0.2, 6)
    tall = down * (line * len(networks) + REST) + 0.11 * (1 + key.count("\n"))
    figure = Figure(figsize=(width, tall))
    grid = figure.subplots(down, across, squeeze=False, sharey=True)
    for axes, (column, numbers) in zip(grid.flat, panels, strict=False):
        _panel(axes, numbers, column.level, [is_by_definition(row, column) for row in table])
        title = column.drawn or column.title.replace(" ", "\n", 1)
        axes.set_title(wrapped(title, 1.25 * width / across, 6.5), fontsize=6.5, pad=3)
        if column.form.endswith("%"):
            axes.xaxis.set_major_formatter(lambda x, _: f"{100 * x:g}".replace("-", "−"))
            unit = column.unit.rpartition(" ")[2]
            change = "change, points" if unit == "points" else unit
            axes.set_xlabel(change, fontsize=6, labelpad=1)
    for axes in grid.flat[len(panels) :]:
        axes.axis("off")
    figure.supxlabel(key, fontsize=6)
    for row in grid:
        name_rows(row[0], networks, fontsize=6)
    return figure


def _panel(axes, numbers: Sequence[Estimate | None], level: float | None, hollow) -> None:
    for k, number in enumerate(numbers):
        if number is None:
            continue
        if number.runs is not None:
            runs = np.ravel(number.runs)
            axes.plot(runs, np.full(len(runs), k), "|", color=GREY, alpha=0.7, markersize=4)
        inside = "white" if hollow[k] else COLOURS[0]
        points(axes, number, COLOURS[0], "o", shift=k, markerfacecolor=inside, markersize=3)
    if level is not None:
        axes.axvline(level, color=GREY, linewidth=0.6, linestyle="--")
    axes.xaxis.set_major_locator(MaxNLocator(3, min_n_ticks=2))
    axes.tick_params(axis="x", labelsize=6)
    rule(axes, "both")
