"""Draw training curves of one run or several: errors, losses, learning rate."""

import csv
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from capsviz.analysis import Analysis
from capsviz.cli import writing
from capsviz.cli.naming import slug
from capsviz.statistics.words import number

FILE = "epochs.csv"
OPTIONAL = (  # empty for a network without a decoder, or missing in an older record
    "train_margin_loss", "train_reconstruction_loss", "validation_sse",
)  # fmt: skip


class Result(NamedTuple):
    """S runs, with a number for every finished epoch of each."""

    names: list[str]
    epochs: list[list[int]]  # from 1
    train_loss: list[list[float]]  # mean over images of the training objective
    train_accuracy: list[list[float]]  # 0 to 1
    train_margin_loss: list[list[float | None]]  # mean over images; None in older records
    train_reconstruction_loss: list[list[float | None]]  # before its weight; likewise
    validation_accuracy: list[list[float]]  # 0 to 1
    validation_margin_loss: list[list[float]]  # mean over images
    validation_sse: list[list[float | None]]  # mean over images; None without a decoder
    learning_rate: list[list[float]]  # of the epoch's last step; before capsviz 0.3, of the next
    best: list[int]  # epoch of the highest validation accuracy


QUANTITIES = Result._fields[2:-1]  # required columns of a record; it may have others


class Curves(Analysis):
    """Training curves from the records of runs; in a figure set, that beside the weights."""

    Result = Result
    examples = "capsviz curves runs/mnist runs/mnist-2  # 5 s"

    def measure(self, inputs) -> Result:
        """Return the curves of the run whose record is beside the weights."""
        (history,) = read([_folder(inputs)]).values()
        return joined({inputs.name: history})

    def left_out(self, inputs) -> str:
        there = (_folder(inputs) / FILE).is_file()
        return "" if there else f"no record of training ({FILE}) lies beside the weights"

    def verdict(self, result) -> str:
        lines = []
        for s, (name, best) in enumerate(zip(result.names, result.best, strict=True)):
            k = result.epochs[s].index(best)
            accuracies = result.validation_accuracy[s][k], result.train_accuracy[s][k]
            validation, training = (number(one, ".2%") for one in accuracies)
            sse = result.validation_sse[s][k]
            lines.append(
                f"{name}: highest validation accuracy {validation} in epoch {best} of "
                f"{result.epochs[s][-1]} (validation margin loss "
                f"{result.validation_margin_loss[s][k]:.4f}"
                + ("" if sse is None else f", validation SSE {sse:.1f}")
                + f"; training accuracy {training})"
            )
        return "\n".join(lines)

    def stem(self, base, result) -> str:
        name = slug("-".join(["curves", *result.names]))
        return name if len(name) <= 60 else f"curves-{len(result.names)}-runs"


def joined(histories: dict[str, dict[str, list]]) -> Result:
    """Return the curves of runs, from the columns of their records, by name of the run."""
    runs = list(histories.values())
    return Result(
        names=list(histories),
        epochs=[run["epoch"] for run in runs],
        best=[run["epoch"][_best(run)] for run in runs],
        **{name: [run[name] for run in runs] for name in QUANTITIES},
    )


def _best(run: dict[str, list]) -> int:
    """Return the index of the best epoch, like `capsviz.training.history.best_epoch`."""
    quality = list(zip(run["validation_accuracy"], run["validation_margin_loss"], strict=True))
    return max(range(len(quality)), key=lambda k: (quality[k][0], -quality[k][1]))


def _folder(inputs) -> Path:
    from capsviz import checkpoint

    return checkpoint.find(inputs.source).parent


def read(runs: Sequence[Path]) -> dict[str, dict[str, list]]:
    """Return the columns of each run's folder or CSV file, by its path below the common folder.

    Raises ValueError for a run that is missing, is given twice, or has an incomplete record.
    """
    files = [_file(Path(run)) for run in runs]
    resolved = [file.resolve() for file in files]
    for file, path in zip(files, resolved, strict=True):
        if resolved.count(path) > 1:
            raise ValueError(f"'{file}' is given twice")
    paths = [file.parent if file.name == FILE else file.with_suffix("") for file in resolved]
    shared = os.path.commonpath([path.parent for path in paths])
    names = [path.relative_to(shared).as_posix() for path in paths]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"two runs are named '{twice[0]}': rename the file or the folder of one")
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
            for name in ("epoch", *QUANTITIES)
        }
    except (csv.Error, ValueError) as error:
        raise ValueError(f"'{file}' is not what `capsviz train` writes: {error}") from error
    if not rows or columns["epoch"] != sorted(set(columns["epoch"])):
        raise ValueError(f"'{file}': expected one line per epoch, in order")
    return columns


def _number(name: str, text: str | None, line: int) -> float | None:
    """Return the number in a cell; None for an empty or missing cell of an optional column."""
    if name in OPTIONAL and not text:
        return None
    value = math.nan if not text else int(text) if name == "epoch" else float(text)
    if not 0 <= value <= (1 if name.endswith("accuracy") else math.inf):
        raise ValueError(f"line {line}, column '{name}' holds {text!r}")
    return value


@click.command(
    help=__doc__
    + "\n\nA RUN is the folder of a training run, or its epochs.csv. The best validation epoch is "
    "marked."
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@writing.figure
@writing.as_json
def command(runs, as_json, figure):
    """Write the figure and its numbers."""
    analysis, result = Curves(), joined(read(runs))
    path = writing.target(analysis.stem("", result), figure)
    paths = writing.write(path, "curves", result, figure, options={"runs": list(map(str, runs))})
    writing.report(result, analysis.findings(result), paths, as_json)
