"""The numbers of a result: as rows, printed lines, a table, CSV, or a data frame.

A result is a NamedTuple. Class attributes give names and formats of its estimates, by field:

    axes = {"accuracy": ("networks", ("clean", "shifted"))}   names along each axis: those of a
                                                              field or property, or a tuple of names
    formats = {"accuracy": ".1%"}                             Python's format of a number, or a
                                                              function of result and number
    titles = {"gain": "AUROC less control's"}                 title; by default the field's name
    some = {"follow": "dose 1"}                               a table shows only this label of an
                                                              estimate that is too long
    references = {"accuracy": "1 iteration"}                  reference of the differences, if it is
                                                              not the first along an axis

A string in `axes` can also be

    "sets[1:]"          the field without its first element
    "networks, states"  pairs of two fields
    "dim {}"            numbers from 0
    "iteration {1}"     numbers from 1
    "none|type {}"      "none", then numbers from 0

If the field is a dict, it has the names for each key of the estimate.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capsviz.statistics.estimate import Estimate
from capsviz.statistics.words import number

LARGEST = 24  # values of one estimate in a table; longer curves and maps are only in the figure
PRINTED = 12  # values of one estimate in the printed lines
SHORT = {"auroc": "AUROC", "iou": "IoU", "sd": "s.d.", "sse": "SSE"}


class Row(NamedTuple):
    """One number."""

    name: str  # title of the estimate
    condition: str  # labels along its axes, or ""
    one: Estimate  # a single value, with its paired difference to the reference
    form: Any  # Python's format, or a function of a value
    reference: str = ""  # label of the reference

    @property
    def label(self) -> str:
        """Name and condition."""
        return ", ".join(filter(None, [self.name, self.condition]))

    @property
    def text(self) -> str:
        """The value."""
        return number(float(self.one.value), self.form)

    @property
    def interval(self) -> str:
        """The interval, in brackets; "–" for NaN."""
        if np.isnan(self.one.value):
            return "–"
        return f"[{', '.join(number(end, self.form) for end in self.one.ci95)}]"

    @property
    def points(self) -> bool:
        """Whether the difference is in percentage points."""
        return str(self.form).endswith("%")

    @property
    def apart(self) -> str:
        """The difference with its interval, without its unit; "" for none and for the reference."""
        less = self.one.difference
        if less is None or not np.isfinite(less.value) or less.value == less.low == less.high == 0:
            return ""
        form = self.form if callable(self.form) else self.form.replace("%", "f")
        one = Row("", "", less * (100 if self.points else 1), form)
        return f"{'+' if less.value >= 0 else ''}{one.text} {one.interval}"

    @property
    def paired(self) -> str:
        """The difference with its unit and reference; "" for none."""
        whence = f" from {self.reference}" * bool(self.reference)
        return f"{self.apart}{' points' * self.points}{whence}" if self.apart else ""


def rows(result: NamedTuple, names: Sequence[str] | None = None, most: int = LARGEST) -> list[Row]:
    """Return a row for each number of a result; estimates longer than `most` are left out.

    Estimates that a result lists in `unsaid` are only in CSV.

    Parameters
    ----------
    names  fields of the estimates; None: all. If a named estimate is too long, only the first
           element along its first axis is shown, for example the first network.
    """
    found, unsaid = [], getattr(result, "unsaid", ()) if most <= LARGEST else ()
    for name, key, one in estimates_of(result):
        shape = one.value.shape
        indices = list(np.ndindex(shape)) if one.value.size <= most else []
        if names and not indices and one.value.ndim > 1 and one.value[0].size <= most:
            indices = [(0, *rest) for rest in np.ndindex(shape[1:])]
        form = getattr(result, "formats", {}).get(name, ".4g")
        form = partial(form, result) if callable(form) else form
        labels = _labels(result, name, key, shape)
        if one.value.size > most and (some := getattr(result, "some", {}).get(name)):
            every = np.ndindex(shape)
            indices = [p for p in every if some in map(list.__getitem__, labels, p)] or indices
        if indices and (names is None or name in names) and name not in unsaid:
            reference = _reference(result, name, one, labels)
            for index in indices:
                where = filter(None, [key, *(labels[axis][k] for axis, k in enumerate(index))])
                row = Row(_title(result, name), ", ".join(where), one[index], form, reference)
                found.append(row)
    return found


def _reference(result: NamedTuple, name: str, one: Estimate, labels: list[list[str]]) -> str:
    """Return the label of the reference of the differences, or "".

    It is from `references`, else the first label along an axis where all differences are 0.
    """
    less = one.difference
    if less is None or name in getattr(result, "references", {}):
        return getattr(result, "references", {}).get(name, "")
    ends = np.concatenate([less.value[..., None], less.ci95], -1)
    firsts = (texts[0] for axis, texts in enumerate(labels) if not ends.take(0, axis).any())
    return next(firsts, "")


def left_out(result: NamedTuple) -> list[str]:
    """Return the names of the estimates that are too long for a table."""
    found = estimates_of(result)
    return [_title(result, name) for name, _, one in found if one.value.size > LARGEST]


def lines(result: NamedTuple, names: Sequence[str] | None = None) -> list[str]:
    """Return the numbers as aligned lines of text, one for each; [] for empty `names`."""
    table = rows(result, names, LARGEST if names else PRINTED)
    width = max((len(row.label) for row in table), default=0)
    return [
        f"  {row.label:{width}}  {row.text} {row.interval}"
        + (f"  difference {row.paired}" if row.paired else "")
        for row in table
    ]


def cells(result: NamedTuple) -> tuple[list[str], list]:
    """Return header and rows of a table of the numbers; long estimates only if there are no others.

    Empty columns are left out. If all differences have one reference and unit, the heading names
    them.
    """
    chosen = rows(result) or rows(result, most=2**62)
    references = {(r.reference, r.points) for r in chosen if r.apart}
    ((whence, points),) = references if len(references) == 1 else {("", False)}
    less = f"difference{f' from {whence}' * bool(whence)}{', points' * points}"
    header = ["quantity", "value", "95 % interval", "n", less]
    table = [
        [r.label, r.text, r.interval, "" if r.one.n is None else f"{r.one.n:,}",
         r.apart if len(references) == 1 else r.paired]
        for r in chosen
    ]  # fmt: skip
    kept = [k for k in range(len(header)) if any(row[k] for row in table)]
    return [header[k] for k in kept], [[row[k] for k in kept] for row in table]


def to_csv(results: Mapping[Path, NamedTuple]) -> str:
    """Return every number of results, including curves and maps, as CSV with a header.

    For several files, the first column has their names without suffix, and with their folders if
    two names are equal.
    """
    text, several = io.StringIO(), len(results) > 1
    ambiguous = len({path.stem for path in results}) < len(results)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("file",) * several + COLUMNS)
    for path, result in results.items():
        name = str(path.with_suffix("")) if ambiguous else path.stem
        writer.writerows((name,) * several + row for row in records(result))
    return text.getvalue()


COLUMNS = ("quantity", "condition", "value", "low", "high", "n", "difference",
           "difference_low", "difference_high")  # fmt: skip


def records(result: NamedTuple) -> list[tuple]:
    """Return every number of a result as a row of `COLUMNS`."""
    found = []
    for row in rows(result, most=2**62):
        less = row.one.difference
        apart = (None,) * 3 if less is None else map(float, (less.value, *less.ci95))
        numbers = map(float, (row.one.value, *row.one.ci95))
        found.append((row.name, row.condition, *numbers, row.one.n, *apart))
    return found


def to_frame(result: NamedTuple):
    """Return every number of a result as a pandas data frame; ImportError without pandas."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("to_frame needs pandas: pip install pandas") from error

    return pandas.DataFrame(records(result), columns=list(COLUMNS))


