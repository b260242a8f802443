"""Compare networks in a table, from their cards and results; nothing is computed."""

from collections.abc import Sequence
from pathlib import Path

import click

from capsviz.cli import naming, options, writing

KINDS = ("pdf", "png")  # of the drawn table
EXAMPLES = """
capsviz compare mnist mnist-resnet                                         # 3 s
capsviz compare mnist mnist-attention --columns shuffled --columns matched  # 3 s
capsviz compare --paired trained/seeds/mnist-slim-{dynamic,uniform}-10-epochs  # 3 s
"""


@click.command(
    help=__doc__
    + "\n\nA PLACE is a name of shipped weights, a training run, weights or their card, a result "
    "of an analysis, or a folder of results. Without any PLACE, everything shipped is compared. "
    "The shipped results of each network are included. To print the numbers of several results "
    "side by side, use `capsviz redraw A.json B.json --table csv`.\n\nWith --paired, each PLACE is "
    "a quoted glob of training runs of one recipe, or a folder of trained/seeds. Runs with the "
    "same seed are a pair, and the first recipe is compared with each of the others."
)
@click.argument("places", nargs=-1, metavar="[PLACE]...")
@click.option(
    "--columns",
    multiple=True,
    metavar="NAME",
    callback=options.one_by_one,
    help="Column to show; may be given several times. `all` shows all; a wrong name lists "
    "them. [default: data, runs, accuracy, inside, outside, parameters]",
)
@options.path_option(
    "--output",
    folder=False,
    metavar="STEM",
    help="Write the table as STEM.md and STEM.tex, and drawn as STEM.pdf and STEM.png.",
)
@click.option(
    "--paired", is_flag=True, help="Pair training runs by seed, and test for equivalence."
)
@click.option(
    "--margin",
    type=click.FloatRange(0, min_open=True),
    metavar="POINTS",
    help="With --paired: largest difference in accuracy that counts as equivalent. [default: 0.05]",
)
@writing.printed
@writing.as_json
def command(places, columns, output, paired, margin, printed, as_json):
    """Print the table, and write it to files."""
    from capsviz.results import leaderboard
    from capsviz.results import paired as pairs

    if paired:
        if columns or output is not None:
            raise ValueError("--paired prints no table: leave out --columns and --output")
        compared = pairs.compare(places, pairs.MARGIN if margin is None else margin)
        if as_json:
            click.echo(writing.to_json([pairs.plain(one) for one in compared]))
        else:
            click.echo("\n\n".join(map(pairs.lines, compared)))
        return
    if margin is not None:
        raise ValueError("--margin is for --paired: give both")
    if output is not None:
        naming.try_folder(output.parent)
        naming.refuse_existing(output, force=printed["force"], kinds=("md", "tex", *KINDS))

    names = leaderboard.choose(columns)
    table = leaderboard.table(places)
    if not table:
        raise ValueError(
            "these results have no column of the table, or belong to unknown networks: name the "
            "cards of the networks, or print several results side by side by `capsviz redraw "
            "A.json B.json --table csv`"
        )
    publish(table, names, output, KINDS, printed, as_json=as_json)


def publish(table, names, stem: Path | None, kinds: Sequence[str], look: dict, *, as_json: bool):
    """Print some columns of networks, or all as JSON; with a stem, write and draw the table."""
    from capsviz import results
    from capsviz.results import house, leaderboard, tables

    header, rows = leaderboard.cells(table, names)
    caption = leaderboard.caption(table, names)
    if as_json:
        click.echo(writing.to_json([row.network._asdict() | {"cells": row.cells} for row in table]))
    else:
        click.echo(f"{tables.markdown(header, rows)}\n{caption}")
    if stem is None:
        return
    for kind in kinds:  # remove pictures of earlier numbers
        stem.with_name(f"{stem.name}.{kind}").unlink(missing_ok=True)
    paths = tables.write(stem, header, rows, caption)
    if leaderboard.measures(table, names):
        with writing.looking(look), house.style():
            figure = leaderboard.draw(table, house.inches(writing.width(look)), names)
            paths += [results.save_figure(figure, stem.parent / f"{stem.name}.{k}") for k in kinds]
    else:
        writing.line("nothing is drawn: none of these columns has numbers to compare")
    for path in paths:
        click.echo(f"wrote {path}", err=True)
