"""A finding on all routings, over seeds: how sharply one chooses, and how well it reads."""

import json

from benchmarks.findings.finding import LENGTH, SLIM, Finding
from capsviz import checkpoint, discovery, leaderboard
from capsviz.experiments.reproductions import resnet
from capsviz.leaderboard.words import SEVERAL
from capsviz.nn import routing as routings
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.words import in_a_row

NONE = "pooled"  # the stem without capsules


def sharpness() -> Finding:
    """Networks of one stem read alike, whether their couplings choose or not."""
    several = {
        row.network.name.removeprefix(SLIM): row
        for row in leaderboard.table()
        if row.network.name.startswith(SLIM) and len(row.network.seeds) >= SEVERAL
    }
    rows = {name: row for name, row in several.items() if not LENGTH.search(name)}
    longer = {name: row for name, row in several.items() if LENGTH.search(name)}
    without = rows.pop(NONE, None)
    rows = {name: row for name, row in rows.items() if {"parents", "even"} <= row.cells.keys()}
    if len(rows) < 3 or without is None:
        raise FileNotFoundError(f"trained/seeds/{SLIM}*")
    order = sorted(rows, key=lambda name: float(rows[name].cells["parents"].estimate.value))
    even = rows[order[-1]]
    as_good = [
        n for n in order if rows[n].network.accuracy.value > even.network.accuracy.value - 0.01
    ]
    some = tuple(dict.fromkeys((order[0], as_good[0], order[-1])))
    listed = "; ".join(
        f"{_words(name)} {rows[name].cells['parents'].estimate:.0%}, "
        f"{rows[name].network.accuracy:.1%}"
        for name in some
    )
    missing = [name for name in routings.available() if name not in rows]
    without_them = f", all but {in_a_row(list(map(_words, missing)))}" if missing else ""
    photographs, files = without_capsules()
    sharper = [
        row
        for row in rows.values()
        if row.cells["parents"].estimate.high < even.cells["parents"].estimate.low
    ]
    terms = even.network
    return Finding(
        "Routings that choose sharply do not read better than even ones",
        len(sharper) >= 3
        and all(row.network.accuracy.low <= terms.accuracy.high for row in sharper)
        and _level(longer),
        f"{len(rows)} routings on one stem{without_them}, trained briefly, but for EM alike. "
        "Effective parents and accuracy of the sharpest, the sharpest that reads as well, the "
        f"most even: {listed}.",
        "compare-routings",
        "Routings on one stem",
        f"the stem without capsules, {without.network.accuracy:.1%}{_longer(longer)}{photographs}",
        f"{len(terms.seeds)} training runs of each",
        "accuracies over seeds that rise with sharpness",
        sorted(
            {
                f"trained/seeds/{row.network.name}"
                for row in (*rows.values(), without, *longer.values())
            }
        )
        + files,
    )


def _level(rows: dict) -> bool:
    """Whether no routing reads better than even couplings after a longer training, either."""
    even = [row for name, row in rows.items() if LENGTH.sub("", name) == "uniform"]
    return all(
        row.network.accuracy.low <= one.network.accuracy.high
        for row in rows.values()
        for one in even
    )


def _longer(rows: dict) -> str:
    """What the same networks read after a longer training on all images, capsules first."""
    if not rows:
        return ""
    (epochs,) = {int(LENGTH.search(name).group(1)) for name in rows}
    order = sorted(rows, key=lambda name: (name.startswith(NONE), name))
    parts = [f"{_words(LENGTH.sub('', n))} {rows[n].network.accuracy:.2%}" for n in order]
    return f"; after {epochs} epochs of all images {', '.join(parts)}"


def without_capsules() -> tuple[str, list[str]]:
    """A ResNet-20 with capsules, routed and not, and without, on CIFAR-10; "" if not shipped."""
    folder = discovery.folder(checkpoint.SHIPPED)
    paths = [
        folder / f"reproduce/15-epochs/{resnet.SHIPPED}{kind}-0.json"
        for kind in ("", "-uniform", f"-{NONE}")
    ]
    if not all(path.is_file() for path in paths):
        return "", []
    tests = [json.loads(path.read_text(encoding="utf-8"))["results"]["test"] for path in paths]
    own, even, pooled = (
        Estimate(test["accuracy"], test["accuracy_ci95"], test["n"]) for test in tests
    )
    return (
        f". CIFAR-10, ResNet-20, one run each: routed {own:.1%}, even {even:.1%}, without capsules "
        f"{pooled:.1%}",
        [f"trained/{path.relative_to(folder)}" for path in paths],
    )


def _words(name: str) -> str:
    return "without capsules" if name == NONE else name.replace("_", "-")
