"""Draw a figure again from its JSON, without the network: the same picture and tables."""

from __future__ import annotations

from pathlib import Path

import click

from capsviz.cli import options, writing
from capsviz.cli.errors import errors

EXAMPLES = """
capsviz redraw figures/rotate-mnist-2-0.json --width single --output runs  # 3 s
capsviz redraw figures/rotate-mnist-2-0.json --latex --venue icml         # 3 s
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
@click.option(
    "--latex", is_flag=True, help="Draw nothing: print figures and captions for a LaTeX file."
)
@writing.look
@writing.force
def command(files, output, formats, width, latex, venue, rc, font, force):
    """Redraw each file."""
    from capsviz import figures
    from capsviz.cli import naming
    from capsviz.figures.venues import column, width_for

    with errors():
        formats = figures.check_formats(formats)
        size = None if width is None and venue is None else width_for(width or "double", venue)
    for path in files:
        result, about = figures.read_result(path)
        stem = (output or path.parent) / path.stem
        if latex:
            inches = figures.inches(size or about["width"])
            kinds = formats[:1] if options.typed("formats") else ()
            for line in _environments(stem, result, about, kinds, inches, column(venue)):
                click.echo(line)
            continue
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


def _environments(stem, result, about, kinds, inches, column):
    """Lines of LaTeX for every picture of a result, and a `%` line before the first.

    Without `kinds`, of whichever file there is: PDF rather than PNG.
    """
    from capsviz import figures
    from capsviz.figures.latex import environment

    yield r"% needs \usepackage{graphicx}"
    for part in figures.parts(about["analysis"], result):
        name = "-".join(filter(None, (stem.name, part)))
        text = figures.caption(about["analysis"], result, part, notice=about.get("notice"))
        places = [stem.with_name(f"{name}.{kind}") for kind in kinds or ("pdf", "png")]
        file = next((place for place in places if place.is_file()), places[0])
        if not file.is_file():
            names = " or ".join(place.name for place in places)
            click.echo(f"there is no {names} in {stem.parent}: capsviz redraw draws it", err=True)
        yield from environment(file.as_posix(), text, name, inches, column)
