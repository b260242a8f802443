"""Which capsule types, places and pose dimensions does the answer need?

`capsviz importance --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsviz.analyses.importance.words import caption, findings
from capsviz.cli import options
from capsviz.cli.analysis import analysis
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import mean, within_one

EXAMPLES = """
capsviz importance --digit 4  # 10 s
capsviz importance --n 200  # about 15 s
"""

NEEDS = ("couplings", "interventions")  # of a network, see tracing.needs
OTHERS = 200  # images that importance is ranked on, at most

# Types, dimensions and children without places are in another order in each run; places are not.
UNORDERED = dict.fromkeys(("types", "dimensions", "children"))
BOUNDED = ("base", "curve_accuracy", "area_accuracy", "rounded_accuracy")
OVER_RUNS = dict.fromkeys(BOUNDED, within_one) | {
    "activation_change": UNORDERED,
    "accuracy_change": UNORDERED,
    "first": None,
    "rank_agreement": mean,
    "keys": mean,
    "child_bits": mean,
    "bound_bits": mean,
}

__all__ = ["caption", "findings"]


# What the axes of estimates are: fields with their names, or the names; None: numbered from 1.
AXES = {
    "base": (("true activation", "accuracy"),),
    **dict.fromkeys(("entropy_bits", "apart_bits", "fresh_bits"), ("levels",)),
}


class Result(NamedTuple):
    """One image without each group of children, by kind: types, places, dimensions."""

    image: np.ndarray  # (C, H, W) uint8
    label: int | None  # true class, if it is known
    watched: int  # class whose activation is watched: the true one, else the one that is read
    activations: np.ndarray  # (J,) with all children
    change: dict[str, np.ndarray]  # by kind (G,), of the watched activation
    control: dict[str, np.ndarray]  # by kind (2,): 5 to 95 % of random removals of equal norm
    grid: tuple[int, int, int] | None  # types, rows, columns; None: no places
    how: str  # what the children that are left do
    extent_px: list[float] | None  # left, right, bottom, top of the places on the image
    classes: list[str]


class Statistics(NamedTuple):
    """N images; by kind of group, G groups of it; intervals are 95 %."""

    kinds: list[str]
    base: Estimate  # (2,) true activation and accuracy with all children
    activation_change: dict[str, Estimate]  # (G,) without each group
    accuracy_change: dict[str, Estimate]  # (G,)
    control_activation_change: dict[str, Estimate]  # () without random ones of equal norm
    control_accuracy_change: dict[str, Estimate]  # ()
    rank_agreement: dict[str, float]  # Spearman's, with the importance on other images
    orders: list[str]  # (3,) random, least important first, most important first
    removed: dict[str, np.ndarray]  # (S,) groups removed at each step
    curve_accuracy: dict[str, Estimate]  # (3, S)
    curve_activation: dict[str, Estimate]  # (3, S)
    area_accuracy: dict[str, Estimate]  # (3,) mean height; difference: less that at random
    area_activation: dict[str, Estimate]  # (3,)
    levels: list[int]  # (K,) that couplings are rounded to
    entropy_bits: Estimate  # (K,) of the dictionary of a class, mean over classes
    keys: np.ndarray  # (K,) distinct trees of a class, mean over classes
    child_bits: np.ndarray  # (K,) entropy of a single child's rounded coupling, mean
    bound_bits: float  # log2 of the images of a class, mean
    apart_bits: Estimate  # (K,) children varied apart from each other
    fresh_bits: Estimate | None  # (K,) freshly initialised; None: cannot be built anew
    rounded_accuracy: Estimate  # (1 + K,) own couplings, then rounded; difference: less the first
    grid: tuple[int, int, int] | None  # types, rows, columns
    how: str  # what the children that are left do
    others: str  # images that importance is ranked on
    classes: list[str]
    n: int
    dataset: str
    first: dict[str, int] | None = None  # group that ranks first on the other images; of one run
    first_activation_change: dict[str, Estimate] | None = None  # (2,) without it, without random
    # ones of its norm; differences are to the first


def compute(model, image, label=None, *, classes, seed=0) -> Result:
    """Leave each group of children out of one image (1, C, H, W).

    Parameters
    ----------
    label    true class, if it is known.
    classes  names of the classes.
    seed     of the random removals.

    Raises
    ------
    ValueError  for a network whose children cannot be left out.
    """
    from capsviz.analyses.importance import statistics
    from capsviz.tracing import abilities, extent
    from capsviz.tracing.evidence import has_places
    from capsviz.transforms.augment import to_uint8

    image = image.cpu()
    return Result(
        image=to_uint8(image[0]),
        label=label,
        **statistics.one_image(model, image, label, seed),
        extent_px=extent(model) if has_places(abilities(model).grid) else None,
        classes=list(classes),
    )


def evaluate(
    model, images, labels, others, *, classes, dataset, seed=0, progress=iter
) -> Statistics:
    """Leave groups of children out of N images (N, C, H, W) with labels (N,).

    Parameters
    ----------
    others    images, labels and a name of other images (`cli.other_images.Others`).
    classes   names of the classes.
    dataset   its name, for the record.
    seed      of random removals and orders, the fresh network and the bootstrap.
    progress  wraps the chunks of images, for a progress bar.

    Raises
    ------
    ValueError  for fewer than 2 images, or a network whose children cannot be left out.
    """
    from capsviz.analyses.importance import statistics

    values = statistics.measure(model, images.cpu(), labels.cpu(), others, seed, progress)
    return Statistics(**values, classes=list(classes), n=len(images), dataset=dataset)


def parts(result: Result | Statistics) -> tuple[str, ...]:
    """Names of its pictures."""
    return ("",) if isinstance(result, Result) else ("", "dictionaries")


def plot(result: Result | Statistics, *, width=7.16, part=""):
    """Importance in one image, or over many, with pruning curves; or "dictionaries"."""
    from capsviz.analyses.importance import draw, panels

    if part == "dictionaries":
        return panels.dictionaries(result, width)
    return (draw.one_image if isinstance(result, Result) else panels.sheet)(result, width)


@analysis(__doc__, picture=True)
@options.number("Over N test images instead of one.", "--evaluate")
@options.seed
def command(run, n, seed):
    """Write the figure and its numbers; say what the answer needs."""
    options.refuse_with_evaluate(n, "digit", "index", "image")
    if n is None:
        yield of_one(run.inputs, run.picture, seed)
    else:
        yield of_many(run.inputs, n, seed, run.progress("pruning"))


def of_one(inputs, picture, seed: int):
    """Stem and result of a picture."""
    classes = inputs.dataset.classes
    result = compute(inputs.model, picture.image, picture.label, classes=classes, seed=seed)
    return f"importance-{picture.name}", result


def of_many(inputs, n: int, seed: int, progress):
    """Stem and result of n images."""
    from capsviz.inputs.samples import other_images

    name = inputs.dataset.name
    images, labels = inputs.images(n)
    result = evaluate(
        inputs.model, images, labels, other_images(inputs, OTHERS), dataset=name,
        classes=inputs.dataset.classes, seed=seed, progress=progress,
    )  # fmt: skip
    return f"importance-{name}-{n}-images", result


def paper(inputs, settings):
    """For `capsviz figures`: one image, and the test set."""
    from capsviz.inputs.opening import open_picture

    picture = open_picture(inputs, digit=settings.digit, index=settings.index)
    yield of_one(inputs, picture, settings.seed)
    yield of_many(inputs, settings.few, settings.seed, settings.progress("pruning"))
