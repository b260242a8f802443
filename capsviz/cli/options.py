"""Command-line options that commands share. Importing this costs click alone."""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from capsviz.cli.errors import errors

USUAL = 1000  # images of a statistic, where the split has as many


class Option(click.Option):
    """An option with names of before, which are still taken and nowhere shown.

    Parameters
    ----------
    aliases  the old names, with their dashes.
    """

    def __init__(self, *args, aliases: Sequence[str] = (), **more):
        super().__init__(*args, **more)
        self.aliases = list(aliases)

    def add_to_parser(self, parser, ctx):
        """As click does, under every name."""
        shown = self.opts
        self.opts = [*shown, *self.aliases]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


def number(help_text: str, *aliases: str, name: str = "n") -> Callable:
    """`--n`: how many images a statistic is of."""
    return click.option(
        "--n", name, cls=Option, aliases=aliases, type=int, metavar="N", help=help_text
    )


def _stack(*decorators: Callable, into: str | None = None) -> Callable:
    """One decorator from several options; `into` hands their values over as one dict."""

    def decorate(function):
        inner = function
        if into is not None:
            names = [name for d in decorators for name in _names(d)]

            @functools.wraps(function)
            def inner(**values):
                group = {name: values.pop(name) for name in names}
                return function(**values, **{into: group})

        for decorator in reversed(decorators):
            inner = decorator(inner)
        return inner

    decorate.names = [name for d in decorators for name in _names(d)]
    return decorate


def _names(decorator: Callable) -> list[str]:
    """Parameter names that an option decorator, or a stack of them, adds."""
    if hasattr(decorator, "names"):
        return decorator.names

    def probe():
        pass

    decorator(probe)
    return [option.name for option in probe.__click_params__]


def _data(default: str, what: str = "Data set.") -> Callable:
    return _stack(
        click.option(
            "--dataset",
            metavar="NAME",
            callback=lambda context, option, value: value and value.replace("-", "_"),
            help=f"{what} [default: {default}]",
        ),
        click.option(
            "--data-dir",
            type=click.Path(path_type=Path),
            help="Folder that holds the data. [default: $CAPSVIZ_DATA, then the user cache]",
        ),
    )


data = _data("the checkpoint's")
own_data = _data(
    "mnist, or the embedded digits", "Data set that --network is for: its images and classes."
)
recipe_data = _data("the recipe's, without one mnist")
device = click.option(
    "--device", default="auto", show_default=True, metavar="NAME", help="auto, cpu, cuda or mps."
)
image_size = click.option(
    "--image-size", type=int, help="Pixels, for data sets that can be resized."
)
pad_px = click.option("--pad-px", type=int, help="Zeros around each image, pixels. [default: 0]")
network = _stack(
    click.option(
        "--model",
        metavar="NAME",
        help="A file of capsviz/nn/models; another than the recipe's has none of the recipe's "
        "[options]. [default: capsnet]",
    ),
    click.option(
        "--preset",
        metavar="paper|authors",
        help="CapsNet by the text, or by its authors' code. [default: paper]",
    ),
    click.option(
        "--option",
        "more",
        multiple=True,
        metavar="NAME=VALUE",
        help="A setting of the network, as in a recipe's [options], e.g. class_dimensions=8; "
        "several times. CapsNet's are the fields of capsviz/nn/models/_capsnet_config.py.",
    ),
)
seed = click.option("--seed", default=0, show_default=True, help="Seed of everything random.")
n = number(f"Test images. [default: {USUAL}, or all if fewer]", "--evaluate", "--limit")
as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON on stdout."
)


def own_network(**how) -> Callable:
    """Somebody's own network, in place of a checkpoint."""
    return _stack(
        click.option(
            "--network",
            metavar="FILE.py:FUNCTION",
            help="Your own network: what the function returns, a module or what capsviz.wrap made.",
            **how,
        ),
        click.option(
            "--weights",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="Weights for --network: .safetensors, or .pt read with weights_only=True.",
            **how,
        ),
    )


