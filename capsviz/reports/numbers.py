"""The numbers of a result as a table: each estimate with its 95 % interval, n, and difference."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsviz.statistics.estimate import Estimate

LARGEST = 24  # values of one field: more are a curve or a map, and are in the figure


class Row(NamedTuple):
    """One number."""

    name: str
    value: str
    interval: str
    n: str
    difference: str  # paired, to the reference


def rows(result: NamedTuple) -> list[Row]:
    """A row for each value of the estimates of a result; of long arrays there are none."""
    table = []
    for name, value in result._asdict().items():
        if isinstance(value, Estimate) and value.value.size <= LARGEST:
            labels = _labels(result, value.value.shape)
            for place in np.ndindex(value.value.shape):
                table.append(_row(name, [labels[a][k] for a, k in enumerate(place)], value[place]))
    return table


def left_out(result: NamedTuple) -> list[str]:
    """Names of the estimates that are too long for a table."""
    fields = result._asdict().items()
    return [
        _plain(name)
        for name, value in fields
        if isinstance(value, Estimate) and value.value.size > LARGEST
    ]


def _labels(result: NamedTuple, shape: tuple[int, ...]) -> list[list[str]]:
    """What the places along each axis are called: by a field of as many names, else by number."""
    lists = [v for v in result._asdict().values() if isinstance(v, list | tuple) and v]
    names = [[str(s) for s in v] for v in lists if all(isinstance(s, str) for s in v)]
    chosen = []
    for size in shape:
        fitting = [one for one in names if len(one) == size]
        unique = len({tuple(one) for one in fitting}) == 1
        chosen.append(fitting[0] if unique else [str(k) for k in range(1, size + 1)])
    return chosen


def _row(name: str, where: list[str], one: Estimate) -> Row:
    low, high = (_number(float(end)) for end in one.ci95)
    apart = ""
    if one.difference is not None and np.isfinite(one.difference.value):
        ends = ", ".join(_number(float(end)) for end in one.difference.ci95)
        apart = f"{float(one.difference.value):+.3g} [{ends}]"
    label = ", ".join([_plain(name), *where])
    n = "" if one.n is None else f"{one.n:,}"
    return Row(label, _number(float(one.value)), f"[{low}, {high}]", n, apart)


def _number(value: float) -> str:
    return "–" if not np.isfinite(value) else f"{value:.4g}"


def _plain(name: str) -> str:
    return name.replace("_", " ")
