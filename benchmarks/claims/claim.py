"""A claim: what is said, the number that carries it, its control, what would refute it."""

import fnmatch
from pathlib import Path
from typing import NamedTuple

from capsviz import discovery
from capsviz.figures import read_result

ROOT = discovery.root()
DESCRIPTION = "none: description only"
LAWS = "equivariance-*-images-warp-rotation-shift-x.json"  # of how poses change: the result
RUN = 1  # training run behind a file of weights


class Claim(NamedTuple):
    """One thing that README, gallery or a caption says."""

    sentence: str  # with its numbers
    number: str  # with its interval
    source: str  # file, or folder, from the root of the checkout
    field: str  # of the result in it
    control: str  # with its number, or why there is none
    runs: str  # training runs behind the number; begins with how many
    refuted: str  # what would refute it

    def text(self) -> str:
        """As Markdown."""
        rows = [
            f"**{self.sentence}**",
            "",
            f"- number: {self.number}",
            f"- from: `{self.source}`, {self.field}",
            f"- control: {self.control}",
            f"- training runs: {self.runs}",
            f"- refuted by: {self.refuted}",
        ]
        return "\n".join(rows)


class Missing(NamedTuple):
    """What could be said if its result were shipped."""

    title: str
    pattern: str  # of its file

    def text(self) -> str:
        """As Markdown."""
        return f"{self.title}: no result is shipped (`{self.pattern}`)."


class Shipped(NamedTuple):
    """A result in figures/ and what is known of it."""

    result: NamedTuple
    about: dict
    source: str

    @property
    def network(self) -> str:
        """The name of the weights."""
        return Path(self.about["provenance"]["weights"] or "none").stem

    @property
    def runs(self) -> str:
        """Of one network."""
        return f"{RUN} (`{self.network}`)"


def shipped(pattern: str) -> Shipped | None:
    """The result in figures/ that a pattern names, of the most images; None if there is none."""
    read = []
    for path in sorted((ROOT / "figures").iterdir()):
        if path.suffix == ".json" and fnmatch.fnmatch(path.name, pattern):
            read.append(Shipped(*read_result(path), f"figures/{path.name}"))
    return max(read, key=lambda one: getattr(one.result, "n", 0), default=None)


def needs(title: str, pattern: str):
    """Of claims that rest on one result in figures/: without it, one line that says so."""

    def decorate(claims):
        def of_shipped():
            one = shipped(pattern)
            if one is None:
                yield Missing(title, f"figures/{pattern}")
            else:
                yield from claims(one)

        return of_shipped

    return decorate


def signed(estimate, form: str = ".1f") -> str:
    """A difference in points, of an Estimate in fractions."""
    return f"{100 * estimate:+{form}} points"


def stands(difference) -> str:
    """What a difference's interval says: "more", "less", or "not shown to differ"."""
    if difference.low > 0:
        return "more"
    return "less" if difference.high < 0 else "not shown to differ"
