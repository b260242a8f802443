"""Networks side by side, from cards and results alone: nothing is computed."""

from __future__ import annotations

from pathlib import Path

import click

from capsviz.cli import writing

KINDS = ("pdf", "png")  # of the drawn table
EXAMPLES = """
capsviz compare mnist mnist-resnet  # 3 s
"""


@click.command(
    help=__doc__
    + "\n\nA PLACE is a name of shipped weights, a training run, weights or their card; or a "
    "result of an analysis, or a folder of results. Without any, all that is shipped. Networks "
    "are looked up in the shipped results too."
)
@click.argument("places", nargs=-1, metavar="[PLACE]...")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="STEM",
    help="Write the table as STEM.md and STEM.tex, and drawn as STEM.pdf and STEM.png.",
)
@writing.printed
@writing.as_json
def command(places, output, printed, as_json):
    """Print the table and what holds over seeds."""
    from capsviz import results
    from capsviz.cli import naming
    from capsviz.results import leaderboard, tables
    from capsviz.results.leaderboard.draw import draw

    if output is not None:
        naming.try_folder(output.parent)
        for kind in ("md", "tex", *KINDS):
            naming.refuse_existing(output, force=printed["force"], kind=kind)

    table = leaderboard.table(places)
    if not table:
        raise ValueError("these results are of no network that is known: name its card too")
    header, rows = leaderboard.cells(table)
    claims = leaderboard.claims(table)
    if as_json:
        click.echo(writing.to_json([_plain(row) for row in table]))
    else:
        click.echo(tables.markdown(header, rows))
        click.echo(leaderboard.caption(table))
        click.echo("\n".join(["", "holds over seeds:", *claims]) if claims else _nothing())
    if output is not None:
        for path in tables.write(output, header, rows, leaderboard.caption(table)):
            click.echo(f"wrote {path}", err=True)
        with writing.looking(printed), results.style():
            figure = draw(table, results.inches(writing.width(printed)))
            for kind in KINDS:
                path = results.save_figure(figure, output.parent / f"{output.name}.{kind}")
                click.echo(f"wrote {path}", err=True)


def _nothing() -> str:
    from capsviz.results.leaderboard.words import SEVERAL

    return f"\nnothing is said to hold over seeds: it takes {SEVERAL} training runs or more"


def _plain(row) -> dict:
    network = row.network._asdict()
    return network | {
        "cells": {
            title: {"estimate": cell.estimate, "runs": cell.runs, "file": cell.path}
            for title, cell in row.cells.items()
        }
    }
