"""Records of training runs, read from the epochs.csv that `capsviz train` writes."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Sequence
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
    """Return the columns of every run from their folders or CSV files, by its path below the rest.

    ValueError for a run that is not there, is given twice, or whose file is not a whole record.
    """
    files = [_file(Path(run)) for run in runs]
    places = [file.resolve() for file in files]
    for file, place in zip(files, places, strict=True):
        if places.count(place) > 1:
            raise ValueError(f"'{file}' is given twice")
    paths = [file.parent if file.name == FILE else file.with_suffix("") for file in places]
    shared = os.path.commonpath([path.parent for path in paths])
    names = [path.relative_to(shared).as_posix() for path in paths]
    return dict(zip(names, map(_read, files), strict=True))


def _file(run: Path) -> Path:
    file = run / FILE if run.is_dir() else run
    if file.is_file():
        return file
    if run.is_dir():
        raise ValueError(f"'{run}' holds no training run: expected {FILE} in it")
    raise ValueError(f"there is no folder or file '{run}'")


def _read(file: Path) -> dict[str, list]:
    try:
        with file.open(newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
        columns: dict[str, list] = {
            name: [_number(name, row.get(name), line) for line, row in enumerate(rows, 2)]
            for name in COLUMNS
        }
    except (csv.Error, ValueError) as error:
        raise ValueError(f"'{file}' is not what `capsviz train` writes: {error}") from error
    if not rows or columns["epoch"] != sorted(set(columns["epoch"])):
        raise ValueError(f"'{file}': expected a line for each epoch, one after the other")
    return columns


def _number(name: str, text: str | None, line: int) -> float | None:
    """Return the number in a cell; None for an empty or missing one of an optional column."""
    if name in OPTIONAL and not text:
        return None
    value = math.nan if not text else int(text) if name == "epoch" else float(text)
    if not 0 <= value <= (1 if name.endswith("accuracy") else math.inf):
        raise ValueError(f"line {line}, column '{name}' holds {text!r}")
    return value
