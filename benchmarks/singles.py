"""Measure the leaderboard's statistics of shipped networks, one training run each.

    python -m benchmarks.singles [NAME]... [--n N]

Every analysis of `benchmarks.seeds.COMMANDS` that has a column there, and that a network has the
parts for, is run by its command, and its numbers are written to figures/leaderboard/NAME. Without
names: of all networks that are shipped, but those of the figures and those whose training runs are
in trained/seeds.
"""

from __future__ import annotations

import contextlib
import tempfile

import click

from benchmarks import seeds
from capsviz import checkpoint
from capsviz.results import leaderboard

FOLDER = seeds.ROOT / "figures/leaderboard"
FEW = {"detect": 100, "faithfulness": 200}  # images at most: these take long
COLUMNS = {name for column in leaderboard.columns.COLUMNS for name in column.analyses}


@click.command(help=__doc__.partition("\n")[0])
@click.argument("names", nargs=-1)
@click.option("--n", default=1000, show_default=True, help="Test images, or all if fewer.")
@click.option("--only", multiple=True, metavar="COMMAND", help="These alone; several times.")
def command(names, n, only):
    """Run the commands and keep their numbers."""
    for name in names or lacking():
        card = checkpoint.read_card(checkpoint.find(name))
        folder = FOLDER / name
        folder.mkdir(parents=True, exist_ok=True)
        for one in only or [one for one in seeds.COMMANDS if one in COLUMNS]:
            images = min(n, card["results"]["test"]["n"], FEW.get(one, n))
            with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
                told = seeds.measure(folder, one, images, ["--checkpoint", name])
            click.echo(f"{name}, {one}: {told}", err=True)


def lacking() -> list[str]:
    """Return shipped networks for which the leaderboard has little more than the accuracy."""
    rows = {row.network.name: len(row.cells) for row in leaderboard.table()}
    return [name for name in checkpoint.shipped() if rows.get(name, len(COLUMNS)) < 3]


if __name__ == "__main__":
    command()
