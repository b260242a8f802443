"""What do single primary capsules hold, and does drawing need the couplings?

`capsviz primary --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from capsviz.analyses.primary.measure import Statistics, evaluate, places
from capsviz.analyses.primary.measure import findings as findings_of_many
from capsviz.analyses.primary.train import open_decoders, train
from capsviz.cli import options
from capsviz.cli.analysis import analysis
from capsviz.statistics.words import sentences

EXAMPLES = """
capsviz primary --digit 4  # 10 s
capsviz primary --n 1000  # 20 s
"""

NEEDS = ("primary", "couplings")  # of a network, see tracing.needs


class Result(NamedTuple):
    """One image, K capsules of it, each at L shares of its coupling."""

    image: np.ndarray  # (C, H, W) uint8
    types: np.ndarray  # (K,) capsule type, without a grid its number; the most coupled first
    places: np.ndarray | None  # (K, 2) row and column in the grid; None: no grid
    fields: np.ndarray | None  # (K, 4) receptive field: first and end row, column, px
    couplings: np.ndarray  # (K,) to the predicted class
    shares: np.ndarray  # (L,) of that coupling, 0 to 1
    pictures: np.ndarray  # (K, L, C, H, W) uint8, from one capsule
    sse: np.ndarray  # (K, L) sum of squared differences from the image, pixels in [0, 1]
    whole: np.ndarray  # (C, H, W) uint8, from all capsules
    whole_sse: float
    children: int  # I
    predicted: int
    classes: list[str]
    label: int | None  # true class, if it is known


def compute(model, decoders, image, label=None, *, classes, capsules=6, levels=5) -> Result:
    """Decode single capsules of one image (1, C, H, W), and all of them.

    Parameters
    ----------
    decoders  of `capsviz.experiments.primary_decoder.load`.
    label     true class, if it is known.
    classes   names of the classes.
    capsules  how many to show, at most.
    levels    shares of the coupling to show, from 0 to 1; at least 2.

    Raises
    ------
    ValueError  for less than 1 capsule or 2 levels.
    """
    import torch

    from capsviz.analyses.primary.controls import strongest
    from capsviz.experiments.primary_decoder import decode, look
    from capsviz.nn.functional import reconstruction_loss
    from capsviz.transforms.augment import to_uint8

    if levels < 2:
        raise ValueError(f"expected at least 2 levels, from nothing to the coupling, got {levels}")
    image = image.cpu()
    traced = look(model, image)
    scaled = traced.scaled()
    chosen = strongest(traced.couplings, model.grid, capsules)[0]
    shares = torch.linspace(0, 1, levels)
    single = torch.zeros(len(chosen), levels, *scaled.shape[1:])
    for k, i in enumerate(chosen):
        single[k, :, i] = shares[:, None] * scaled[0, i]
    decoded = decode(decoders["routed"], single.flatten(0, 1))
    whole = decode(decoders["routed"], scaled)
    types, where, fields = places(model, chosen.numpy())
    return Result(
        image=to_uint8(image[0]),
        types=types,
        places=where,
        fields=fields,
        couplings=traced.couplings[0, chosen].numpy(),
        shares=shares.numpy(),
        pictures=to_uint8(decoded).reshape(len(chosen), levels, *image.shape[1:]),
        sse=reconstruction_loss(image, decoded).numpy().reshape(len(chosen), levels),
        whole=to_uint8(whole[0]),
        whole_sse=float(reconstruction_loss(image, whole)),
        children=scaled.shape[1],
        predicted=int(traced.predicted),
        classes=list(classes),
        label=label,
    )


def plot(result: Result | Statistics, *, width=7.16):
    """Rows of single capsules beside the image from all, or the test-set errors."""
    from capsviz.analyses.primary import draw as drawing

    if isinstance(result, Statistics):
        return drawing.errors(result, width)
    return drawing.rows(result, width)


@analysis(__doc__, picture=True)
@click.option(
    "--decoder",
    type=click.Path(path_type=Path),
    help="Decoders of `capsviz primary train`. [default: beside the weights, or runs/NAME-primary]",
)
@click.option(
    "--capsules",
    type=click.IntRange(1),
    default=6,
    show_default=True,
    help="Capsules to show, at most.",
)
@click.option(
    "--levels",
    type=click.IntRange(2, 12),
    default=5,
    show_default=True,
    help="Shares of the coupling to show.",
)
@options.number("Over N test images instead of one.", "--evaluate")
@options.seed
def figure(run, decoder, capsules, levels, n, seed):
    """Write the figure and its numbers."""
    options.refuse_with_evaluate(n, "digit", "index", "image", "levels")
    options.refuse_without_evaluate(n, "seed")
    picture, images = (run.picture, None) if n is None else (None, run.images(n)[0])
    decoders = open_decoders(run.inputs, decoder)  # last: nobody trains some to be refused then
    if picture is not None:
        result = compute(
            run.model, decoders, picture.image, picture.label, classes=run.classes,
            capsules=capsules, levels=levels,
        )  # fmt: skip
        yield f"primary-{picture.name}", result
        return
    result = evaluate(
        run.model, decoders, images, dataset=run.dataset, capsules=capsules, seed=seed,
        progress=run.progress("images"),
    )  # fmt: skip
    yield f"primary-{run.dataset}-{n}-images", result


@click.pass_context
def _figure_or_command(context, **values):
    """The figure, unless a command follows."""
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return
    figure.callback(**values)


command = click.Group(
    params=figure.params,
    callback=_figure_or_command,
    help=figure.help,
    invoke_without_command=True,
)
command.add_command(train)


def findings(result: Result | Statistics) -> str:
    """What the numbers say, in a line or two."""
    if isinstance(result, Result):
        alone = result.sse[:, -1]
        return (
            f"predicted {result.classes[result.predicted]}: SSE {result.whole_sse:.2f} from all "
            f"{result.children:,} capsules, {alone.min():.2f} to {alone.max():.2f} from one of the "
            f"{len(alone)} most coupled, {result.sse[0, 0]:.2f} from none"
        )
    return findings_of_many(result)


def paper(inputs, settings):
    """For `capsviz figures`: one image, and the test set."""
    from capsviz.inputs.opening import open_picture

    decoders = open_decoders(inputs)
    name, classes = inputs.dataset.name, inputs.dataset.classes
    picture = open_picture(inputs, digit=settings.digit, index=settings.index)
    result = compute(inputs.model, decoders, picture.image, picture.label, classes=classes)
    yield f"primary-{picture.name}", result
    images, _ = inputs.images(settings.n)
    progress = settings.progress("decoding")
    result = evaluate(
        inputs.model, decoders, images, dataset=name, seed=settings.seed, progress=progress
    )
    yield f"primary-{name}-{settings.n}-images", result


def caption(result: Result | Statistics) -> str:
    """What the figure shows, with its numbers."""
    if isinstance(result, Statistics):
        return (
            "What the couplings carry: error of the image decoded from primary capsules, mean and "
            f"95 % interval. {sentences(findings(result))}"
        )
    field = "the rectangle is the receptive field"
    if result.places is None:
        field = "these capsules lie at no places of a grid, so no receptive field is marked"
    return (
        "Single primary capsules, decoded alone; from left to right their coupling grows from 0 to "
        f"its own value; {field}; at the right all capsules together. "
        f"{sentences(findings(result))}"
    )


def _refuse_options(context) -> None:
    """Options before the name of the command that follows would be lost without a word."""
    source = click.core.ParameterSource.COMMANDLINE
    if any(context.get_parameter_source(name) is source for name in context.params):
        raise click.UsageError(f"options go after '{context.invoked_subcommand}'")