_checkpoint = {
    "metavar": "NAME|FILE",
    "help": "Shipped weights, a .safetensors file, or a folder that holds one. "
    "[default: those of the data set]",
}
inputs = _stack(
    click.option("--checkpoint", **_checkpoint), own_network(), data, device, into="inputs"
)
_several = "Several times for training runs of one recipe with other seeds, as by --seeds-of. "
_seeds_of = click.option(
    "--seeds-of",
    multiple=True,
    metavar="'GLOB'",
    help="Finished training runs of one recipe with other seeds, e.g. 'runs/x-*': a statistic is "
    "their mean, its interval over runs and images.",
)
replicates = _stack(
    click.option(
        "--checkpoint",
        multiple=True,
        metavar="NAME|FILE",
        help=_checkpoint["help"].replace("[", f"{_several}["),
    ),
    _seeds_of,
    own_network(),
    data,
    device,
    into="inputs",
)

networks = _stack(
    click.option(
        "--checkpoint",
        "first",
        cls=Option,
        aliases=("--checkpoints",),
        multiple=True,
        metavar="NAME|FILE",
        help="Networks to compare: shipped weights, .safetensors files, or folders, each by its "
        "own --checkpoint or by its name alone; the others are compared with the first. "
        "[default: the shipped ones of the data set]",
    ),
    click.argument("others", nargs=-1, metavar="[CHECKPOINT]..."),
    _seeds_of,
    own_network(multiple=True),
    data,
    device,
    into="networks",
)

picture = _stack(
    click.option("--digit", default=2, show_default=True, help="Class of the test image."),
    click.option("--index", default=0, show_default=True, help="Which image of that class."),
    click.option(
        "--image", type=click.Path(path_type=Path), help="Your own picture instead of a test image."
    ),
    into="picture",
)


def _checked(what: str, value):
    """Refuse a format, a width, a venue, ... before anything is computed; what is made of it."""
    from capsviz import figures

    with errors():
        return value if value is None else getattr(figures, what)(value)


look = _stack(
    click.option(
        "--venue",
        metavar="NAME",
        callback=lambda context, option, value: _checked("check_venue", value),
        help="Column and text width of a venue for single and double: neurips, iclr, icml, cvpr, "
        "eccv, ieee, nature.",
    ),
    click.option(
        "--rc",
        metavar="FILE",
        callback=lambda context, option, value: _checked("read_rc", value),
        help="Settings of matplotlib, over the house style: a file like a matplotlibrc.",
    ),
    click.option(
        "--font",
        metavar="NAME|FILE",
        callback=lambda context, option, value: _checked("check_font", value),
        help="Family of the letters, or a .ttf or .otf file.",
    ),
)
force = click.option("--force", is_flag=True, help="Overwrite files of the same name.")
_width = click.option(
    "--width",
    default="double",
    show_default=True,
    metavar="single|double|INCHES",
    callback=lambda context, option, value: _checked("inches", value) and value,
    help="Printed width: a column, a page, or inches.",
)
printed = _stack(_width, look, force, into="printed")
figure = _stack(
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
        help="May be given several times.",
    ),
    _width,
    look,
    force,
    into="figure",
)


def open_inputs(values: dict, **more):
    """The network and data that `@inputs` asks for; says on stderr what was chosen."""
    from capsviz.cli import inputs as module

    inputs = module.open_inputs(**values, **more)
    if inputs.notice:
        click.echo(inputs.notice, err=True)
    return inputs


def open_networks(values: dict, **more) -> list:
    """The networks that `@networks` asks for, in that order, with the same data.

    Raises
    ------
    ValueError  for a network named twice.
    """
    from capsviz.cli import inputs as module

    values = dict(values)
    names = [*values.pop("first"), *values.pop("others")]
    compared = module.open_networks(names, **values, **more)
    for notice in dict.fromkeys(one.notice for one in compared if one.notice):
        click.echo(notice, err=True)
    return compared


def open_picture(inputs, values: dict):
    """The one image that `@picture` asks for; ValueError for options that it would ignore."""
    from capsviz.cli import inputs as module

    if values["image"] is not None and (chosen := typed("digit", "index")):
        raise ValueError(f"--image is a picture of your own: drop {', '.join(chosen)}")
    return module.open_picture(inputs, **values)


