"""Does a child choose its parent by the image, by its place, or always the same?

`capsviz parse-tree --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from capsviz.analyses.parse_tree.words import caption, findings
from capsviz.cli import options
from capsviz.cli.analysis import analysis
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import mean, within, within_one

EXAMPLES = """
capsviz parse-tree --digit 4  # 10 s
capsviz parse-tree --n 1000  # about 20 s
"""

NEEDS = ("couplings",)  # of a network, see tracing.needs
WITHIN = ("shares", "shuffled", "favourites", "true_activation")
OVER_RUNS = dict.fromkeys(WITHIN, within_one) | {"correlation": within(-1, 1), "tied": mean}

__all__ = ["caption", "findings"]


class Result(NamedTuple):
    """Trees of one image, of another, and of the first by a freshly initialised network, if any."""

    images: np.ndarray  # (S, C, H, W) uint8
    read: np.ndarray  # (S,) classes that are read
    labels: list[int | None]  # (S,) true ones, where they are known
    networks: list[str]  # (S,) "trained", "this network" or "freshly initialised"
    favourites: np.ndarray  # (S, I) parent that each child gives most; -1: all the same
    margins: np.ndarray  # (S, I) its coupling less the mean of the child's
    grid: tuple[int, int, int] | None  # types, rows, columns; None: no places
    coupling_sd: np.ndarray  # (S,) of the couplings about even ones
    classes: list[str]


class Statistics(NamedTuple):
    """N images; S networks, the own one first, then fresh ones; intervals are 95 %."""

    networks: list[str]  # (S,)
    components: list[str]  # (7,) where variance lies
    shares: Estimate  # (S, 7) of the mean square of preferences; NaN: even couplings
    shuffled: Estimate  # (7,) of the own network, with class labels shuffled
    by_child: np.ndarray  # (I, 3) mean squares of each child: always the same, by class, by image
    coupling_sd: np.ndarray  # (S,) about even ones, over all images
    choices: list[str]  # (5,) what favourites do
    favourites: Estimate  # (S, 5) share of children; NaN: even couplings
    frozen: list[str] | None  # (6,) couplings; None: they cannot be replaced
    accuracy: Estimate | None  # (6,) with these; difference: less that with its own
    true_activation: Estimate | None  # (6,) mean of the true class
    moves: list[str] | None  # (3,) places compared; None: too few places to move by one
    trees: list[str] | None  # (2,) the whole tree, and less the usual one of the image's class
    correlation: Estimate | None  # (2, 3) with the moved image's tree; difference: less the first
    grid: tuple[int, int, int] | None  # types, rows, columns
    others: str  # images that frozen couplings and usual favourites are of
    notes: list[str]
    classes: list[str]
    n: int
    dataset: str
    tied: np.ndarray | None = None  # (6,) share in which no class is ahead of all others


class Trajectory(NamedTuple):
    """T epochs of one run, epoch 0 as it began; I children; quantiles are 5, 25, 50, 75, 95 %."""

    epochs: list[int]  # (T,)
    accuracy: Estimate  # (T,)
    largest: np.ndarray  # (T, 5) quantiles over children of the largest activation over images
    dead: np.ndarray  # (T,) children whose largest activation is below `dead_norm`
    gradient: np.ndarray  # (T, 5) quantiles of gradients' norms, in shares of the largest child's
    gradient_largest: np.ndarray  # (T,) norm of the largest child's
    starved: Estimate  # (T,) children whose gradient is below `starved_share` of that
    components: list[str]  # (7,)
    shares: Estimate  # (T, 7) as in `Statistics`
    children: int
    dead_norm: float
    starved_share: float
    run: str
    n: int
    dataset: str


def compute(model, images, labels=(None, None), *, classes, seed=0) -> Result:
    """Trees of two images (2, C, H, W), and of the first by a fresh network.

    Parameters
    ----------
    labels   true classes, where they are known.
    classes  names of the classes.
    seed     of the fresh network.
    """
    from capsviz.analyses.parse_tree import statistics

    return Result(
        **statistics.trees(model, images.cpu(), list(labels), seed), classes=list(classes)
    )


def evaluate(
    model, images, labels, others, *, classes, dataset, seeds=1, seed=0, progress=iter
) -> Statistics:
    """What decides the trees of N images (N, C, H, W) with labels (N,).

    Parameters
    ----------
    others   images, labels and a name of other images (`cli.other_images.Others`).
    classes  names of the classes.
    dataset  its name, for the record.
    seeds    freshly initialised networks.
    seed     of these, of couples, shuffles and the bootstrap.
    progress wraps the chunks of images, for a progress bar.

    Raises
    ------
    ValueError  for fewer than 2 images, or a layer whose places see some children only.
    """
    from capsviz.analyses.parse_tree import statistics

    values = statistics.measure(model, images.cpu(), labels.cpu(), others, seeds, seed, progress)
    return Statistics(**values, classes=list(classes), n=len(images), dataset=dataset)


def follow(
    networks, images, labels, *, run, dataset, dead_norm=0.05, starved_share=0.001, seed=0
) -> Trajectory:
    """Deaths and starved gradients by epoch.

    Parameters
    ----------
    networks       iterable of (epoch, network).
    run            its name, for the record.
    dead_norm      a capsule is dead if its activation is below this in all images.
    starved_share  of the largest capsule's gradient.
    seed           of the bootstrap.
    """
    from capsviz.analyses.parse_tree import training

    chosen = {"dead_norm": dead_norm, "starved_share": starved_share}
    values = training.follow(networks, images.cpu(), labels.cpu(), **chosen, seed=seed)
    return Trajectory(**values, **chosen, run=run, n=len(images), dataset=dataset)


def parts(result: Result | Statistics | Trajectory) -> tuple[str, ...]:
    """Names of its pictures."""
    many = isinstance(result, Statistics)
    more = many and (result.accuracy is not None or result.correlation is not None)
    return ("", "moved") if more else ("",)


def plot(result: Result | Statistics | Trajectory, *, width=7.16, part=""):
    """Trees of two images; what decides them over many, or "moved"; capsules over training."""
    from capsviz.analyses.parse_tree import draw, panels

    if isinstance(result, Result):
        return draw.trees(result, width)
    if isinstance(result, Trajectory):
        return panels.epochs(result, width)
    return (panels.moved if part == "moved" else panels.statistics)(result, width)


@analysis(__doc__, picture=True)
@click.option(
    "--other", type=int, metavar="CLASS",
    help="Class of the other image. [default: the one after that of the first]",
)  # fmt: skip
@options.number("Over N test images instead of two.", "--evaluate")
@click.option(
    "--run", "folder", type=click.Path(path_type=Path), metavar="FOLDER",
    help="A run of `capsviz train --save-every K`: capsules by epoch.",
)  # fmt: skip
@click.option("--seeds", default=1, show_default=True, help="Freshly initialised networks.")
@click.option(
    "--dead-norm", default=0.05, show_default=True, help="A dead capsule's activation is below it."
)
@click.option(
    "--starved-share", default=0.001, show_default=True,
    help="A starved capsule's gradient is below this share of the largest one.",
)  # fmt: skip
@options.seed
def command(run, other, n, folder, seeds, dead_norm, starved_share, seed):
    """Write the figure and its numbers; say what decides a tree."""
    from capsviz.analyses.parse_tree import inputs

    inputs.check(n, folder, seeds, dead_norm, starved_share)
    if folder is not None:
        stem, arguments = inputs.epochs(run, folder, n)
        chosen = {"dead_norm": dead_norm, "starved_share": starved_share, "seed": seed}
        yield stem, follow(**arguments, **chosen)
    elif n is not None:
        stem, arguments = inputs.many(run.inputs, n)
        progress = run.progress("parsing")
        yield stem, evaluate(run.model, **arguments, seeds=seeds, seed=seed, progress=progress)
    else:
        stem, arguments = inputs.two(run.inputs, run.picture, other)
        yield stem, compute(run.model, **arguments, seed=seed)


def paper(inputs, settings):
    """For `capsviz figures`: two images, and the test set."""
    from capsviz.analyses.parse_tree import inputs as chosen
    from capsviz.inputs.opening import open_picture

    picture = open_picture(inputs, digit=settings.digit, index=settings.index)
    stem, arguments = chosen.two(inputs, picture, None)
    yield stem, compute(inputs.model, **arguments, seed=settings.seed)
    stem, arguments = chosen.many(inputs, settings.few)
    progress = settings.progress("parsing")
    yield stem, evaluate(inputs.model, **arguments, seed=settings.seed, progress=progress)
