"""What do single primary capsules hold, and what do the couplings carry?

Method: with the network frozen, a decoder learns to draw the image from its primary capsules, each
scaled by J c_ij, its coupling to the predicted class j in the last iteration of routing (see
`capsviz.primary_decoder`; `capsviz primary train`). It then gets single capsules, the others zero,
with a coupling that grows from 0 to the capsule's own; and all together. The capsules shown are
the most strongly coupled, no two of one type or at one place. This is the figure in the README of
ethanleet/CapsNet, for which no code is public (its issue 22).

Controls over a test set (`--evaluate`): couplings shuffled among the capsules of an image;
couplings uniform; a second decoder that was trained with uniform couplings; single capsules at
random; no capsule. SSE is summed over pixels in [0, 1]; means have normal 95 % intervals, and so
has the difference from "all capsules", image by image.

A reader should see the average digit for no capsule, what one capsule adds to it, and the image
from all of them. Do not conclude that routing chooses well because the image from all is good: only
the controls say that. Couplings are a function of the capsules, so they hold no information of
their own. Shuffled and uniform couplings are new to the first decoder, which alone can make them
worse: the fair comparison is the decoder trained with uniform couplings. The intervals cover the
choice of images, not the luck of training: there is one decoder of each kind.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from analyses._primary_command import train
from analyses._primary_statistics import Statistics, evaluate, said
from capsviz import options


class Result(NamedTuple):
    """One image, K capsules of it, each at L shares of its coupling."""

    image: np.ndarray  # (C, H, W) uint8
    types: np.ndarray  # (K,) capsule type; the most strongly coupled first
    places: np.ndarray  # (K, 2) row and column in the grid
    fields: np.ndarray  # (K, 4) first and end row, first and end column of the receptive field, px
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
    decoders  of `capsviz.primary_decoder.load`.
    label     true class, if it is known.
    classes   names of the classes.
    capsules  how many to show, at most.
    levels    shares of the coupling to show, from 0 to 1; at least 2.

    Raises
    ------
    ValueError  for less than 1 capsule or 2 levels.
    """
    import torch

    from analyses._primary_controls import strongest
    from capsviz.augment import to_uint8
    from capsviz.functional import reconstruction_loss
    from capsviz.primary_decoder import decode, look

    if levels < 2:
        raise ValueError(f"expected at least 2 levels, from nothing to the coupling, got {levels}")
    image = image.cpu()
    seen = look(model, image)
    scaled = seen.scaled()
    chosen = strongest(seen.couplings, model.grid, capsules)[0]
    shares = torch.linspace(0, 1, levels)
    single = torch.zeros(len(chosen), levels, *scaled.shape[1:])
    for k, i in enumerate(chosen):
        single[k, :, i] = shares[:, None] * scaled[0, i]
    made = decode(decoders["routed"], single.flatten(0, 1))
    whole = decode(decoders["routed"], scaled)
    _, rows, columns = model.grid
    where = [(int(i) // columns % rows, int(i) % columns) for i in chosen]
    fields = [model.receptive_field(*place) for place in where]
    return Result(
        image=to_uint8(image[0]),
        types=(chosen // (rows * columns)).numpy(),
        places=np.array(where),
        fields=np.array([[f for s in pair for f in (s.start, s.stop)] for pair in fields]),
        couplings=seen.couplings[0, chosen].numpy(),
        shares=shares.numpy(),
        pictures=to_uint8(made).reshape(len(chosen), levels, *image.shape[1:]),
        sse=reconstruction_loss(image, made).numpy().reshape(len(chosen), levels),
        whole=to_uint8(whole[0]),
        whole_sse=float(reconstruction_loss(image, whole)),
        children=scaled.shape[1],
        predicted=int(seen.predicted),
        classes=list(classes),
        label=label,
    )


def plot(result: Result | Statistics, *, width=7.16):
    """Rows of single capsules beside the image from all, or the test-set errors."""
    from analyses import _primary_drawing as drawing

    if isinstance(result, Statistics):
        return drawing.errors(result, width)
    return drawing.rows(result, width)


@click.group(invoke_without_command=True, help=__doc__.split("\n")[0])
@options.subject
@options.picture
@click.option(
    "--decoder",
    type=click.Path(path_type=Path),
    help="Made by `capsviz primary train`. [default: beside the weights, then runs/NAME-primary]",
)
@click.option(
    "--capsules", type=click.IntRange(1), default=6, show_default=True, help="Rows, at most."
)
@click.option(
    "--levels", type=click.IntRange(2, 12), default=5, show_default=True, help="Shares of c."
)
@click.option("--evaluate", "n", type=int, metavar="N", help="Over N test images instead of one.")
@options.seed
@options.figure
@options.as_json
@click.pass_context
def command(context, decoder, capsules, levels, n, seed, as_json, figure, picture, subject):
    """Write the figure and its numbers, unless a command follows."""
    if context.invoked_subcommand is not None:
        _refuse_given(context)
        return
    options.refuse_with_evaluate(n, "digit", "index", "image", "levels")
    options.refuse_without_evaluate(n, "seed")
    opened = options.open_subject(subject)
    decoders = _open_decoders(opened, decoder)
    if n is not None:
        images, _ = opened.images(n)
        name, progress = opened.dataset.name, options.progress("images")
        result = evaluate(
            opened.model, decoders, images, dataset=name, capsules=capsules, seed=seed,
            progress=progress,
        )  # fmt: skip
        stem = f"primary-{name}-{n}-images"
    else:
        shown = options.open_picture(opened, picture)
        result = compute(
            opened.model, decoders, shown.image, shown.label, classes=opened.dataset.classes,
            capsules=capsules, levels=levels,
        )  # fmt: skip
        stem = f"primary-{shown.name}"
    paths = options.save(stem, "primary", result, opened, figure)
    options.report(result, findings(result), paths, as_json)


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
    return said(result)


def paper(subject, settings):
    """For `capsviz figures`: one image, and the test set."""
    from capsviz.subject import open_picture

    decoders = _open_decoders(subject)
    name, classes = subject.dataset.name, subject.dataset.classes
    shown = open_picture(subject, digit=settings.digit, index=settings.index)
    result = compute(subject.model, decoders, shown.image, shown.label, classes=classes)
    yield f"primary-{shown.name}", result
    images, _ = subject.images(settings.n)
    progress = settings.progress("decoding")
    result = evaluate(
        subject.model, decoders, images, dataset=name, seed=settings.seed, progress=progress
    )
    yield f"primary-{name}-{settings.n}-images", result


def caption(result: Result | Statistics) -> str:
    """What the figure shows, with its numbers."""
    if isinstance(result, Statistics):
        return (
            "What the couplings carry: error of the image decoded from primary capsules, mean and "
            f"95 % interval. {findings(result)}."
        )
    return (
        "Single primary capsules, decoded alone; from left to right their coupling grows from 0 to "
        "its own value; the rectangle is the receptive field; at the right all capsules together. "
        f"{findings(result)}."
    )


def _open_decoders(subject, file=None):
    from capsviz import primary_decoder

    path = file or primary_decoder.find(subject.source, subject.name)
    return primary_decoder.load(
        path, subject.model.card, checkpoint=subject.source, device=subject.device
    )


def _refuse_given(context) -> None:
    """Options before the name of the command that follows would be lost without a word."""
    source = click.core.ParameterSource.COMMANDLINE
    if any(context.get_parameter_source(name) is source for name in context.params):
        raise click.UsageError(f"options go after '{context.invoked_subcommand}'")
