"""Draw docs/architecture.svg: the rooms of capsviz and who imports whom, from the source itself.

`python -m benchmarks.architecture` writes it; `make readme` does too. A line means that the upper
room imports the lower one; lines that follow from two others are left out.
"""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

from benchmarks import ROOT
from capsviz.files import write_text

PICTURE = ROOT / "docs/architecture.svg"
WIDTH, ROW, BOX = 640, 58, (104, 28)  # of the picture, a level, and a box, pixels
STYLE = (
    "text{font:13px sans-serif;text-anchor:middle;fill:#222}"
    "rect{fill:#eef3fa;stroke:#4c78a8}path{fill:none;stroke:#999}"
)


def imports() -> dict[str, set[str]]:
    """Return for each room, a package of capsviz, the rooms that it imports."""
    homes = {path.parent.name: path.parent for path in (ROOT / "capsviz").glob("*/__init__.py")}
    homes.pop("trained", None)  # weights and results
    homes["analyses"] = ROOT / "analyses"
    return {
        name: {
            other
            for path in sorted(home.rglob("*.py"))
            for other in _imported(path)
            if other in homes and other != name
        }
        for name, home in sorted(homes.items())
    }


def _imported(path: Path) -> set[str]:
    """Return the X of every capsviz.X that a file imports, anywhere in it."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("capsviz.")}


def levels(rooms: dict[str, set[str]]) -> dict[str, int]:
    """Return the length of the longest chain of imports below each room; from the bottom up.

    Raises
    ------
    graphlib.CycleError  if rooms import each other.
    """
    known: dict[str, int] = {}
    for name in TopologicalSorter(rooms).static_order():
        known[name] = 1 + max((known[other] for other in rooms[name]), default=-1)
    return known


def reduced(rooms: dict[str, set[str]]) -> dict[str, list[str]]:
    """Return the imports that do not follow from others."""
    below: dict[str, set[str]] = {}
    for name in levels(rooms):
        below[name] = rooms[name].union(*(below[other] for other in rooms[name]))
    return {
        name: sorted(own - set().union(*(below[other] for other in own)))
        for name, own in rooms.items()
    }


def draw(rooms: dict[str, set[str]]) -> str:
    """Return the picture as SVG."""
    level, lines = levels(rooms), reduced(rooms)
    top = max(level.values())
    places: dict[str, tuple[float, float]] = {}

    def middle(name: str) -> float:
        below = [places[other][0] for other in lines[name]]
        return sum(below) / len(below) if below else 0

    for k in range(top + 1):
        row = sorted((name for name in rooms if level[name] == k), key=middle)
        for n, name in enumerate(row):
            alone = 0.12 * (-1) ** k * (len(row) == 1)  # so that lines pass beside boxes
            places[name] = (WIDTH * ((n + 0.5) / len(row) + alone), ROW * (top - k + 0.5))
    parts = []
    for name, others in lines.items():
        for other in others:
            (x0, y0), (x1, y1) = places[name], places[other]
            parts.append(f'<path d="M{x0:.0f} {y0:.0f}C{x0:.0f} {y0 + ROW:.0f} {x1:.0f} '
                         f'{y1 - ROW:.0f} {x1:.0f} {y1:.0f}"/>')  # fmt: skip
    width, height = BOX
    for name, (x, y) in places.items():
        left, upper = x - width / 2, y - height / 2
        box = f'x="{left:.0f}" y="{upper:.0f}" width="{width}" height="{height}" rx="5"'
        parts.append(f'<rect {box}/><text x="{x:.0f}" y="{y + 4:.0f}">{name}</text>')
    size = f'viewBox="0 0 {WIDTH} {ROW * (top + 1)}" width="{WIDTH}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}</style>'
    return "\n".join([head, *parts, "</svg>\n"])


def write() -> None:
    """Write docs/architecture.svg."""
    write_text(PICTURE, draw(imports()))


if __name__ == "__main__":
    write()
