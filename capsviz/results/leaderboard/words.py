"""Words of a leaderboard: its cells, what is beside it, and what holds over seeds."""

from __future__ import annotations

from collections.abc import Sequence

from capsviz.results.leaderboard.columns import COLUMNS, Column
from capsviz.results.leaderboard.rows import Cell, Row
from capsviz.results.leaderboard.sources import NONE
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.words import in_a_row
from capsviz.tracing.needs import BY_DEFINITION

CONSTRUCTED = "†"  # what a routing does by construction
SEVERAL = 3  # training runs, of each network: what is said of fewer would be of these weights


def cells(table: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of texts; a column that no row has is kept, for it says so."""
    header = ["network", "data", "runs", "accuracy, %", *map(_title, COLUMNS), "parameters",
              "training, min"]  # fmt: skip
    return header, [
        [
            row.network.name,
            row.network.dataset,
            str(len(row.network.seeds)),
            _accuracy(row),
            *(_cell(row.cells.get(column.title), column, row) for column in COLUMNS),
            NONE if row.network.parameters is None else f"{row.network.parameters:,}",
            NONE if row.network.seconds is None else f"{row.network.seconds / 60:.0f}",
        ]
        for row in table
    ]


def _title(column: Column) -> str:
    return f"{column.title}, %" if column.form.endswith("%") else column.title


def _accuracy(row: Row) -> str:
    accuracy = row.network.accuracy
    return NONE if accuracy is None else _interval(accuracy, ".1%")


def _cell(cell: Cell | None, column: Column, row: Row) -> str:
    if cell is None:
        return NONE
    apart = cell.runs != len(row.network.seeds) and bool(row.network.digests)
    marks = f" ({_runs(cell.runs)})" * apart + CONSTRUCTED * is_constructed(row, column)
    return _interval(cell.estimate, column.form) + marks


def is_constructed(row: Row, column: Column) -> bool:
    """Whether a number is its routing's by construction, and no result of training."""
    return column.title in BY_DEFINITION.get(row.network.routing or "", ())


def _may_be_constructed(row: Row, column: Column) -> bool:
    """Of a network whose routing is not known: what some routing does by construction."""
    if row.network.routing is None:
        return any(column.title in titles for titles in BY_DEFINITION.values())
    return is_constructed(row, column)


def _runs(number: int) -> str:
    return f"{number} run{'s' * (number > 1)}"


def _interval(estimate, form: str) -> str:
    """A number with its ends, in percent without the sign."""
    scale, form = (100, form.replace("%", "f")) if form.endswith("%") else (1, form)
    value, low, high = (f"{scale * float(one):{form}}" for one in (estimate.value, *estimate.ci95))
    return f"{value} [{low}, {high}]".replace("-", "−")


def caption(table: Sequence[Row]) -> str:
    """What the columns are, and what must be said of the networks' data."""
    notices = {row.network.name: row.network.notice for row in table if row.network.notice}
    columns = "; ".join(
        f"{column.title}: {column.meaning}{_better(column.higher)}" for column in COLUMNS
    )
    return (
        f"Each number with its 95 % interval: over images for one training run, over runs and "
        f"images for several. {NONE}: no result; {CONSTRUCTED}: what such a routing does by "
        f"construction, whatever it has learned. {columns[0].upper()}{columns[1:]}. Rows of other "
        "data sets, and of other numbers of images, are not to be compared."
        + "".join(f" {name}: {notice}." for name, notice in notices.items())
    )


def _better(higher: bool | None) -> str:
    return "" if higher is None else f" ({'higher' if higher else 'lower'} is better)"


def claims(table: Sequence[Row]) -> list[str]:
    """What holds over seeds: of one network, and of those of the same data set.

    Of networks with at least `SEVERAL` runs alone: an interval that leaves the column's level, or
    two that do not overlap, which is more than a difference needs. Two are compared only where they
    were trained for as many epochs of as many images, cut and padded alike, and looked at by as
    many in the same way. What a routing does by construction is left out, and what it may do where
    it is not known. Not corrected for their number.
    """
    lines = []
    for column in COLUMNS:
        having = [
            (row, cell)
            for row in table
            if (cell := row.cells.get(column.title)) is not None
            and cell.runs >= SEVERAL
            and not _may_be_constructed(row, column)
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
    return lines + _of_several("accuracy", several, ".1%")


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
    """For each network those of its data set that it lies above, each with its interval."""
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
            words = [f"{other.network.name} {_interval(its, form)}" for other, its in below]
            runs = [str(len(one.network.seeds)) for one in (row, *(other for other, _ in below))]
            lines.append(
                f"{title}: {row.network.name} {_interval(number, form)} lies above "
                f"{in_a_row(words)} ({in_a_row(runs)} runs)"
            )
    return lines
