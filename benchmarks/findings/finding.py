"""A finding: what is said in plain words, its numbers, picture, control, seeds, and refutation."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.shipped import Shipped, shipped
from capsviz import checkpoint, discovery
from capsviz.results import read_result
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.words import number

SLIM = "mnist-slim-"  # recipes on one slim stem: `capsviz reproduce routings`
LENGTH = re.compile(r"-(\d+)-epochs$")
ABLATED = re.compile("-no-reconstruction|-[0-9]+-iterations")  # one thing of a recipe is another
ROUTINGS = "compare-routings"  # the picture of the finding on that stem
LONG = "-10-epochs"  # of their names: all images, ten times
STEM = "on the stem of finding {stem}"  # its number, which `page` knows
NOT_REPEATED = "one run"
WIDTH = 340  # of a picture beside the words, pixels


class Finding(NamedTuple):
    """One thing that the shipped results show."""

    title: str  # what is said, without numbers
    holds: bool  # whether the intervals bear it out: a finding that they do not is not written
    numbers: str
    picture: str  # a file in figures/, without its suffix
    shows: str  # what is to be looked at in it
    control: str
    seeds: str
    refuted: str  # what would refute it
    sources: list[str]  # files, from the root of the checkout

    def text(self, number: int) -> str:
        """As Markdown, the picture beside the words."""
        place = f'src="../figures/{self.picture}.png" alt="{self.shows}"'
        return "\n".join(
            [
                f"## {number}. {self.title}",
                "",
                f'<img {place} width="{WIDTH}" align="right">',
                "",
                short(self.numbers),
                "",
                f"- **Control**: {short(self.control)}.",
                f"- **Seeds**: {short(self.seeds)}.",
                f"- **Refuted by**: {self.refuted}.",
            ]
        )


def short(text: str) -> str:
    """Shares with their intervals, the sign of percent once: 93.7 [92.2, 95.2] %."""
    return re.sub(r"(\S+) % \[(\S+) %, (\S+) %\]", r"\1 [\2, \3] %", text)


def picture(one: Shipped) -> str:
    """The picture of a result, without its suffix."""
    return Path(one.source).stem


def of_figure(pattern: str) -> Shipped:
    """The result in figures/ that a pattern names; FileNotFoundError if there is none."""
    one = shipped(pattern)
    if one is None:
        raise FileNotFoundError(f"figures/{pattern}")
    return one


def over_runs(
    analysis: str, kind: str, take: Callable, of: Callable = lambda routing: True
) -> tuple[list[str], list[str], bool]:
    """What the statistics over training runs say that are shipped of an analysis.

    Parameters
    ----------
    kind     of result, e.g. "Statistics".
    take     (result) -> (Estimate, its form, whether it bears the finding out), or None where
             the question cannot be asked: of couplings that are even by construction.
    of       routing -> whether to ask its networks.

    Returns
    -------
    A sentence's part for each recipe, the files, and whether all bear it out. Left out are those of
    the table of all routings, which have a finding of their own, shorter runs of a recipe, and
    recipes of which one thing is another.
    """
    words, files, holds = [], [], True
    folders = sorted((discovery.folder(checkpoint.SHIPPED) / "seeds").glob("*"))
    names = {folder.name for folder in folders}
    for folder in folders:
        shorter = LENGTH.sub("", folder.name) in names - {folder.name}
        if shorter or folder.name.startswith(SLIM) or ABLATED.search(folder.name):
            continue
        if not of(_routing(folder)):
            continue
        for path, result, runs in statistics(folder, analysis, kind):
            if (value := take(result)) is not None:
                estimate, form, bears = value
                words.append(f"`{folder.name}` ({runs}) {estimate:{form}}")
                files.append(path)
                holds = holds and bool(bears)
    return words, files, holds


def _routing(folder: Path) -> str | None:
    about = json.loads((folder / "runs.json").read_text(encoding="utf-8"))
    return about["model"]["config"].get("routing")


def slim(
    analysis: str,
    routings: Sequence[str],
    take: Callable,
    kind: str = "Result",
    recipe: str = SLIM,
) -> tuple[str, list[str]]:
    """What such statistics say of routings on one stem, and the files that bear it out.

    `take` as in `over_runs`; routings of which nothing is shipped are left out.
    """
    words, files, each = [], [], ""
    for name in routings:
        folder = discovery.folder(checkpoint.SHIPPED) / "seeds" / f"{recipe}{name}"
        for path, result, runs in statistics(folder, analysis, kind):
            estimate, form, bears = take(result)
            each = f", {runs} each"
            words.append(f"{name.removesuffix(LONG).replace('_', ' ')} {estimate:{form}}")
            files += [path] if bears else []
    return f"{', '.join(words)}{each}", files


def statistics(folder: Path, analysis: str, kind: str) -> Iterator[tuple[str, NamedTuple, int]]:
    """File, result and training runs of the statistics of an analysis that a folder has."""
    for path in sorted(folder.glob(f"{analysis}-*.json")):
        result, about = read_result(path)
        if about["kind"] == kind:
            yield f"trained/seeds/{folder.name}/{path.name}", result, len(about["runs"]["seeds"])


def singles(analysis: str, kind: str) -> Iterator[Shipped]:
    """Results that are shipped of single networks for the leaderboard alone."""
    for path in sorted((discovery.root() / "figures/leaderboard").glob(f"*/{analysis}-*.json")):
        result, about = read_result(path)
        if about["kind"] == kind:
            yield Shipped(result, about, f"figures/leaderboard/{path.parent.name}/{path.name}")


def seeds(words: list[str]) -> str:
    """The words on seeds: the networks of several runs beside `mnist`, which is one."""
    return f"{NOT_REPEATED}; {'; '.join(words)}" if words else NOT_REPEATED


def value(estimate: Estimate, form: str) -> str:
    """A number without its interval."""
    return number(float(estimate.value), form)


def percent(share: float) -> str:
    """A share without an interval."""
    return number(share, ".1%")
