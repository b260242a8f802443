"""A finding on all routings, over seeds: how sharply one chooses, and how well it reads."""

from benchmarks.findings.finding import Finding
from capsviz import leaderboard
from capsviz.leaderboard.sources import Network
from capsviz.leaderboard.words import SEVERAL

SLIM = "digits-"  # recipes on one slim stem, for the embedded digits


def sharpness() -> Finding:
    """Networks of one stem read alike, whether their couplings choose or not."""
    rows = [
        row
        for row in leaderboard.table()
        if row.network.name.startswith(SLIM)
        and len(row.network.seeds) >= SEVERAL
        and "parents" in row.cells
    ]
    if len(rows) < 3:
        raise FileNotFoundError(f"trained/seeds/{SLIM}*")
    rows.sort(key=lambda row: float(row.cells["parents"].estimate.value))
    sharp, even = rows[0], rows[-1]
    listed = "; ".join(
        f"{_name(row.network)} {row.cells['parents'].estimate:.0%} of the parents, "
        f"{row.network.accuracy:.2%} right"
        for row in rows
    )
    apart = sharp.cells["parents"].estimate.high < even.cells["parents"].estimate.low
    accuracies = [row.network.accuracy for row in (sharp, even)]
    return Finding(
        "How sharply a routing chooses does not tell how well it reads",
        bool(apart and abs(accuracies[0].value - accuracies[1].value) < 0.01),
        f"On one stem, with one recipe, the couplings of {_name(sharp.network)} routing choose and "
        f"those of {_name(even.network)} do not: {listed}.",
        "compare-routings",
        "All routings on one stem: accuracy, effective parents, transplants",
        "the same stem, recipe, data and seeds for every routing, uniform couplings among them",
        f"{len(sharp.network.seeds)} training runs of each",
        "a routing whose accuracy over seeds rises with its sharpness on a harder data set",
        sorted({f"trained/seeds/{row.network.name}" for row in rows}),
    )


def _name(network: Network) -> str:
    return network.name.removeprefix(SLIM).replace("_", " ").replace("-", " ")
