"""The findings of docs/findings.md: commands that measure each, and the training runs behind it.

Weights of single networks are shipped, so their commands run at once. For series of runs, only the
statistics are shipped, in trained/seeds; `capsviz train NAME --seed S` trains such a run again.
"""

import glob
import json
import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from capsviz import discovery

SEEDS = "capsviz.trained.seeds"


class Finding(NamedTuple):
    """How a finding was measured."""

    claim: str
    measured: list[str]  # commands; {seeds} is the folder of shipped statistics
    series: Sequence[str] = ()  # recipes with several runs, whose weights are not shipped
    analysis: str = ""  # the command that measured each series


FILE = Path(__file__).parent / "findings.toml"
FINDINGS = [Finding(**one) for one in tomllib.loads(FILE.read_text(encoding="utf-8"))["finding"]]


def finding(number: str) -> Finding:
    """Return a finding by its number on the page; ValueError for an unknown number."""
    if not number.isdecimal() or not 1 <= int(number) <= len(FINDINGS):
        raise ValueError(f"finding {number}: expected a number from 1 to {len(FINDINGS)}")
    return FINDINGS[int(number) - 1]


def commands(one: Finding) -> list[list[str]]:
    """Return the commands that measure a finding from shipped files, each as a list of words.

    The word `capsviz` is left out. Patterns of file names are expanded, as by a shell.
    """
    folder = discovery.folder(SEEDS)
    every = [[word.format(seeds=folder) for word in shlex.split(line)] for line in one.measured]
    return [
        [path for word in words for path in (sorted(glob.glob(word)) or [word])] for words in every
    ]


def trainings(one: Finding) -> list[str]:
    """Return the commands that train and measure the series of a finding, with training times."""
    lines, folder = [], discovery.folder(SEEDS)
    for name in one.series:
        runs = json.loads((folder / name / "runs.json").read_text(encoding="utf-8"))["runs"]
        seeds = ", ".join(str(run["seed"]) for run in runs)
        minutes = sum(run["seconds"] for run in runs) / len(runs) / 60
        lines.append(
            f"capsviz train {name} --seed S --output runs/{name}-S    # S = {seeds}; "
            f"{minutes:.0f} min each on {runs[0]['hardware']}"
        )
        paths = sorted(
            (folder / name).glob(f"{one.analysis}-*.json"), key=lambda path: len(path.name)
        )
        for path in paths[:1]:  # some analyses have no result for networks without capsules
            command = json.loads(path.read_text(encoding="utf-8"))["command"]
            lines.append(command.partition(" --format")[0])
    return lines
