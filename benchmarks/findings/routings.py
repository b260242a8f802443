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
        and {"parents", "even"} <= row.cells.keys()
    ]
    if len(rows) < 3:
        raise FileNotFoundError(f"trained/seeds/{SLIM}*")
    rows.sort(key=lambda row: float(row.cells["parents"].estimate.value))
    sharp, even = rows[0], rows[-1]
    listed = "; ".join(
        f"{_name(row.network)} {row.cells['parents'].estimate:.0%} of the parents, "
        f"{row.network.accuracy:.1%} read right, even couplings "
        f"{row.cells['even'].estimate:+.1%}"
        for row in rows
    )
    moved = "; ".join(
        f"{_name(row.network)} {row.cells['transplant'].estimate:.1%}"
        for row in rows
        if "transplant" in row.cells
    )
    apart = sharp.cells["parents"].estimate.high < even.cells["parents"].estimate.low
    accuracies = [row.network.accuracy for row in (sharp, even)]
    unharmed = all(row.cells["even"].estimate.high > -0.01 for row in rows)
    return Finding(
        "How sharply a routing chooses does not tell how well it reads",
        bool(apart and unharmed and abs(accuracies[0].value - accuracies[1].value) < 0.01),
        f"On one stem, with one recipe, children of {_name(sharp.network)} routing choose, those "
        f"of {_name(even.network)} routing do not: {listed}. On MNIST even couplings do not always "
        "read as well (finding 2).",
        "compare-routings",
        "All routings on one stem: accuracy, effective parents, transplants",
        "the same stem, recipe and data, uniform routing; read as the class whose couplings they "
        f"got: {moved}",
        ", ".join(str(len(row.network.seeds)) for row in rows) + " training runs",
        "accuracies over seeds that rise with sharpness, on a harder data set",
        sorted({f"trained/seeds/{row.network.name}" for row in rows}),
    )


def _name(network: Network) -> str:
    return network.name.removeprefix(SLIM).replace("_", " ").replace("-", " ")
