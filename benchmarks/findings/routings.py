"""A finding on all routings, over seeds: how sharply one chooses, and how well it reads."""

import json

from benchmarks.findings.finding import LENGTH, ROUTINGS, SLIM, Finding, percent
from capsviz import checkpoint, discovery
from capsviz.experiments.reproductions import resnet
from capsviz.nn import routing as routings
from capsviz.results import leaderboard
from capsviz.results.leaderboard.words import SEVERAL
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.words import in_a_row

AS_WELL = 0.002  # of accuracy
NONE = "pooled"  # the stem without capsules


def sharpness() -> Finding:
    """Networks of one stem read alike, whether their couplings choose or not."""
    rows = {
        LENGTH.sub("", row.network.name).removeprefix(SLIM): row
        for row in leaderboard.table()
        if row.network.name.startswith(SLIM)
        and LENGTH.search(row.network.name)
        and len(row.network.seeds) >= SEVERAL
    }
    without = rows.pop(NONE, None)
    rows = {name: row for name, row in rows.items() if {"parents", "even"} <= row.cells.keys()}
    if len(rows) < 3 or without is None:
        raise FileNotFoundError(f"trained/seeds/{SLIM}*")
    order = sorted(rows, key=lambda name: float(rows[name].cells["parents"].estimate.value))
    even = rows[order[-1]]
    as_good = [
        n for n in order if rows[n].network.accuracy.value > even.network.accuracy.value - AS_WELL
    ]
    some = tuple(dict.fromkeys((order[0], as_good[0], order[-1])))
    between = ["the sharpest that reads as well"] if len(some) == 3 else []
    who = in_a_row(["the sharpest", *between, "the most even"])
    listed = "; ".join(
        f"{_words(name)} {rows[name].cells['parents'].estimate:.0%}, "
        f"{rows[name].network.accuracy:.2%}"
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
    used = {f"trained/seeds/{row.network.name}" for row in (*rows.values(), without)}
    accuracies = {name: row.network.accuracy.runs for name, row in rows.items() if row in sharper}
    p, best = smallest_p(accuracies, terms.accuracy.runs)
    epochs = LENGTH.search(terms.name).group(1)
    return Finding(
        "Sharp couplings were not shown to read better than even ones",
        len(sharper) >= 3 and p > 0.05,
        f"{len(rows)} routings on one stem{without_them}, each with its own children and loss, "
        f"{epochs} epochs of all images. Effective parents and accuracy of {who}: {listed}. "
        f"Nearest to better is {_words(best)}, {rows[best].network.accuracy:.2%}, Welch's "
        f"one-sided p = {p:.2f}, not corrected for {len(sharper)}.",
        ROUTINGS,
        "Routings on one stem",
        f"the stem without capsules, {without.network.accuracy:.2%}{photographs}",
        f"{len(terms.seeds)} runs of each",
        "accuracies over seeds that rise with sharpness",
        [*sorted(used), *files],
    )


def smallest_p(accuracies: dict, even) -> tuple[float, str]:
    """By Welch's one-sided test over training runs: who reads better than even couplings."""
    from scipy.stats import ttest_ind

    tests = {
        name: ttest_ind(runs, even, equal_var=False, alternative="greater").pvalue
        for name, runs in accuracies.items()
    }
    best = min(tests, key=lambda name: tests[name])
    return float(tests[best]), best


def without_capsules() -> tuple[str, list[str]]:
    """A ResNet-20 with capsules, by each routing, and without, on CIFAR-10; "" if not shipped."""
    folder = discovery.folder(checkpoint.SHIPPED)
    paths = sorted((folder / "reproduce/15-epochs").glob(f"{resnet.SHIPPED}*-0.json"))
    each = {}
    for path in paths:
        name = path.stem.removeprefix(resnet.SHIPPED).removesuffix("-0").lstrip("-") or "dynamic"
        test = json.loads(path.read_text(encoding="utf-8"))["results"]["test"]
        each[name] = Estimate(test["accuracy"], test["accuracy_ci95"], test["n"])
    if not {"uniform", NONE} < each.keys():
        return "", []
    pooled, even = each.pop(NONE), each.pop("uniform")
    order = sorted(each, key=lambda name: -each[name].value)
    high, low = (percent(each[order[k]].value) for k in (0, -1))
    return (
        f". CIFAR-10, ResNet-20, one run each: even {even:.1%}, without capsules {pooled:.1%}, "
        f"{len(each)} others {low.removesuffix(' %')} to {high}",
        [f"trained/{path.relative_to(folder)}" for path in paths],
    )


def _words(name: str) -> str:
    return "without capsules" if name == NONE else name.replace("_", "-")
