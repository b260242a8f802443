"""Rows of a leaderboard: for each network what the results say of it, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capsviz.results.leaderboard.columns import COLUMNS, FIRST, affine_names, number_of_runs
from capsviz.results.leaderboard.networks import Network
from capsviz.results.leaderboard.sources import Record, Sources
from capsviz.statistics.estimate import Estimate


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


def rows(sources: Sources, *, only: Sequence[str] = ()) -> list[Row]:
    """Every network of the sources, those of `capsviz affnist` after them.

    Of several results for one cell that of the most training runs counts, then that of the most
    images. A result is of a network if its weights have the same digest.

    Parameters
    ----------
    only  names of networks; none: all.
    """
    networks = [*sources.networks, *_of_affnist(sources.records)]
    table = [Row(one, {}) for one in networks if not only or one.name in only]
    for column in COLUMNS:
        for record in sources.records:
            if record.about["analysis"] not in column.analyses or not _is_statistic(record):
                continue
            options = record.about.get("options", {})
            if any(options.get(name) is not None for name in column.unset):
                continue
            terms = tuple(_plain(record.result, name) for name in column.alike)
            for name, estimate in column.take(record.result):
                runs = number_of_runs(estimate) if name is FIRST else 1  # of others there is one
                if estimate.n is None:  # of results of before
                    estimate = replace(estimate, n=getattr(record.result, "n", None))
                cell = Cell(estimate, record.path, runs, terms)
                for row in table:
                    if _is_of(record, name, row.network):
                        best = row.cells.get(column.title)
                        if best is None or _weight(cell) > _weight(best):
                            row.cells[column.title] = cell
    return table


def _is_statistic(record: Record) -> bool:
    fields = type(record.result).__annotations__.values()
    return any("Estimate" in str(hint) for hint in fields)


def _plain(result, name: str):
    """A field as plain data; None for one that a result does not have."""
    return np.asarray(getattr(result, name, None)).tolist()


def _is_of(record: Record, name: str | None, network: Network) -> bool:
    if network.digests and getattr(record.result, "dataset", network.dataset) != network.dataset:
        return False  # of other images than its own
    if name is FIRST:
        return record.digests <= set(network.digests)
    if not network.digests:  # of `capsviz affnist`
        return name == network.name
    return record.digest(name) in set(network.digests) - {None}


def _weight(cell: Cell) -> tuple[int, int]:
    return cell.runs, cell.estimate.n or 0


def _of_affnist(records: Sequence[Record]) -> list[Network]:
    """The networks of a result of `capsviz affnist`, which were trained for it alone."""
    networks = []
    for record in records:
        if record.about["analysis"] == "affnist" and hasattr(record.result, "within"):
            result = record.result
            for i, name in enumerate(affine_names(result)):
                networks.append(
                    Network(name, "shifted mnist", result.seeds[i], [], None,
                            int(result.parameters[i]), None, None)
                )  # fmt: skip
    return networks
