"""Command-line options that commands share. Importing this module imports only click."""

import functools
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from capsviz.discovery import some
from capsviz.inputs import USUAL_CLASS, usual_class


def stack(*decorators: Callable, into: str | None = None) -> Callable:
    """Combine option decorators; with `into`, their values are passed as one dict of that name."""

    def decorate(function):
        inner, names = function, []
        if into is not None:

            @functools.wraps(function)
            def inner(**values):
                group = {name: values.pop(name) for name in names}
                return function(**values, **{into: group})

        before = len(getattr(inner, "__click_params__", ()))
        for decorator in reversed(decorators):
            inner = decorator(inner)
        names += [option.name for option in inner.__click_params__[before:]]
        return inner

    return decorate


def number(help_text: str, *, name: str = "n") -> Callable:
    """Return the option `--n`, the number of images of a statistic."""
    return click.option("--n", name, type=click.IntRange(1), metavar="N", help=help_text)


def path_option(*names: str, folder: bool | None = None, **how) -> Callable:
    """Return an option for a path: a folder (True), a file (False), or either (None)."""
    kind = click.Path(path_type=Path, file_okay=folder is not True, dir_okay=folder is not False)
    return click.option(*names, type=kind, **how)


def _known(dataset: str) -> str:
    return "arrays" if dataset in ("csv", "mat", "npz", "npy", "parquet") else dataset


def data_of(default: str, what: str = "Data set.") -> Callable:
    """Return the options that name a data set and its folder."""
    where = "Folder that holds the data. [default: $CAPSVIZ_DATA, then the user cache]"
    return stack(
        click.option(
            "--dataset", metavar="NAME", help=f"{what} [default: {default}]",
            callback=lambda context, option, value: value and _known(value.replace("-", "_"))
        ),
        path_option("--data-dir", help=where),
    )  # fmt: skip


data_option = click.option(
    "--data-option", "about_data", multiple=True, metavar="NAME=VALUE",
    help="An option of the data set, e.g. eye=left; may be given several times."
)  # fmt: skip
data = stack(data_of("the checkpoint's"), data_option)
recipe_data = data_of("the recipe's, or mnist")
device = click.option(
    "--device", default="auto", show_default=True, metavar="NAME", help="auto, cpu, cuda:0 or mps."
)


def _size(context, param, text: str | None):
    """Parse the side of a square, or height x width of a rectangle; None if not given."""
    sides = [] if text is None else text.lower().split("x")
    if not all(side.isdecimal() for side in sides) or len(sides) > 2:
        raise click.BadParameter(f"expected pixels, as 32 or 48x64 (height x width), got '{text}'")
    return (int(sides[0]) if len(sides) == 1 else list(map(int, sides))) if sides else None


image_size = click.option(
    "--image-size", metavar="PX|HxW", callback=_size,
    help="Pixels, for data sets that can be resized: the side of a square, or height x width."
)  # fmt: skip
own_data_options = stack(
    data_option,
    image_size,
    click.option(
        "--image-channels", type=int, help="Channels, for data sets that can be resized."
    ),
    click.option(
        "--range", "top_value", type=click.FloatRange(0, min_open=True), metavar="N",
        help="Largest value of your own images, e.g. 4095 for 12-bit data in 16-bit files."
    ),
)  # fmt: skip
network = stack(
    click.option(
        "--model", metavar="NAME",
        help="Kind of network: capsnet, matrix_capsnet, cnn, ... If it differs from the recipe's, "
        "the recipe's network options are ignored. [default: capsnet]"
    ),
    click.option(
        "--preset", metavar="paper|authors",
        help="CapsNet as in the paper, or as in its authors' code. [default: paper]"
    ),
    click.option(
        "--option", "more", multiple=True, metavar="NAME=VALUE",
        help="Setting of the network or field of the recipe, e.g. class_dimensions=8; may be given "
        "several times. `capsviz describe` lists the settings of a network."
    ),
)  # fmt: skip


def one_by_one(context, option, texts: tuple[str, ...]) -> list[str]:
    """Split the values of an option at commas; it may also be given several times."""
    return [name.strip() for text in texts for name in text.split(",")]


only = click.option(
    "--only", multiple=True, metavar="NAME", callback=one_by_one,
    help="Run only this analysis; may be given several times."
)  # fmt: skip
seed = click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True,
                    help="Random seed.")  # fmt: skip


def own_network(**how) -> Callable:
    """Return the options of a user-defined network, an alternative to a checkpoint."""
    return stack(
        click.option(
            "--network", metavar="FILE.py:FUNCTION", **how,
            help="Your own network: a function that returns a module, wrapped or not."
        ),
        path_option(
            "--weights", metavar="FILE", **how,
            help="Weights for --network: .safetensors, or .pt read with weights_only=True."
        ),
    )  # fmt: skip


def _checkpoint(help_text: str, *names: str, **how) -> Callable:
    return click.option("--checkpoint", *names, metavar="NAME|FILE", help=help_text, **how)


_one = "Name of shipped weights, a .safetensors file, or the folder of a training run. "
_default = "[default: the data set's own weights]"
_several = "Give it several times for training runs of one recipe with different seeds. "
_seeds_of = click.option(
    "--seeds-of", multiple=True, metavar="'GLOB'",
    help="Finished training runs of one recipe with different seeds, e.g. 'runs/x-*'. Values are "
    "means over the runs; intervals are over runs and images. Commands that compare networks take "
    "several recipes, and pair runs of equal seed."
)  # fmt: skip
inputs = stack(_checkpoint(_one + _default), own_network(), data, device, into="inputs")
replicates = stack(
    _checkpoint(_one + _several + _default, multiple=True), _seeds_of, own_network(), data, device,
    into="inputs",
)  # fmt: skip
_files = "names of shipped weights, .safetensors files, or folders of training runs. "


