"""A statistic over training runs, shared out: what each task measured, where the others find it.

A task measures every N-th run and keeps its results, with the resamples that their intervals are
of, in OUTPUT/shares/ANALYSIS-DIGEST/WEIGHTS: the digest is that of options, images and version,
WEIGHTS that of the network's file, so nothing is taken for what it is not. The task that finds all
runs there joins them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import capsviz
from capsviz.results.files import read_result, write_result

LETTERS = 12  # of a digest in a name


class Measured(NamedTuple):
    """What an analysis gave of one training run."""

    stem: str
    result: NamedTuple


def place_of(output: Path, analysis: str, of: tuple[str, str], card: dict) -> Path:
    """Where the results of one run lie.

    Parameters
    ----------
    of    the command's options as one text, and the digest of the images.
    card  of the run's network.
    """
    folder = f"{analysis}-{_digest(' '.join((capsviz.__version__, *of)))}"
    return output / "shares" / folder / card["weights"]["sha256"][:LETTERS]


def measure(
    places: Sequence[Path],
    task: tuple[int, int],
    compute: Callable[[int], Iterable[Measured]],
    analysis: str,
) -> int:
    """Measure the runs of a task (i, n) that are not there; how many of all are there then.

    Parameters
    ----------
    places   of all runs.
    compute  the results of a run, by its number.
    """
    i, n = task
    for number, place in enumerate(places):
        if number % n == i - 1 and not place.is_dir():
            _keep(place, compute(number), analysis)
    return sum(place.is_dir() for place in places)


def read(place: Path) -> list[Measured]:
    """The results of one run, in the order in which they were measured."""
    paths = sorted(place.glob("*.json"))
    pairs = [read_result(path) for path in paths]
    return [Measured(about["stem"], result) for result, about in pairs]


def _keep(place: Path, results: Iterable[Measured], analysis: str) -> None:
    """Write them so that all are there or none."""
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=place.parent, prefix=".draft-"))
    try:
        for number, one in enumerate(results):
            about = {"analysis": analysis, "kind": type(one.result).__name__, "stem": one.stem}
            write_result(draft / f"{number:02}", one.result, about | {"width": None}, draws=True)
        os.chmod(draft, 0o755)  # mkdtemp's folders are private
        os.replace(draft, place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:LETTERS]
