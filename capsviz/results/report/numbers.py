"""The numbers of a result as a table: each estimate with its 95 % interval, n, and difference."""

from __future__ import annotations

import sys
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
            labels = _labels(result, name, value.value.shape)
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


def _labels(result: NamedTuple, name: str, shape: tuple[int, ...]) -> list[list[str]]:
    """What the places along each axis of a field are called: as AXES beside its class says.

    Of a result without: by the one field of as many names, classes aside, if no other axis has as
    many; else by number.
    """
    fields = result._asdict()
    axes = getattr(sys.modules[type(result).__module__], "AXES", {}).get(name)
    if axes is not None and len(axes) == len(shape):
        named = [fields[axis] if isinstance(axis, str) else axis for axis in axes]
    else:
        lists = [v for key, v in fields.items() if key != "classes" and _are_names(v)]
        fitting = [[v for v in lists if len(v) == size] for size in shape]
        named = [
            some[0] if len(some) == 1 and shape.count(size) == 1 else None
            for some, size in zip(fitting, shape, strict=True)
        ]
    return [
        [str(k) for k in range(1, size + 1)]
        if names is None or len(names) != size
        else [text if isinstance(text, str) else f"{text:g}" for text in names]
        for names, size in zip(named, shape, strict=True)
    ]


def _are_names(value) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)


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