def _networks(what: str, *more: Callable) -> Callable:
    return stack(
        _checkpoint(what, "first", multiple=True),
        click.argument("others", nargs=-1, metavar="[CHECKPOINT]..."),
        *more, own_network(multiple=True), data, device, into="networks",
    )  # fmt: skip


networks = _networks(
    f"Networks to compare with the first: {_files}[default: the data set's own weights, and its "
    "shipped networks without capsules]",
    _seeds_of,
)
single_networks = _networks(f"One or several networks: {_files}{_default}")


def _class(value: str | int) -> str | int:
    """Parse the number of a class; "01" and other names stay text."""
    return int(value) if str(value).isdecimal() and str(int(value)) == value else value


example = stack(
    click.option(
        "--digit", type=_class, default=USUAL_CLASS, metavar="CLASS",
        help="Class of the test image, by name or number. [default: 2, or the last class if there "
        "are fewer]"
    ),
    click.option(
        "--index", default=0, show_default=True,
        help="Index of the image within that class, from 0."
    ),
)  # fmt: skip
picture = stack(
    example,
    path_option("--image", help="Your own picture instead of a test image."),
    into="picture",
)


def open_inputs(values: dict, **more):
    """Open the network and data of `@inputs`; print notices on stderr."""
    from capsviz.inputs import opening as module

    inputs = module.open_inputs(**with_options(values), **more)
    if inputs.notice:
        click.echo(inputs.notice, err=True)
    return inputs


def with_options(values: dict) -> dict:
    """Return the values of `@inputs` or `@networks`, with the data set's options as a dict."""
    values = dict(values)
    return values | {"data_options": of_data(values.pop("about_data", ()))}


def open_networks(values: dict, **more) -> list:
    """Open the networks of `@networks`, in that order, with the same data."""
    from capsviz.inputs import opening as module

    values = with_options(values)
    names = [*values.pop("first"), *values.pop("others")]
    compared = module.open_networks(names, **values, **more)
    for notice in dict.fromkeys(one.notice for one in compared if one.notice):
        click.echo(notice, err=True)
    return compared


def open_picture(inputs, values: dict):
    """Open the image of `@picture`; ValueError for options that would be ignored."""
    from capsviz.inputs import opening as module

    if values["image"] is not None and (chosen := typed("digit", "index")):
        raise ValueError(f"--image is a picture of your own: drop {', '.join(chosen)}")
    digit = chosen_class(inputs.dataset, values["digit"])
    picture = module.open_picture(inputs, **{**values, "digit": digit})
    for line in picture.doubts:
        click.echo(f"WARN {line}", err=True)
    return picture


def named_values(texts: Iterable[str]) -> dict[str, object]:
    """Parse repeated options NAME=VALUE, such as `--option`, into values by name."""
    from capsviz.training.recipe import read_option

    return dict(read_option(text) for text in texts)


def of_data(about_data, top_value=None, image_size=None, image_channels=None) -> dict[str, object]:
    """Return the given options of a data set, from the values of `own_data_options`."""
    known = {"range": top_value, "image_size": image_size, "image_channels": image_channels}
    given = {name: value for name, value in known.items() if value is not None}
    bare = dict.fromkeys(filter(str.isidentifier, about_data))  # reported by the data set
    return named_values(text for text in about_data if text not in bare) | bare | given


def typed(*names: str) -> list[str]:
    """Return the flags of these parameters that the user typed for the running command."""
    context = click.get_current_context()
    typed = click.core.ParameterSource.COMMANDLINE
    return [
        option.opts[0]
        for option in context.command.params
        if option.name in names and context.get_parameter_source(option.name) is typed
    ]


def chosen_class(dataset, digit: int | str) -> int:
    """Return the class that the running command's `--digit` names; ValueError if there is none.

    If a class has the given name, it is chosen before one with that number. Name and number are
    printed if they differ.
    """
    source = click.get_current_context().get_parameter_source("digit")
    if source is click.core.ParameterSource.DEFAULT:
        return usual_class(dataset)
    classes, last = list(dataset.classes), len(dataset.classes) - 1
    index = classes.index(str(digit)) if str(digit) in classes else digit
    if not isinstance(index, int) or not 0 <= index <= last:
        names = [name for k, name in enumerate(classes) if name != str(k)]
        named = f", or {some(names)}" if names else ""
        raise ValueError(
            f"--digit: {dataset.name} has no class {digit}, expected 0 to {last}{named}"
        )
    if classes[index] != str(index):
        click.echo(f"class {classes[index]} (index {index})", err=True)
    return index


def task(what: str) -> Callable:
    """Return the option `--task I/N` for a share of a series of runs, as (i, n) counted from 1."""

    def read(context, option, text):
        i, _, n = text.partition("/")
        if not (i.isdecimal() and n.isdecimal()) or not 1 <= int(i) <= int(n):
            raise ValueError(f"expected --task I/N with I from 1 to N, got '{text}'")
        return int(i), int(n)

    text = f"Run part I of N of {what}; N commands, on any machines, can fill one folder."
    return click.option("--task", metavar="I/N", default="1/1", callback=read, help=text)


def is_empty(task: tuple[int, int], runs: int) -> bool:
    """Return whether a task has no run, because there are more tasks than runs; print it if so."""
    i, n = task
    if i > runs:
        count = "is 1 run" if runs == 1 else f"are {runs} runs"
        click.echo(f"nothing for task {i}/{n}: there {count}", err=True)
    return i > runs
