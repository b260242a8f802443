"""Command-line options that commands share. Importing this costs click alone."""

from __future__ import annotations

import functools
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import click

from capsviz.errors import errors

USUAL = 1000  # images of a statistic, where the split has as many


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


def _data(default: str) -> Callable:
    return _stack(
        click.option(
            "--dataset",
            metavar="NAME",
            callback=lambda context, option, value: value and value.replace("-", "_"),
            help=f"Data set. [default: {default}]",
        ),
        click.option(
            "--data-dir",
            type=click.Path(path_type=Path),
            help="Folder that holds the data. [default: $CAPSVIZ_DATA, then the user cache]",
        ),
    )


data = _data("the checkpoint's")
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
        help="A file of capsviz/models; another than the recipe's has none of the recipe's "
        "[options]. [default: capsnet]",
    ),
    click.option("--preset", metavar="paper|authors", help="Of CapsNet. [default: paper]"),
    click.option(
        "--option",
        "more",
        multiple=True,
        metavar="NAME=VALUE",
        help="Of the network, as in a recipe's [options], e.g. class_dimensions=8; several times. "
        "CapsNet's are the fields of capsviz/models/_capsnet_config.py.",
    ),
)
seed = click.option("--seed", default=0, show_default=True, help="Of everything random.")
as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON on stdout."
)

subject = _stack(
    click.option(
        "--checkpoint",
        metavar="NAME|FILE",
        help="Shipped weights, a .safetensors file, or a folder that holds one. "
        "[default: those of the data set]",
    ),
    data,
    device,
    into="subject",
)

subjects = _stack(
    click.option(
        "--checkpoints",
        "first",
        multiple=True,
        metavar="A B C",
        help="Networks to compare: shipped weights, .safetensors files, or folders. The others are "
        "compared with the first. The option's name may be left out, or given several times. "
        "[default: the shipped ones of the data set]",
    ),
    click.argument("others", nargs=-1, metavar="[CHECKPOINT]..."),
    data,
    device,
    into="subjects",
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
    """Refuse a format or a width before anything is computed."""
    from capsviz import figures

    with errors():
        return getattr(figures, what)(value)


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
    click.option(
        "--width",
        default="double",
        show_default=True,
        metavar="single|double|INCHES",
        callback=lambda context, option, value: _checked("inches", value) and value,
        help="Printed width: a column, a page, or inches.",
    ),
    into="figure",
)


def open_subject(given: dict, **more):
    """The network and data that `@subject` asks for; says on stderr what was chosen."""
    from capsviz import subject as module

    opened = module.open_subject(**given, **more)
    if opened.notice:
        click.echo(opened.notice, err=True)
    return opened


def open_subjects(given: dict, **more) -> list:
    """The networks that `@subjects` asks for, in that order, with the same data.

    Raises
    ------
    ValueError  for a network named twice.
    """
    from capsviz import subject as module

    given = dict(given)
    names = [*given.pop("first"), *given.pop("others")]
    opened = module.open_subjects(names, **given, **more)
    for notice in dict.fromkeys(one.notice for one in opened if one.notice):
        click.echo(notice, err=True)
    return opened


def open_picture(opened, given: dict):
    """The one image that `@picture` asks for; ValueError for options that it would ignore."""
    from capsviz import subject as module

    if given["image"] is not None and (chosen := typed("digit", "index")):
        raise ValueError(f"--image is a picture of your own: drop {', '.join(chosen)}")
    return module.open_picture(opened, **given)


def of_network(texts: tuple[str, ...]) -> dict[str, object]:
    """Options of the network from the NAME=VALUE of `--option`.

    Raises
    ------
    ValueError  for other texts, and for what a recipe, or a flag of the data, says.
    """
    from dataclasses import fields

    from capsviz.recipe import Recipe, read_option

    given = dict(read_option(text) for text in texts)
    params = click.get_current_context().command.params
    flags = {p.name: p.opts[0] for p in params if isinstance(p, click.Option)}
    others = {field.name for field in fields(Recipe)} | ({"image_shape", "classes"} & set(flags))
    for name in given:
        if name in others:
            way = f"give it by {flags[name]}" if name in flags else "it comes from RECIPE"
            raise ValueError(f"--option {name}: {name} is no option of the network, {way}")
    return given


def usual(n: int | None, opened) -> int:
    """How many images a statistic is of: n, or for None `USUAL`, or all if there are fewer."""
    return min(USUAL, len(opened.dataset)) if n is None else n


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
    """ValueError for `--evaluate n` beside options, by parameter name, that it would ignore."""
    given = typed(*names)
    if n is not None and given:
        raise ValueError(f"--evaluate looks at test images, not at one: drop {', '.join(given)}")


def refuse_without_evaluate(n: int | None, *names: str) -> None:
    """ValueError for options, by parameter name, that one image has no use for."""
    given = typed(*names)
    if n is None and given:
        raise ValueError(f"one image is shown: drop {', '.join(given)}, or add --evaluate N")


def save(name: str, analysis: str, result, opened, given: dict) -> list[Path]:
    """Write a result's pictures and numbers as `@figure` asks; the JSON comes last."""
    from capsviz import figures

    return figures.save(
        given["output"] / name,
        analysis,
        result,
        formats=given["formats"],
        width=given["width"],
        options={k: _plain(v) for k, v in click.get_current_context().params.items()},
        card=opened.model.card,
        device=str(opened.device),
        command=command_line(),
        notice=opened.dataset.notice,
    )


def command_line() -> str:
    """The command that is running, as it was typed."""
    return shlex.join(["capsviz", *sys.argv[1:]])


def report(result, findings: str, paths, as_json: bool) -> None:
    """Findings on stdout, or the result as JSON there; the files written on stderr."""
    click.echo(to_json(result._asdict()) if as_json else findings)
    for path in paths:
        click.echo(f"wrote {path}", err=True)


def to_json(values) -> str:
    """One JSON document; arrays as nested lists."""
    return json.dumps(values, default=lambda value: value.tolist())


def _plain(value):
    return str(value) if isinstance(value, Path) else value


def progress(label: str) -> Callable:
    """Wraps an iterable in a progress bar on stderr; silent where that is not a terminal."""
    from tqdm import tqdm

    return functools.partial(tqdm, desc=label, disable=None, leave=False, delay=2)
