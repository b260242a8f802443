"""Draw training curves of one run or several: errors, losses, learning rate."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click

from capsviz.analysis import Analysis
from capsviz.cli import writing
from capsviz.cli.naming import slug
from capsviz.statistics.words import number


class Result(NamedTuple):
    """S runs; of each a number for every epoch that it has finished."""

    names: list[str]
    epochs: list[list[int]]  # from 1
    train_loss: list[list[float]]  # mean over images of what training minimises
    train_accuracy: list[list[float]]  # 0 to 1
    train_margin_loss: list[list[float | None]]  # mean over images; None in older records
    train_reconstruction_loss: list[list[float | None]]  # as minimised, before its weight; likewise
    validation_accuracy: list[list[float]]  # 0 to 1
    validation_margin_loss: list[list[float]]  # mean over images
    validation_sse: list[list[float | None]]  # mean over images; None without a decoder
    learning_rate: list[list[float]]  # of its last step; before 0.3, of the next one
    best: list[int]  # epoch of the highest validation accuracy


class Curves(Analysis):
    """Training curves from the records of runs; in a figure set, that beside the weights."""

    Result = Result
    examples = "capsviz curves runs/mnist runs/mnist-2  # 5 s"

    def measure(self, inputs) -> Result:
        """Return the curves of the run whose record lies beside the weights."""
        from capsviz.analyses.curves.records import read

        (history,) = read([_folder(inputs)]).values()
        return joined({inputs.name: history})

    def left_out(self, inputs) -> str:
        from capsviz.analyses.curves.records import FILE

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
                f"{result.epochs[s][-1]} (training {training}, margin loss "
                f"{result.validation_margin_loss[s][k]:.4f}"
                + ("" if sse is None else f", SSE {sse:.1f}")
                + ")"
            )
        return "\n".join(lines)

    def caption(self, result, part="") -> str:
        return (
            "Errors, losses, reconstruction and learning rate of training, by epoch. Circles: the "
            "epoch with the highest validation accuracy."
        )

    def stem(self, base, result) -> str:
        name = slug("-".join(["curves", *result.names]))
        return name if len(name) <= 60 else f"curves-{len(result.names)}-runs"


def joined(histories: dict[str, dict[str, list]]) -> Result:
    """Return the curves of runs, from the columns of their records by the names of the runs."""
    runs = list(histories.values())
    names = [name for name in Result._fields if name not in ("names", "epochs", "best")]
    return Result(
        names=list(histories),
        epochs=[run["epoch"] for run in runs],
        best=[run["epoch"][_best(run)] for run in runs],
        **{name: [run[name] for run in runs] for name in names},
    )


def _best(run: dict[str, list]) -> int:
    """Return the best line, as `capsviz.training.history.best_epoch` does."""
    quality = list(zip(run["validation_accuracy"], run["validation_margin_loss"], strict=True))
    return max(range(len(quality)), key=lambda k: (quality[k][0], -quality[k][1]))


def _folder(inputs) -> Path:
    from capsviz import checkpoint

    return checkpoint.find(inputs.source).parent


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
    from capsviz.analyses.curves.records import read

    analysis, result = Curves(), joined(read(runs))
    path = writing.target(analysis.stem("", result), figure)
    paths = writing.write(path, "curves", result, figure, options={"runs": list(map(str, runs))})
    writing.report(result, analysis.findings(result), paths, as_json)
