"""docs/leaderboard.md: every network that is shipped, by the results that are shipped.

`python -m benchmarks.leaderboard` writes it; `make readme` does too.
"""

from capsviz.discovery import root
from capsviz.files import write_text
from capsviz.results import leaderboard
from capsviz.results.leaderboard.words import SEVERAL
from capsviz.results.tables import markdown

PAGE = root() / "docs/leaderboard.md"
HEAD = """# Leaderboard

Every network that comes with capsviz, and every recipe of which statistics over several training
runs do, by the results that are shipped: cards in `trained/`, numbers of the figures in `figures/`,
statistics over runs in `trained/seeds/`. Written by `make readme`, from files alone; `capsviz
compare A B C` prints the same for networks and results of your own. It is no competition: networks
differ in size, data and training.
"""


def page(table=None) -> str:
    """docs/leaderboard.md."""
    table = leaderboard.table() if table is None else table
    claims = leaderboard.claims(table)
    parts = [HEAD, markdown(*leaderboard.cells(table)), f"{leaderboard.caption(table)}\n"]
    parts.append(
        f"## What holds over seeds\n\nOf recipes with {SEVERAL} training runs or more; of two, "
        "where both were trained for as many epochs of as many images, cut and padded alike, and "
        "looked at by as many in the same way: "
        "intervals that do not overlap, which is more than a difference needs, but not corrected "
        "for their number.\n"
    )
    nothing = "Nothing is claimed: no recipe has as many runs here."
    parts.append("\n".join(f"- {line}." for line in claims) if claims else nothing)
    parts.append("\n## From which files\n")
    for row in table:
        if files := sorted(
            {
                cell.path.resolve().relative_to(root().resolve()).as_posix()
                for cell in row.cells.values()
            }
        ):
            parts.append(f"- {row.network.name}: {', '.join(f'`{name}`' for name in files)}")
    return "\n".join(parts) + "\n"


def write() -> None:
    """Write docs/leaderboard.md."""
    write_text(PAGE, page())


if __name__ == "__main__":
    write()
