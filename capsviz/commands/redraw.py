"""Draw a figure again from its JSON, or print its numbers; no network is needed."""

from collections import Counter
from pathlib import Path

import click

from capsviz import analysis as contract
from capsviz.cli import naming, options, writing
from capsviz.cli.analysis import list_panels

TABLES = ("csv", "md", "tex")
BESIDE = ("manifest.json", "runs.json")  # files in folders of results that are not results
EXAMPLES = """
capsviz redraw figures/rotate-mnist-2-0.json --width single --output runs  # 3 s
capsviz redraw figures/rotate-mnist-2-0.json --latex --venue icml         # 3 s
capsviz redraw runs/figures --table csv > numbers.csv                      # 5 s
"""


@click.command(
    help=__doc__ + "\n\nFILES are results (NAME.json), or folders of them. For several files, "
    "--table csv prints one table, md and tex one table for each file."
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.path_option("--output", folder=True, help="Folder to write to. [default: the file's own]")
@writing.formats
@click.option("--width", help="single, double or inches. [default: that of the original]")
@click.option(
    "--latex", is_flag=True, help="Draw nothing: print figures and captions for a LaTeX file."
)
@click.option(
    "--table",
    type=click.Choice(TABLES),
    help="Draw nothing: print the numbers with their intervals, as CSV, Markdown or LaTeX.",
)
@writing.panel
@writing.look
@writing.force
def command(files, output, formats, width, latex, table, panel, venue, rc, font, force):
    """Redraw each file."""
    from capsviz import results
    from capsviz.results import house, tables
    from capsviz.statistics import numbers

    drawn = ("output", "formats", "width", "latex", "venue", "rc", "font", "force", "panel")
    if table and (idle := options.typed(*drawn)):
        raise ValueError(f"--table draws nothing: drop {', '.join(idle)}")
    house.width_for(width or "double", venue)  # ValueError for an invalid width
    files = [one for path in files for one in _files_of(path)]
    if table == "csv":
        click.echo(numbers.to_csv({p: results.read_result(p)[0] for p in files}), nl=False)
        return
    places = [(output or path.parent) / path.stem for path in files]
    if not (table or latex) and (twice := [str(p) for p, n in Counter(places).items() if n > 1]):
        raise ValueError(f"several files would be drawn as {twice[0]}: redraw them one at a time")
    for path in files:
        result, about = results.read_result(path)
        analysis = contract.of_result(about["analysis"], type(result).__name__)
        if list_panels(analysis, panel):
            continue
        size = about["width"]
        if width is not None or venue is not None:
            usual = size if isinstance(size, str) else "double"
            earlier = about.get("options", {}).get("width") or usual
            size = house.width_for(width or earlier, venue)
        some = panel or about.get("panel", ())
        added = [] if [*some] == about.get("panel") else panel
        stem = (output or path.parent) / "-".join([path.stem, *added])
        if not table and not latex:
            naming.try_folder(stem.parent)
            naming.refuse_existing(stem, force=force, kinds=formats)
        try:
            if table:
                header, rows, caption = results.table_of(about["analysis"], result, about)
                if len(files) > 1:
                    click.echo(f"{path}\n" if table == "md" else f"% {path}")
                text = tables.latex(header, rows, caption, path.stem)
                text = tables.markdown(header, rows) if table == "md" else text
                click.echo(text, nl=len(files) > 1)
            elif latex:
                kinds = formats[:1] if options.typed("formats") else ()
                inches = house.inches(size)
                column = house.column(venue)
                lines = _environments(stem, result, about, kinds, inches, column, some)
                click.echo("\n".join(lines))
            else:
                old = about.get("look", {})
                with house.look(rc or old.get("rc"), font or old.get("font")):
                    written = results.export(stem, about["analysis"], result, formats, size, some)
                for one in written:
                    click.echo(f"wrote {one}", err=True)
        except results.NoNumbersError as error:
            if len(files) == 1:
                raise ValueError(f"'{path}' has {error}") from None
            click.echo(f"{path} is left out: {error}", err=True)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"'{path}' cannot be drawn, its numbers do not fit together "
                f"({type(error).__name__}: {error})"
            ) from error


def _files_of(path: Path) -> list[Path]:
    """Return a file, or the results in a folder; ValueError for a folder without any."""
    if not path.is_dir():
        return [path]
    found = [one for one in sorted(path.glob("*.json")) if one.name not in BESIDE]
    if not found:
        raise ValueError(f"there are no results (NAME.json) in '{path}'")
    return found


def _environments(stem, result, about, kinds, inches, column, panel):
    """Yield LaTeX for every picture of a result, after a comment line with the required package.

    Without `kinds`, the existing file is included, PDF rather than PNG.
    """
    from capsviz import results
    from capsviz.results.tables import environment

    yield r"% needs \usepackage{graphicx}"
    analysis, notice = about["analysis"], about.get("notice")
    for part, name in results.picture_names(stem.name, analysis, result, panel).items():
        text = results.caption(analysis, result, part, notice=notice, width=inches, panel=panel)
        places = [stem.with_name(f"{name}.{kind}") for kind in kinds or ("pdf", "png")]
        file = next((place for place in places if place.is_file()), places[0])
        if not file.is_file():
            names = " or ".join(place.name for place in places)
            click.echo(f"there is no {names} in {stem.parent}: capsviz redraw draws it", err=True)
        yield from environment(file.as_posix(), text, name, inches, column)
