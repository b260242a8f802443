"""Networks side by side, from files alone: their cards and results of analyses, nothing is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capsviz import checkpoint, discovery
from capsviz.results.leaderboard.columns import (
    COLUMNS,
    FIRST,
    Column,
    affine_names,
    number_of_runs,
)
from capsviz.results.leaderboard.sources import NONE, Network, Record, Sources, shipped
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.words import in_a_row
from capsviz.tracing.needs import BY_DEFINITION

__all__ = ["Row", "Sources", "caption", "cells", "claims", "rows", "shipped", "table"]
BY_DEFINITION_SIGN = "†"
SEVERAL = 3  # training runs of each network: with fewer, nothing is said beyond these weights
CARD = ("data", "runs", "accuracy", "parameters", "training")  # columns from a network's card
USUAL = ("data", "runs", "accuracy", "inside", "outside", "parameters")  # without --columns


class Cell(NamedTuple):
    """A number and the file that it comes from."""

    estimate: Estimate
    path: Path
    runs: int  # training runs behind it
    terms: tuple = ()  # what must be equal to compare it with another one


class Row(NamedTuple):
    """One network, or the runs of one recipe."""

    network: Network
    cells: dict[str, Cell]  # by the title of the column; one without a result is missing


def table(places: Sequence = ()) -> list[Row]:
    """Return the rows of the networks at some places, or behind the results there.

    Without places these are all shipped networks. Shipped results count for networks anywhere.
    """
    known = Sources.read([*checkpoint.shipped(), *shipped()])
    if not places:
        return rows(known)
    own = Sources.read(places)
    both = own.beside(known)
    if own.networks:
        return rows(both, only=[network.name for network in own.networks])
    unnamed = Sources(own.networks, own.records).beside(known).unnamed()
    whole = Sources([*both.networks, *unnamed], own.records)
    return [row for row in rows(whole) if row.cells]


def rows(sources: Sources, *, only: Sequence[str] = ()) -> list[Row]:
    """Return a row for every network of the sources, and for those of `capsviz affnist`.

    If several results give one cell, that of the most training runs counts, then that of the most
    images. A result belongs to a network if its weights have the same digest.

    Parameters
    ----------
    only  names of networks; none: all.
    """
    networks = [*sources.networks, *_of_affnist(sources.records)]
    table = [Row(one, {}) for one in networks if not only or one.name in only]
    for column in COLUMNS:
        for record in sources.records:
            take = column.kinds.get((record.about["analysis"], record.about["kind"]))
            if take is None:
                continue
            options = record.about.get("options", {})
            if any(options.get(name) is not None for name in column.unset):
                continue
            terms = tuple(_plain(record.result, name) for name in column.alike)
            for name, estimate in take(record.result):
                runs = number_of_runs(estimate) if name is FIRST else 1  # others: one run each
                if estimate.n is None:  # not recorded with the estimate
                    estimate = replace(estimate, n=getattr(record.result, "n", None))
                cell = Cell(estimate, record.path, runs, terms)
                for row in table:
                    if _is_of(record, name, row.network):
                        best = row.cells.get(column.title)
                        if best is None or _weight(cell) > _weight(best):
                            row.cells[column.title] = cell
    return table


def _plain(result, name: str):
    """Return a field as plain data; None for one that a result does not have."""
    return np.asarray(getattr(result, name, None)).tolist()


def _is_of(record: Record, name: str | None, network: Network) -> bool:
    if network.digests and getattr(record.result, "dataset", network.dataset) != network.dataset:
        return False  # of another data set
    if name is FIRST:
        return record.digests <= set(network.digests)
    if not network.digests:  # of `capsviz affnist`
        return name == network.name
    return record.digest(name) in set(network.digests) - {None}


def _weight(cell: Cell) -> tuple[int, int]:
    return cell.runs, cell.estimate.n or 0


def _of_affnist(records: Sequence[Record]) -> list[Network]:
    """Return the networks of results of `capsviz affnist`, which were trained for these alone."""
    networks = []
    for record in records:
        if (record.about["analysis"], record.about["kind"]) == ("affnist", "Result"):
            result = record.result
            for i, name in enumerate(affine_names(result)):
                networks.append(
                    Network(name, "shifted mnist", result.seeds[i], [], None,
                            int(result.parameters[i]), None, None)
                )  # fmt: skip
    return networks


def titles() -> list[str]:
    """Return the names of all columns, in their order."""
    return [*CARD[:3], *(column.title for column in COLUMNS), *CARD[3:]]


def choose(names: Sequence[str]) -> list[str]:
    """Return columns by their names, each once: the usual ones for none; ValueError if unknown."""
    if not names:
        return list(USUAL)
    for name in names:
        if name not in (*titles(), "all"):
            raise ValueError(discovery.unknown("column", name, [*titles(), "all"]))
    return titles() if "all" in names else list(dict.fromkeys(names))


def cells(
    table: Sequence[Row], names: Sequence[str] | None = None
) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of a table of some columns, or of all; the network comes first."""
    known = {column.title: column for column in COLUMNS}
    units = {column.title: column.unit for column in COLUMNS}
    units |= {"accuracy": "%", "training": "min"}
    names = titles() if names is None else names
    header = [", ".join(filter(None, [name, units.get(name)])) for name in names]
    texts = [
        [
            _cell(row.cells.get(name), known[name], row) if name in known else _of_card(row, name)
            for name in names
        ]
        for row in table
    ]
    return ["network", *header], [
        [row.network.name, *some] for row, some in zip(table, texts, strict=True)
    ]