def estimates_of(result: NamedTuple):
    """Yield (field, key, estimate) of a result; key is a list's index, a dict's key, or ""."""
    for name, value in result._asdict().items():
        if isinstance(value, Estimate):
            yield name, "", value
        elif isinstance(value, dict | list):
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            yield from ((name, str(k), v) for k, v in pairs if isinstance(v, Estimate))


def _labels(result: NamedTuple, name: str, key: str, shape: tuple[int, ...]) -> list[list[str]]:
    """Return names along each axis of a field, from `axes` of its class; else numbers from 0."""
    axes = getattr(result, "axes", {}).get(name, [None] * len(shape))
    if len(axes) != len(shape):
        raise ValueError(f"`axes` names {len(axes)} axes of '{name}', which has {len(shape)}")
    labels = []
    for axis, size in zip(axes, shape, strict=True):
        names = _named(result, axis, key, size) if isinstance(axis, str) else axis
        if names is None:
            names = range(size)
        if len(names) != size:
            raise ValueError(f"`axes` has {len(names)} names for {size} values of '{name}'")
        labels.append([text if isinstance(text, str) else f"{text:g}" for text in names])
    return labels


def _named(result: NamedTuple, axis: str, key: str, size: int) -> Sequence[str]:
    """Return the names that a string in `axes` stands for; see the top of this file."""
    if "{" in axis:
        *first, rest = axis.split("|")
        return [*first, *(rest.format(k, k + 1) for k in range(size - len(first)))]
    if axis.endswith("[1:]"):
        return getattr(result, axis.removesuffix("[1:]"))[1:]
    several = [getattr(result, name) for name in axis.split(", ")]
    if len(several) == 1:
        return several[0][key] if isinstance(several[0], dict) else several[0]
    return [", ".join(pair) for pair in zip(*several, strict=True)]


def _title(result: NamedTuple, name: str) -> str:
    words = " ".join(SHORT.get(word, word) for word in name.split("_"))
    return getattr(result, "titles", {}).get(name, words)
