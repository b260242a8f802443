"""A finding on all routings, over seeds: how sharply one chooses, and how well it reads."""

import json

from benchmarks.findings.finding import LENGTH, ROUTINGS, SLIM, Finding
from capsviz import checkpoint, discovery, leaderboard
from capsviz.experiments.reproductions import resnet
from capsviz.leaderboard.words import SEVERAL
from capsviz.nn import routing as routings
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.words import in_a_row

AS_WELL = 0.002  # of accuracy
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
        n for n in order if rows[n].network.accuracy.value > even.network.accuracy.value - AS_WELL
    ]
    some = tuple(dict.fromkeys((order[0], as_good[0], order[-1])))
    between = ["the sharpest that reads as well"] if len(some) == 3 else []
    who = in_a_row(["the sharpest", *between, "the most even"])
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
    p, best = smallest_p({name: row for name, row in rows.items() if row in sharper}, terms)
    later = {LENGTH.sub("", name): row for name, row in longer.items()}
    level = later.pop("uniform", None)
    later.pop(NONE, None)
    after = smallest_p(later, level.network)[0] if level is not None and later else float("nan")
    return Finding(
        "Sharp couplings were not shown to read better than even ones",
        len(sharper) >= 3 and p * len(sharper) > 0.05 and after > 0.05,
        f"{len(rows)} routings on one stem{without_them}, each with its own loss, trained briefly, "
        "alike but for how wide mixtures begin. Effective parents and accuracy of "
        f"{who}: {listed}. Nearest to better is {_words(best)}, "
        f"{rows[best].network.accuracy:.1%}, Welch's one-sided p = {p:.3f}, not corrected for "
        f"{len(sharper)}; after more epochs {after:.2f}.",
        ROUTINGS,
        "Routings on one stem",
        f"the stem without capsules, {without.network.accuracy:.1%}{_longer(longer)}{photographs}",
        f"{len(terms.seeds)} training runs of each",
        "accuracies over seeds that rise with sharpness",
        sorted({f"trained/seeds/{row.network.name}"
                for row in (*rows.values(), without, *longer.values())})
        + files,
    )  # fmt: skip


def smallest_p(rows: dict, even) -> tuple[float, str]:
    """By Welch's one-sided test over training runs: who reads better than even couplings."""
    from scipy.stats import ttest_ind

    tests = {
        name: ttest_ind(
            row.network.accuracy.runs, even.accuracy.runs, equal_var=False, alternative="greater"
        ).pvalue
        for name, row in rows.items()
    }
    best = min(tests, key=lambda name: tests[name])
    return float(tests[best]), best


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