def _of_card(row: Row, name: str) -> str:
    network = row.network
    return {
        "data": network.dataset,
        "runs": str(len(network.seeds)),
        "accuracy": _accuracy(row),
        "parameters": NONE if network.parameters is None else f"{network.parameters:,}",
        "training": NONE if network.seconds is None else f"{network.seconds / 60:.0f}",
    }[name]


def _accuracy(row: Row) -> str:
    accuracy = row.network.accuracy
    return NONE if accuracy is None else _interval(accuracy, ".1%")


def _cell(cell: Cell | None, column: Column, row: Row) -> str:
    if cell is None:
        return NONE
    apart = cell.runs != len(row.network.seeds) and bool(row.network.digests)
    marks = f" ({_runs(cell.runs)})" * apart + BY_DEFINITION_SIGN * is_by_definition(row, column)
    return _interval(cell.estimate, column.form) + marks


def is_by_definition(row: Row, column: Column) -> bool:
    """Return whether a number follows from the definition of the routing."""
    return column.title in BY_DEFINITION.get(row.network.routing or "", ())


def _may_be_by_definition(row: Row, column: Column) -> bool:
    """Return the same; if the routing is not known, whether it is so for some routing."""
    if row.network.routing is None:
        return any(column.title in titles for titles in BY_DEFINITION.values())
    return is_by_definition(row, column)


def _runs(number: int) -> str:
    return f"{number} run{'s' * (number > 1)}"


def _interval(estimate, form: str) -> str:
    """Return a number with its interval, in percent without the sign."""
    scale, form = (100, form.replace("%", "f")) if form.endswith("%") else (1, form)
    value, low, high = (f"{scale * float(one):{form}}" for one in (estimate.value, *estimate.ci95))
    return f"{value} [{low}, {high}]".replace("-", "−")


def _columns(names: Sequence[str] | None) -> list[Column]:
    return [column for column in COLUMNS if names is None or column.title in names]


def caption(table: Sequence[Row], names: Sequence[str] | None = None) -> str:
    """Return what the columns are, and the notes on the networks' data."""
    columns = " ".join(
        f"{column.title.capitalize()}: {column.meaning}{_better(column.higher)}."
        for column in _columns(names)
    )
    notices = {row.network.name: row.network.notice for row in table if row.network.notice}
    return " ".join([
        "Intervals are 95 %: over images for one training run, over runs and images for several.",
        f"{NONE}: no result. {BY_DEFINITION_SIGN}: follows from the definition of the routing.",
        *filter(None, [columns]),
        "Compare only rows of the same data set and of the same number of images.",
        *(f"{name}: {notice}." for name, notice in notices.items()),
    ])  # fmt: skip


def _better(higher: bool | None) -> str:
    return "" if higher is None else f" ({'higher' if higher else 'lower'} is better)"


def claims(table: Sequence[Row], names: Sequence[str] | None = None) -> list[str]:
    """Return what holds over seeds, in a line each: of one network, and of two on the same data.

    Only networks with at least `SEVERAL` runs count. An interval must lie on one side of the
    column's level, or two must not overlap, which is stricter than a test of their difference. Two
    networks are compared only if they were trained for as many epochs of as many images, cut and
    padded in the same way, and measured with the same images and options. Values that follow from
    the definition of the routing are left out. There is no correction for multiple comparisons.

    Parameters
    ----------
    names  of columns; None: all.
    """
    lines = []
    for column in _columns(names):
        having = [
            (row, cell)
            for row in table
            if (cell := row.cells.get(column.title)) is not None
            and cell.runs >= SEVERAL
            and not _may_be_by_definition(row, column)
        ]
        for row, cell in having:
            lines += _of_one(row, cell, column)
        if column.ranked:
            numbers = [(row, cell.estimate, cell.terms) for row, cell in having]
            lines += _of_several(column.title, numbers, column.form)
    several = [
        (row, row.network.accuracy, ())
        for row in table
        if len(row.network.seeds) >= SEVERAL and row.network.accuracy is not None
    ]
    if names is None or "accuracy" in names:
        lines += _of_several("accuracy", several, ".1%")
    return lines


def _of_one(row: Row, cell: Cell, column: Column) -> list[str]:
    if column.level is None:
        return []
    estimate = cell.estimate
    if estimate.low > column.level:
        meaning = column.above
    elif estimate.high < column.level:
        meaning = column.below
    else:
        return []
    return [
        f"{row.network.name}: {meaning} ({column.title} {_interval(estimate, column.form)}, "
        f"{cell.runs} training runs)"
    ]


def _of_several(title: str, numbers: Sequence[tuple[Row, Estimate, tuple]], form: str) -> list[str]:
    """Return a line for each network with lower ones on the same data, with their intervals."""
    lines = []
    order = sorted(numbers, key=lambda pair: -float(pair[1].value))
    for row, number, terms in order:
        below = [
            (other, its)
            for other, its, of in order
            if number.low > its.high
            and None not in (row.network.effort, number.n)
            and (other.network.dataset, other.network.effort, its.n, of)
            == (row.network.dataset, row.network.effort, number.n, terms)
        ]
        if below:
            words = [f"{other.network.name} ({_of_runs(its, form, other)})" for other, its in below]
            lines.append(
                f"{title}: {row.network.name} ({_of_runs(number, form, row)}) is higher than "
                f"{in_a_row(words)}"
            )
    return lines


def _of_runs(estimate: Estimate, form: str, row: Row) -> str:
    return f"{_interval(estimate, form)}, {_runs(len(row.network.seeds))}"
