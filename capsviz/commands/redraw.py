"""Draw a figure again from its JSON, without the network: the same picture and tables."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(help=__doc__)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to write to. [default: the file's own]",
)
@click.option("--format", "formats", multiple=True, default=("pdf", "png"), show_default=True)
@click.option("--width", help="single, double or inches. [default: as it was made]")
def command(files, output, formats, width):
    """Redraw each file."""
    from capsviz import figures

    for path in files:
        result, about = figures.read_result(path)
        stem = (output or path.parent) / path.stem
        for written in figures.export(
            stem, about["analysis"], result, formats, width or about["width"]
        ):
            click.echo(f"wrote {written}", err=True)
