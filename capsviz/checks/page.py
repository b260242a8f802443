"""The table of docs/check.md, from the checks themselves: python -m capsviz.checks.page."""

from __future__ import annotations

from capsviz import discovery
from capsviz.checks import PITFALLS, checks

BEGIN, END = "<!-- checks -->\n", "<!-- end of checks -->\n"
PATH = discovery.root() / "docs" / "check.md"


def table() -> str:
    """Return a row for each check."""
    rows = ["| check: what is wrong | measurement | needs | paper | what it breaks |"]
    rows.append("|---|---|---|---|---|")
    for name, module in sorted(checks().items()):
        about = module.ABOUT
        title = f"`{name}`: {discovery.summary(PITFALLS, name)}"
        cells = (title, about.method, about.needs, about.paper, about.breaks)
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(rows) + "\n"


def text() -> str:
    """Return the page with its table made anew."""
    before, _, rest = PATH.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    page = text()
    PATH.write_text(page, encoding="utf-8")
