"""Write the output of a command: options and files of a figure, and lines on the terminal.

Importing this module imports only click.
"""

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from capsviz.cli import naming
from capsviz.cli.options import chosen_class, path_option, stack
from capsviz.nn import allocator

as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON on stdout."
)


def _checked(name: str) -> Callable:
    """Return a callback that checks an option by a function of `results.house`."""

    def check(context, option, value):
        from capsviz.results import house

        return value if value is None else getattr(house, name)(value)

    return check


LOOK = (  # option, metavar, check, help text
    ("--venue", "NAME", "check_venue", "Column and text width of a venue: neurips, iclr, icml, "
     "cvpr, eccv, ieee, nature."),
    ("--rc", "FILE", "read_rc", "File of matplotlib settings, like a matplotlibrc; they override "
     "the house style."),
    ("--font", "NAME|FILE", "check_font", "Font family, or a .ttf or .otf file."),
)  # fmt: skip
look = stack(*(
    click.option(name, metavar=metavar, callback=_checked(check), help=text)
    for name, metavar, check, text in LOOK
))  # fmt: skip
force = click.option("--force", is_flag=True, help="Overwrite files of the same name.")
_width = click.option(
    "--width",
    default="double",
    show_default=True,
    metavar="single|double|INCHES",
    callback=lambda context, option, value: _checked("inches")(context, option, value) and value,
    help="Printed width: one column, the whole page, or a number of inches.",
)
printed = stack(_width, look, force, into="printed")
formats = click.option(
    "--format",
    "formats",
    multiple=True,
    default=("pdf", "png"),
    show_default=True,
    metavar="pdf|png|svg",
    callback=_checked("check_formats"),
    help="File format; may be given several times.",
)
figure = stack(
    path_option(
        "--output",
        folder=True,
        default="runs/figures",
        show_default=True,
        help="Folder to write to.",
    ),
    formats,
    _width,
    look,
    force,
    into="figure",
)
panel = click.option(
    "--panel",
    multiple=True,
    metavar="NAME|list",
    help="Draw only this panel, or several in the order given. `list` prints the names.",
)
panels = stack(
    panel,
    click.option(
        "--table",
        is_flag=True,
        help="Print the numbers as a table, and write it for Markdown and LaTeX.",
    ),
    into="drawn",
)


def prepare(analysis: str, figure_options: dict) -> None:
    """Raise, before anything is computed, if the folder is not writable or has the result."""
    folder = figure_options["output"]
    naming.try_folder(folder)
    identity = naming.identity(click.get_current_context())
    if not figure_options["force"] and (earlier := naming.repeated(folder, analysis, identity)):
        naming.refuse_existing(earlier.with_suffix(""), force=False)


def target(
    base: str, figure_options: dict, networks: Sequence[str] = (), analysis: str | None = None,
    identity: str | None = None,
) -> Path:  # fmt: skip
    """Return the path of a figure, without ending; ValueError if a file with that name exists.

    `base` is the name that the analysis gives; `networks` are the networks as named or chosen. If
    the name is taken by numbers of another `identity`, a digest of `identity` is appended.
    """
    labels = [naming.label(one) for one in networks]
    changed = naming.changed(click.get_current_context())
    name = naming.stem(base, labels, changed, analysis)
    naming.try_folder(figure_options["output"])
    path = figure_options["output"] / name
    try:
        naming.refuse_existing(path, force=figure_options["force"])
    except ValueError:
        if identity is None:
            raise
        path = path.with_name(f"{name}-{naming.digest(identity)}")
        naming.refuse_existing(path, force=False)
    return path


def looking(figure_options: dict):
    """Return a context manager that applies `--rc` and `--font` to figures."""
    from capsviz.results import house

    return house.look(figure_options["rc"], figure_options["font"])


def width(figure_options: dict) -> str | float:
    """Return the width that `--width` and `--venue` set."""
    from capsviz.results import house

    return house.width_for(figure_options["width"], figure_options["venue"])


def settings(part, n: int | None, usual: int, digit, index: int, seed: int, most=None):
    """Return the settings of figures of a data set; without `n`, for the `usual` number of images.

    ValueError if there are fewer than `n` images, or if the chosen image does not exist.
    """
    from capsviz.results.sets import Settings

    n = min(usual, len(part)) if n is None else n
    part.first(n)
    if part.parts is None:
        digit = chosen_class(part, digit)
        part.nth_of_class(digit, index)
    return Settings(n, digit, index, seed, progress, command_line(), most)


def sources(inputs) -> list[str]:
    """Return the networks as typed; if none were, the default network of the data set."""
    texts = naming.networks(click.get_current_context().params, *naming.NETWORK[:-1])
    return texts or ([] if inputs.source is None else [inputs.source])


def save(name: str, analysis: str, result, networks, figure_options, drawn, runs) -> list[Path]:
    """Write pictures and numbers of a result by the options of `@figure`; the JSON comes last.

    The first of the opened `networks` names device and card. `drawn` are the options of `@panels`;
    `runs` describes the training runs of the result.
    """
    inputs, cards = networks[0], {one.name: one.model.card or {} for one in networks}
    context = click.get_current_context()
    identity = naming.identity(context)
    path = target(name, figure_options, sources(inputs), analysis, identity)
    about = {"card": inputs.model.card, "device": str(inputs.device)}
    if len(cards) > 1:
        about["networks"] = {k: one.get("weights", {}).get("sha256") for k, one in cards.items()}
    return write(
        path, analysis, result, figure_options, **about, notice=inputs.dataset.notice,
        options={k: str(v) if isinstance(v, Path) else v for k, v in context.params.items()},
        identity=identity, runs=runs, **drawn,
    )  # fmt: skip


def write(path: Path, analysis: str, result, figure_options: dict, **about) -> list[Path]:
    """Call `results.save` with the options of `@figure`."""
    from capsviz import results

    with looking(figure_options):
        return results.save(
            path, analysis, result, formats=figure_options["formats"],
            width=width(figure_options), command=command_line(), **about,
        )  # fmt: skip


def to_json(values) -> str:
    """Return one strict JSON document; arrays as nested lists, NaN as null."""
    from capsviz import results

    return results.to_json(values)


def command_line() -> str:
    """Return the running command as it was typed."""
    return shlex.join(["capsviz", *sys.argv[1:]])


def line(text: str) -> None:
    """Print one line on stderr, without breaking a progress bar."""
    from tqdm import tqdm

    tqdm.write(text, file=sys.stderr)


def report(result, findings: str, paths, as_json: bool) -> None:
    """Print findings, or the result as JSON, on stdout, and the files written on stderr."""
    click.echo(to_json(result) if as_json else findings)
    for path in paths:
        click.echo(f"wrote {path}", err=True)


def progress(label: str) -> Callable:
    """Return a wrapper of an iterable: a progress bar on stderr, if that is a terminal.

    After each step, fragmented free memory is returned to the system.
    """
    from tqdm import tqdm

    def each(steps):
        for step in tqdm(steps, desc=label, disable=None, leave=False, delay=2):
            yield step
            allocator.trim(allocator.GROWTH_BYTES)

    return each
