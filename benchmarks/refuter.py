"""Search all shipped results for counterexamples to each finding.

Each finding of docs/findings.md names observations that would contradict it. `search` goes through
all shipped results of the analysis and lists where they occur, for the page to show below the
table. `said` is the wording in the paragraph above the table; tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeVar

from benchmarks import ROOT
from capsviz.results import read_result

FOLDERS = ("figures", "figures/leaderboard/*", "trained/seeds/*", "figures/seeds/*")
WITHOUT_CAPSULES = ("mnist-pooling", "mnist-resnet")
T = TypeVar("T")


class Search(NamedTuple):
    """One kind of counterexample to a finding, and where it was found."""

    what: str  # description of the counterexample
    said: str  # words that the page's paragraph contains if it was found anywhere
    looked: int  # number of results searched
    found: list[str]  # names of results with the counterexample
    others: list[str]  # names of all other results

    def __str__(self) -> str:
        """Describe the search, and list where it succeeded, or failed if that list is shorter."""
        few, start = self.found, ": "
        if 0 < len(self.others) < len(few):
            few, start = self.others, ": all but "
        rows: dict[str, list[str]] = {}  # by network
        for name in few if self.found else ():
            network, _, row = name.partition(", ")
            rows.setdefault(network, []).append(row)
        said = [
            network + f" ({'also ' * ('' in some)}{'; '.join(filter(None, some))})" * any(some)
            for network, some in rows.items()
        ]
        names = start + ", ".join(said) if said else ""
        return f"{self.what}: {len(self.found)} of {self.looked}{names}"


def search(
    what: str, said: str, where: Mapping[str, T], is_opposite: Callable[[T], object]
) -> Search:
    """Search results by name for counterexamples."""
    found = [name for name, one in where.items() if is_opposite(one)]
    return Search(what, said, len(where), found, [name for name in where if name not in found])


@cache
def everywhere(pattern: str, kind: str) -> list[tuple[str, Any]]:
    """Return all shipped results of a kind, each with its network; those over more runs come last.

    Networks without capsules are left out, and so are results with a changed number of iterations.
    """
    found = []
    for folder in FOLDERS:
        for path in sorted(ROOT.glob(f"{folder}/{pattern}.json")):
            if path.parent.name.startswith(WITHOUT_CAPSULES):
                continue
            result, about = read_result(path)
            if about["kind"] == kind and getattr(result, "iterations", None) in (None, []):
                shown = about["provenance"]["weights"].removesuffix(".safetensors")
                name = shown if folder == FOLDERS[0] else path.parent.name
                found.append((f"`{name}`", result))
    return found
