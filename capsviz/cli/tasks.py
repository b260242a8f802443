"""`--task I/N`: a series of runs split among processes, on any machines, that share one folder.

A task measures every N-th training run of a statistic and keeps its results, with the resamples
that their intervals are of, in OUTPUT/shares/ANALYSIS-DIGEST/WEIGHTS: the digest is that of the
options, images and version, WEIGHTS that of the network's file. The task that finds all runs there
joins them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import click

import capsviz

LETTERS = 12  # of a digest in a name


def place_of(output: Path, analysis: str, of: tuple[str, str], card: dict) -> Path:
    """Where the results of one run lie, by its card.

    `of` is the command's options as one text, and the digest of the images.
    """
    digest = hashlib.sha256(" ".join((capsviz.__version__, *of)).encode()).hexdigest()[:LETTERS]
    folder = f"{analysis}-{digest}"
    return output / "shares" / folder / card["weights"]["sha256"][:LETTERS]


def measure(
    places: Sequence[Path],
    task: tuple[int, int],
    compute: Callable[[int], tuple[str, NamedTuple]],
    analysis: str,
) -> int:
    """Measure the runs of a task (i, n) that are not there; how many of all are there then.

    `compute` gives the name and the result of a run, by its number.
    """
    i, n = task
    for number, place in enumerate(places):
        if number % n == i - 1 and not place.is_dir():
            _keep(place, *compute(number), analysis)
    return sum(place.is_dir() for place in places)


def read(place: Path) -> tuple[str, NamedTuple]:
    """The name and the result of one run."""
    from capsviz.results.files import read_result

    result, about = read_result(place / "result.json")
    return about["stem"], result


def _keep(place: Path, stem: str, result: NamedTuple, analysis: str) -> None:
    """Write its files so that all are there or none."""
    from capsviz.results.files import write_result

    place.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=place.parent, prefix=".draft-"))
    try:
        about = {"analysis": analysis, "kind": type(result).__name__, "stem": stem, "width": None}
        write_result(draft / "result", result, about, draws=True)
        os.chmod(draft, 0o755)  # mkdtemp's folders are private
        os.replace(draft, place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def option(what: str, default: str | None = "1/1") -> Callable:
    """`--task I/N`: a share of a series, (i, n) counted from 1; None where there is none."""
    return click.option(
        "--task",
        metavar="I/N",
        default=default,
        callback=lambda context, option, value: None if value is None else _task(value),
        help=f"Do part I of N of {what}; N commands, on any machines, fill one folder.",
    )


def is_empty(task: tuple[int, int], runs: int) -> bool:
    """Whether a task has no run, which is said: an array of tasks may be larger than its series."""
    i, n = task
    if i > runs:
        count = "is 1 run" if runs == 1 else f"are {runs} runs"
        click.echo(f"nothing for task {i}/{n}: there {count}", err=True)
    return i > runs


def _task(text: str) -> tuple[int, int]:
    i, _, n = text.partition("/")
    if not (i.isdecimal() and n.isdecimal()) or not 1 <= int(i) <= int(n):
        raise ValueError(f"expected --task I/N with I from 1 to N, got '{text}'")
    return int(i), int(n)