def of_network(texts: tuple[str, ...]) -> dict[str, object]:
    """Options of the network from the NAME=VALUE of `--option`.

    Raises
    ------
    ValueError  for other texts, and for what a recipe, or a flag of the data, says.
    """
    from dataclasses import fields

    from capsviz.training.recipe import Recipe, read_option

    values = dict(read_option(text) for text in texts)
    params = click.get_current_context().command.params
    flags = {p.name: p.opts[0] for p in params if isinstance(p, click.Option)}
    others = {field.name for field in fields(Recipe)} | ({"image_shape", "classes"} & set(flags))
    for name in values:
        if name in others:
            way = f"give it by {flags[name]}" if name in flags else "it comes from RECIPE"
            raise ValueError(f"--option {name}: {name} is no option of the network, {way}")
    return values


def usual(n: int | None, inputs) -> int:
    """How many images a statistic is of: n, or for None `USUAL`, or all if there are fewer."""
    return min(USUAL, len(inputs.dataset)) if n is None else n


def typed(*names: str) -> list[str]:
    """Which of the running command's options, by parameter name, were typed: `--their-names`."""
    context = click.get_current_context()
    typed = click.core.ParameterSource.COMMANDLINE
    return [
        option.opts[0]
        for option in context.command.params
        if option.name in names and context.get_parameter_source(option.name) is typed
    ]


def refuse_with_evaluate(n: int | None, *names: str) -> None:
    """ValueError for `--n` beside options, by parameter name, that it would ignore."""
    ignored = typed(*names)
    if n is not None and ignored:
        raise ValueError(f"--n looks at test images, not at one: drop {', '.join(ignored)}")


def refuse_without_evaluate(n: int | None, *names: str) -> None:
    """ValueError for options, by parameter name, that one image has no use for."""
    ignored = typed(*names)
    if n is None and ignored:
        raise ValueError(f"one image is shown: drop {', '.join(ignored)}, or add --n N")


def prepare(analysis: str, figure_options: dict) -> None:
    """Refuse, before anything is computed, a folder that cannot be written to and what is there."""
    from capsviz.cli import naming

    naming.try_folder(figure_options["output"])
    made = naming.identity(click.get_current_context())
    force = figure_options["force"]
    naming.refuse_made(figure_options["output"], analysis, made, force=force)


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
    from capsviz import figures

    return figures.look(figure_options["rc"], figure_options["font"])


def width(figure_options: dict) -> str | float:
    """The width that `--width` and `--venue` ask for."""
    from capsviz.figures.venues import width_for

    return width_for(figure_options["width"], figure_options["venue"])


def sources(inputs) -> list[str]:
    """Networks as they were named on the command line; of none, that of the data set, if any."""
    texts, given = [], click.get_current_context().params
    for key in ("checkpoint", "first", "others", "seeds_of", "network"):
        value = given.get(key) or ()
        texts += [value] if isinstance(value, str) else map(str, value)
    return texts or ([] if inputs.source is None else [inputs.source])


def save(name: str, analysis: str, result, inputs, figure_options: dict, runs=None) -> list[Path]:
    """Write a result's pictures and numbers as `@figure` asks; the JSON comes last.

    Parameters
    ----------
    runs  what training runs it is of, where it is of several.
    """
    from capsviz.cli import naming

    path = target(name, figure_options, sources(inputs), analysis)
    about = {"card": inputs.model.card, "device": str(inputs.device)}
    context = click.get_current_context()
    return write(
        path, analysis, result, figure_options, **about, notice=inputs.dataset.notice,
        options={k: _plain(v) for k, v in context.params.items()},
        identity=naming.identity(context), runs=runs,
    )  # fmt: skip


def write(path: Path, analysis: str, result, figure_options: dict, **about) -> list[Path]:
    """`figures.save` as `@figure` asks."""
    from capsviz import figures

    with looking(figure_options):
        return figures.save(
            path, analysis, result, formats=figure_options["formats"],
            width=width(figure_options), command=command_line(), **about,
        )  # fmt: skip


def to_json(values) -> str:
    """One strict JSON document; arrays as nested lists, NaN as null."""
    from capsviz.figures.results import to_json

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
