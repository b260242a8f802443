"""Training curves of one run or several: errors, losses, reconstruction, rate.

`capsviz curves --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click

from capsviz.cli import writing
from capsviz.cli.naming import slug
from capsviz.statistics.words import number

EXAMPLES = """
capsviz curves runs/mnist runs/mnist-2  # 5 s
"""

NEEDS = ()  # of a network: its scores


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


def compute(histories: dict[str, dict[str, list]]) -> Result:
    """The curves of runs from their records.

    Parameters
    ----------
    histories  by run, the columns of its epochs.csv, each with a number for every epoch.

    Raises
    ------
    ValueError  for no runs.
    """
    if not histories:
        raise ValueError("expected at least one run")
    runs = list(histories.values())
    names = [name for name in Result._fields if name not in ("names", "epochs", "best")]
    return Result(
        names=list(histories),
        epochs=[run["epoch"] for run in runs],
        best=[run["epoch"][_best(run)] for run in runs],
        **{name: [run[name] for run in runs] for name in names},
    )


def _best(run: dict[str, list]) -> int:
    """Which line; as `capsviz.training.history.best_epoch` has it."""
    quality = list(zip(run["validation_accuracy"], run["validation_margin_loss"], strict=True))
    return max(range(len(quality)), key=lambda k: (quality[k][0], -quality[k][1]))


def plot(result: Result, *, width=7.16):
    """A panel for each quantity, a colour and a line for each run."""
    from capsviz.analyses.curves.draw import panels

    return panels(result, width)


@click.command(
    help=__doc__.split("\n")[0]
    + "\n\nA RUN is the folder of a training run, or its epochs.csv. The best validation epoch is "
    "marked."
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@writing.figure
@writing.as_json
def command(runs, as_json, figure):
    """Write the figure and its numbers."""
    from capsviz.analyses.curves.measure import read

    result = compute(read(runs))
    path = writing.target(_stem(result.names), figure)
    about = {"runs": [str(run) for run in runs]}
    paths = writing.write(path, "curves", result, figure, options=about)
    writing.report(result, findings(result), paths, as_json)


def _stem(names: list[str]) -> str:
    joined = slug("-".join(["curves", *names]))
    return joined if len(joined) <= 60 else f"curves-{len(names)}-runs"


def findings(result: Result) -> str:
    """The best epoch of every run, a line each."""
    lines = []
    for s, (name, epochs, best) in enumerate(
        zip(result.names, result.epochs, result.best, strict=True)
    ):
        k = epochs.index(best)
        parts = [
            f"training {number(result.train_accuracy[s][k], '.2%')}",
            f"margin loss {result.validation_margin_loss[s][k]:.4f}",
        ]
        if (sse := result.validation_sse[s][k]) is not None:
            parts.append(f"SSE {sse:.1f}")
        lines.append(
            f"{name}: highest validation accuracy "
            f"{number(result.validation_accuracy[s][k], '.2%')} in epoch {best} of {epochs[-1]} "
            f"({', '.join(parts)})"
        )
    return "\n".join(lines)


def paper(inputs, settings):
    """For `capsviz figures`: the run that the weights come from, if its record lies beside them."""
    from capsviz import checkpoint
    from capsviz.analyses.curves.measure import FILE, read

    folder = checkpoint.find(inputs.source).parent
    if (folder / FILE).is_file():
        ((_, history),) = read([folder]).items()
        yield f"curves-{inputs.name}", compute({inputs.name: history})


def caption(result: Result) -> str:
    """What the figure shows, with its numbers."""
    return (
        "Training by the epoch. Circles mark the epoch of the highest validation accuracy. "
        f"In numbers, {'; '.join(findings(result).splitlines())}."
    )
