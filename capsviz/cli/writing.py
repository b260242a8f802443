"""What a command writes: the options of a figure, its files, and the lines on the terminal.

Importing this costs click alone.
"""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from capsviz.cli.errors import errors
from capsviz.cli.options import stack

as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON on stdout."
)


def _checked(name: str, value):
    """Refuse a format, a width, a venue, ... before anything is computed; what is made of it."""
    from capsviz import results

    with errors():
        return value if value is None else getattr(results, name)(value)


look = stack(
    click.option(
        "--venue",
        metavar="NAME",
        callback=lambda context, option, value: _checked("check_venue", value),
        help="Column and text width of a venue: neurips, iclr, icml, cvpr, eccv, ieee, nature.",
    ),
    click.option(
        "--rc",
        metavar="FILE",
        callback=lambda context, option, value: _checked("read_rc", value),
        help="File of matplotlib settings, like a matplotlibrc; they override the house style.",
    ),
    click.option(
        "--font",
        metavar="NAME|FILE",
        callback=lambda context, option, value: _checked("check_font", value),
        help="Font family, or a .ttf or .otf file.",
    ),
)
force = click.option("--force", is_flag=True, help="Overwrite files of the same name.")
_width = click.option(
    "--width",
    default="double",
    show_default=True,
    metavar="single|double|INCHES",
    callback=lambda context, option, value: _checked("inches", value) and value,
    help="Printed width: one column, the whole page, or a number of inches.",
)
printed = stack(_width, look, force, into="printed")
figure = stack(
    click.option(
        "--output",
        type=click.Path(path_type=Path, file_okay=False),
        default="runs/figures",
        show_default=True,
        help="Folder to write to.",
    ),
    click.option(
        "--format",
        "formats",
        multiple=True,
        default=("pdf", "png"),
        show_default=True,
        metavar="pdf|png|svg",
        callback=lambda context, option, value: _checked("check_formats", value),
        help="File format; may be given several times.",
    ),
    _width,
    look,
    force,
    into="figure",
)


def prepare(analysis: str, figure_options: dict) -> None:
    """Refuse, before anything is computed, a folder that cannot be written to and what is there."""
    from capsviz.cli import naming

    naming.try_folder(figure_options["output"])
    identity = naming.identity(click.get_current_context())
    force = figure_options["force"]
    naming.refuse_repeated(figure_options["output"], analysis, identity, force=force)


def exists(analysis: str, figure_options: dict) -> bool:
    """Whether a figure of this command lies in the folder already, which is said; not by --force.

    For tasks that are started again.
    """
    from capsviz.cli import naming

    if figure_options["force"]:
        return False
    identity = naming.identity(click.get_current_context())
    path = naming.repeated(figure_options["output"], analysis, identity)
    if path is not None:
        click.echo(f"{path} is there already", err=True)
    return path is not None


def target(
    base: str, figure_options: dict, networks: Sequence[str] = (), analysis: str | None = None
) -> Path:
    """Path without ending of a figure, its whole name; ValueError where a file has it already.

    Parameters
    ----------
    base      name that the analysis gives.
    networks  as they were named on the command line, or chosen for the data set.
    analysis  its name.
    """
    from capsviz.cli import naming

    labels = [naming.label(one) for one in networks]
    changed = naming.changed(click.get_current_context())
    name = naming.stem(base, labels, changed, analysis)
    naming.try_folder(figure_options["output"])
    naming.refuse_existing(figure_options["output"] / name, force=figure_options["force"])
    return figure_options["output"] / name


def looking(figure_options: dict):
    """Context manager: draw as `--rc` and `--font` ask."""
    from capsviz import results

    return results.look(figure_options["rc"], figure_options["font"])


def width(figure_options: dict) -> str | float:
    """The width that `--width` and `--venue` ask for."""
    from capsviz.results.house import width_for

    return width_for(figure_options["width"], figure_options["venue"])


def sources(inputs) -> list[str]:
    """Networks as they were named on the command line; of none, that of the data set, if any."""
    texts: list[str] = []
    values = click.get_current_context().params
    for key in ("checkpoint", "first", "others", "seeds_of", "network"):
        value = values.get(key) or ()
        texts += [value] if isinstance(value, str) else map(str, value)
    return texts or ([] if inputs.source is None else [inputs.source])


def save(name: str, analysis: str, result, networks, figure_options, runs=None) -> list[Path]:
    """Write a result's pictures and numbers as `@figure` asks; the JSON comes last.

    Parameters
    ----------
    networks  and their data, as they are opened; the first one counts.
    runs      what training runs it is of, where it is of several.
    """
    from capsviz.cli import naming

    inputs, cards = networks[0], {one.name: one.model.card or {} for one in networks}
    path = target(name, figure_options, sources(inputs), analysis)
    about = {"card": inputs.model.card, "device": str(inputs.device)}
    if len(cards) > 1:
        about["networks"] = {k: one.get("weights", {}).get("sha256") for k, one in cards.items()}
    context = click.get_current_context()
    return write(
        path, analysis, result, figure_options, **about, notice=inputs.dataset.notice,
        options={k: _plain(v) for k, v in context.params.items()},
        identity=naming.identity(context), runs=runs,
    )  # fmt: skip


def write(path: Path, analysis: str, result, figure_options: dict, **about) -> list[Path]:
    """`results.save` as `@figure` asks."""
    from capsviz import results

    with looking(figure_options):
        return results.save(
            path, analysis, result, formats=figure_options["formats"],
            width=width(figure_options), command=command_line(), **about,
        )  # fmt: skip


def to_json(values) -> str:
    """One strict JSON document; arrays as nested lists, NaN as null."""
    from capsviz.results.files import to_json

    return to_json(values)


def command_line() -> str:
    """The command that is running, as it was typed."""
    return shlex.join(["capsviz", *sys.argv[1:]])


def report(result, findings: str, paths, as_json: bool) -> None:
    """Findings on stdout, or the result as JSON there; the files written on stderr."""
    click.echo(to_json(result) if as_json else findings)
    for path in paths:
        click.echo(f"wrote {path}", err=True)


def _plain(value):
    return str(value) if isinstance(value, Path) else value


def progress(label: str) -> Callable:
    """Wraps an iterable in a progress bar on stderr; silent where that is not a terminal."""
    from tqdm import tqdm

    return functools.partial(tqdm, desc=label, disable=None, leave=False, delay=2)
