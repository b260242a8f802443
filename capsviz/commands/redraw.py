"""Draw a figure again from its JSON, without the network: the same picture and tables."""

from __future__ import annotations

from pathlib import Path

import click

from capsviz.cli import writing
from capsviz.cli.errors import errors

EXAMPLES = """
capsviz redraw figures/rotate-mnist-2-0.json --width single --output runs  # 3 s
"""


@click.command(help=__doc__)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to write to. [default: the file's own]",
)
@click.option("--format", "formats", multiple=True, default=("pdf", "png"), show_default=True)
@click.option("--width", help="single, double or inches. [default: as it was made]")
@writing.look
@writing.force
def command(files, output, formats, width, venue, rc, font, force):
    """Redraw each file."""
    from capsviz import figures
    from capsviz.cli import naming
    from capsviz.figures.venues import width_for

    with errors():
        figures.check_formats(formats)
        size = None if width is None and venue is None else width_for(width or "double", venue)
    for path in files:
        result, about = figures.read_result(path)
        stem = (output or path.parent) / path.stem
        naming.try_folder(stem.parent)
        for kind in formats:
            naming.refuse_existing(stem, force=force, kind=kind)
        old = about.get("look", {})
        with figures.look(rc or old.get("rc"), font or old.get("font")):
            written = figures.export(
                stem, about["analysis"], result, formats, size or about["width"]
            )
        for one in written:
            click.echo(f"wrote {one}", err=True)
