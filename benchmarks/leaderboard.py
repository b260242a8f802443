"""Tables of docs/leaderboard.md: every shipped network, by the results that are shipped."""

from collections.abc import Sequence

from benchmarks.refuter import everywhere
from benchmarks.shipped import dose_text
from capsviz.analyses.transplant import DONOR, DONOR_SHUFFLED
from capsviz.results import leaderboard
from capsviz.results.tables import markdown

NONE = "–"
COLUMNS = {  # of each table
    "accuracy": ("network", "data", "runs", "accuracy, %", "inside, %", "outside, %", "parameters"),
    "robustness": (
        "network", "runs", "corrupted, error, %", "rotated, %", "attacked, %", "undetected, %",
    ),
    "routing": (
        "network", "runs", "donor's class, %", "effective parents, %", "uniform couplings, points",
        "shuffled, points", "matched, points",
    ),
    "poses": ("network", "runs", "equivariance, R²", "faithfulness, area"),
}  # fmt: skip
KINDS = (DONOR, DONOR_SHUFFLED)  # whose couplings


def cells(table, names: Sequence[str]) -> list[list[str]]:
    """Return some columns, of the rows of `leaderboard.table()`."""
    header, rows = leaderboard.cells(table)
    return [[row[header.index(name)] for name in names] for row in rows]


def board(words: str) -> str:
    """Return one of the tables of `COLUMNS`, without networks that nothing was measured of."""
    names = COLUMNS[words]
    rows = [row for row in cells(leaderboard.table(), names) if {*row[2:]} != {NONE}]
    return markdown(names, rows)


def doses() -> str:
    """Return the doses of every shipped network, or recipe with several runs, that has them."""
    rows = [
        [name.strip("`"), str(one.half.training_runs), *(dose_text(one, kind) for kind in KINDS)]
        for name, one in everywhere("transplant-*-by-dose-*", "Doses")
    ]
    return markdown(["network", "runs", *KINDS], rows)


def notices() -> str:
    """Return the notes on the data of networks, each with the networks that it is about."""
    named: dict[str, list[str]] = {}
    for row in leaderboard.table():
        if row.network.notice:
            named.setdefault(row.network.notice, []).append(f"`{row.network.name}`")
    return "\n\n".join(f"{', '.join(names)}: {text}." for text, names in named.items())
