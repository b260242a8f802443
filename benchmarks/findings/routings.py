"""A finding on all routings, over seeds: how sharply one chooses, and how well it reads."""

from benchmarks.findings.finding import SLIM, Finding
from capsviz import leaderboard
from capsviz.leaderboard.words import SEVERAL

NONE = "pooled"  # the stem without capsules


def sharpness() -> Finding:
    """Networks of one stem read alike, whether their couplings choose or not."""
    rows = {
        row.network.name.removeprefix(SLIM): row
        for row in leaderboard.table()
        if row.network.name.startswith(SLIM) and len(row.network.seeds) >= SEVERAL
    }
    without = rows.pop(NONE, None)
    rows = {name: row for name, row in rows.items() if {"parents", "even"} <= row.cells.keys()}
    if len(rows) < 3 or without is None:
        raise FileNotFoundError(f"trained/seeds/{SLIM}*")
    order = sorted(rows, key=lambda name: float(rows[name].cells["parents"].estimate.value))
    listed = "; ".join(
        f"{_words(name)} {rows[name].cells['parents'].estimate:.0%} of the parents, "
        f"{rows[name].network.accuracy:.1%} read right"
        for name in (order[0], order[len(order) // 2], order[-1])
    )
    moved = "; ".join(
        f"{_words(name)} {rows[name].cells['transplant'].estimate:.0%}"
        for name in order
        if "transplant" in rows[name].cells
    )
    sharp, even = (rows[name] for name in (order[0], order[-1]))
    apart = sharp.cells["parents"].estimate.high < even.cells["parents"].estimate.low
    terms = sharp.network
    return Finding(
        "How sharply a routing chooses does not tell how well it reads",
        bool(apart and abs(terms.accuracy.value - even.network.accuracy.value) < 0.01),
        f"{len(rows)} routings on one stem, trained alike and briefly; the sharpest, the middle "
        f"and the most even: {listed}.",
        "compare-routings",
        "All routings on one stem: accuracy, effective parents, transplants",
        f"the stem without capsules, {without.network.accuracy:.1%}. Couplings of another class "
        f"bring its reading in: {moved}",
        f"{len(terms.seeds)} training runs of each",
        "accuracies over seeds that rise with sharpness, on harder data or after longer training",
        sorted({f"trained/seeds/{row.network.name}" for row in (*rows.values(), without)}),
    )


def _words(name: str) -> str:
    return name.replace("_", " ")
