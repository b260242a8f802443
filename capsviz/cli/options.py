"""Command-line options that commands share. Importing this costs click alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from capsviz.cli import example
from capsviz.cli.option import Option, stack

USUAL = 1000  # images of a statistic, where the split has as many


def number(help_text: str, *aliases: str, name: str = "n") -> Callable:
    """`--n`: how many images a statistic is of."""
    more: dict[str, Any] = {"cls": Option, "aliases": aliases, "type": int, "metavar": "N"}
    return click.option("--n", name, help=help_text, **more)


def _data(default: str, what: str = "Data set.") -> Callable:
    return stack(
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
network = stack(
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
        "several times. CapsNet's are the fields of `Config` in capsviz/nn/models/capsnet.py.",
    ),
)
seed = click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True,
                    help="Seed of everything random.")  # fmt: skip
n = number(f"Test images. [default: {USUAL}, or all if fewer]", "--evaluate", "--limit")


def own_network(**how) -> Callable:
    """Somebody's own network, in place of a checkpoint."""
    return stack(
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


_checkpoint: dict[str, Any] = {
    "metavar": "NAME|FILE",
    "help": "Shipped weights, a .safetensors file, or a folder that holds one. "
    "[default: those of the data set]",
}
inputs = stack(
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
replicates = stack(
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

networks = stack(
    click.option(
        "--checkpoint",
        "first",
        cls=Option,
        aliases=("--checkpoints",),
        multiple=True,
        metavar="NAME|FILE",
        help="Networks to compare: shipped weights, .safetensors files, or folders, each by its "
        "own --checkpoint or by its name alone; the others are compared with the first. "
        "[default: the data set's own weights, and its shipped networks without capsules]",
    ),
    click.argument("others", nargs=-1, metavar="[CHECKPOINT]..."),
    _seeds_of,
    own_network(multiple=True),
    data,
    device,
    into="networks",
)

picture = stack(
    example.options,
    click.option(
        "--image", type=click.Path(path_type=Path), help="Your own picture instead of a test image."
    ),
    into="picture",
)


def open_inputs(values: dict, **more):
    """The network and data that `@inputs` asks for; says on stderr what was chosen."""
    from capsviz.inputs import opening as module

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
    from capsviz.inputs import networks as module

    values = dict(values)
    names = [*values.pop("first"), *values.pop("others")]
    compared = module.open_networks(names, **values, **more)
    for notice in dict.fromkeys(one.notice for one in compared if one.notice):
        click.echo(notice, err=True)
    return compared


def open_picture(inputs, values: dict):
    """The one image that `@picture` asks for; ValueError for options that it would ignore."""
    from capsviz.inputs import opening as module

    if values["image"] is not None and (chosen := typed("digit", "index")):
        raise ValueError(f"--image is a picture of your own: drop {', '.join(chosen)}")
    digit = example.chosen(inputs.dataset, values["digit"])
    return module.open_picture(inputs, **{**values, "digit": digit})


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


def refuse_with_evaluate(n: int | None, *names: str, why: str = "--n") -> None:
    """ValueError for `--n`, or what else is `why`, beside options that it would ignore, by name."""
    ignored = typed(*names)
    if n is not None and ignored:
        raise ValueError(f"{why} looks at test images, not at one: drop {', '.join(ignored)}")


def refuse_without_evaluate(n: int | None, *names: str) -> None:
    """ValueError for options, by parameter name, that one image has no use for."""
    ignored = typed(*names)
    if n is None and ignored:
        raise ValueError(f"one image is shown: drop {', '.join(ignored)}, or add --n N")
