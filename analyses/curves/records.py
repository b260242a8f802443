"""Records of training runs, read from the epochs.csv that `capsviz train` writes."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from itertools import count
from pathlib import Path

FILE = "epochs.csv"
COLUMNS = (
    "epoch", "train_loss", "train_accuracy", "train_margin_loss", "train_reconstruction_loss",
    "validation_accuracy", "validation_margin_loss", "validation_sse", "learning_rate",
)  # fmt: skip  # those that are drawn; others may stand beside them
OPTIONAL = (  # empty for a network without a decoder, or not there in an older record
    "train_margin_loss", "train_reconstruction_loss", "validation_sse",
)  # fmt: skip


def read(runs: Sequence[Path]) -> dict[str, dict[str, list]]:
    """Return the columns of every run, by the run's name.

    Parameters
    ----------
    runs  folders of runs, or their CSV files.

    Raises
    ------
    ValueError  for a run that is not there, is given twice, or whose file is not a whole record.
    """
    files = [_file(Path(run)) for run in runs]
    places = [file.resolve() for file in files]
    for file, place in zip(files, places, strict=True):
        if places.count(place) > 1:
            raise ValueError(f"'{file}' is given twice")
    return dict(zip(_names(places), map(_read, files), strict=True))


def _file(run: Path) -> Path:
    file = run / FILE if run.is_dir() else run
    if file.is_file():
        return file
    if run.is_dir():
        raise ValueError(f"'{run}' holds no training run: expected {FILE} in it")
    raise ValueError(f"there is no folder or file '{run}'")


def _names(files: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths that differ, without the usual name of the file."""
    paths = [file.parent if file.name == FILE else file.with_suffix("") for file in files]
    ends = []
    for own in paths:
        for depth in count(1):
            end = own.parts[-depth:]
            alike = [path for path in paths if path.parts[-depth:] == end]
            if len(alike) == 1 or depth >= len(own.parts):
                break
        ends.append("/".join(end))
    return ends


def _read(file: Path) -> dict[str, list]:
    try:
        with file.open(newline="", encoding="utf-8") as stream:
            table = csv.DictReader(stream)
            rows, header = list(table), table.fieldnames
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"'{file}' is no CSV file: {error}") from error
    if not rows:
        raise ValueError(f"'{file}' holds no epoch: expected a header and a line for each epoch")
    for name in COLUMNS:
        if name not in header and name not in OPTIONAL:
            raise ValueError(
                f"'{file}' has no column '{name}', which `capsviz train` writes: "
                f"it has {', '.join(header)}"
            )
    for k, row in enumerate(rows):
        for name, text in row.items():
            if text is None:
                raise ValueError(f"'{file}', line {k + 2}, is cut short: it has no '{name}'")
    columns = {
        name: [
            _number(f"'{file}', line {k + 2}", name, row.get(name, ""))
            for k, row in enumerate(rows)
        ]
        for name in COLUMNS
    }
    if columns["epoch"] != sorted(set(columns["epoch"])):
        raise ValueError(f"'{file}': the numbers in the column 'epoch' do not grow line by line")
    return columns


def _number(where: str, name: str, text: str) -> float | None:
    if name in OPTIONAL and text == "":
        return None
    kind, expected = (int, "a whole number") if name == "epoch" else (float, "a number")
    if name.endswith("accuracy"):
        expected = "a number from 0 to 1"
    try:
        value = kind(text)
        if math.isfinite(value) and (0 <= value <= 1 or not name.endswith("accuracy")):
            return value
    except ValueError:
        pass
    raise ValueError(f"{where}: expected {expected} in the column '{name}', got '{text}'")
