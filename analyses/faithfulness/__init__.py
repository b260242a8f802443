"""Is the routing map faithful: does the class fall without the pixels it points at?

`capsviz faithfulness --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

from typing import NamedTuple

import click
import numpy as np

from capsviz.analyses.faithfulness.words import caption, findings, parts
from capsviz.cli import options
from capsviz.cli.analysis import analysis
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import within, within_one

EXAMPLES = """
capsviz faithfulness --digit 4  # 15 s
capsviz faithfulness --n 200  # about 1 min
"""

NEEDS = ()  # scores with a gradient, of a network with capsules or without
WITHIN = ("curves", "deletion", "insertion", "infidelity")
OVER_RUNS = dict.fromkeys(WITHIN, within_one) | {"gap": within(-1, 1), "sanity": within(-1, 1)}

__all__ = ["caption", "findings", "parts"]


class Result(NamedTuple):
    """One image under M maps, controls first."""

    image: np.ndarray  # (C, H, W) uint8
    names: list[str]  # (M,)
    maps: np.ndarray  # (M, H, W) float32, places of capsules as rectangles
    shares: np.ndarray  # (S,) of the pixels that are removed, or shown
    deletion: np.ndarray  # (M, S) score of the class
    insertion: np.ndarray  # (M, S)
    deletion_area: np.ndarray  # (M,)
    insertion_area: np.ndarray  # (M,)
    infidelity: np.ndarray  # (M,) in [0, 1]
    random_maps: np.ndarray  # (M, H, W) float32, of the network with random weights
    correlation: np.ndarray  # (M,) of ranks, of the two maps; NaN: of the random order
    left_out: list[str]  # what the network has no map for, and why
    target: int  # class that is explained
    label: int | None  # true class, if it is known
    classes: list[str]
    quantity: dict[str, str] | None = None  # what the routing map shows, in words; None: c (û·v̂)


class Statistics(NamedTuple):
    """N images under M maps, controls first; differences are to pixels in random order."""

    names: list[str]  # (M,)
    shares: np.ndarray  # (S,) of the pixels that are removed, or shown
    curves: Estimate  # (2, M, S) mean score of the class: deletion, insertion
    deletion: Estimate  # (M,) area
    insertion: Estimate  # (M,) area
    gap: Estimate  # (M,) insertion less deletion
    infidelity: Estimate  # (M,) in [0, 1]; its n: images of which some square changes the score
    routed_less: Estimate | None  # (M,) gap of the routing map less that of each; None: no such map
    stages: list[str]  # (L,) lowest layer with random weights; all above it have them too
    sanity: Estimate  # (M, L) correlation with the map before; its n: draws; NaN: none
    left_out: list[str]  # what the network has no map for, and why
    target: str  # "read" or "true": the class that is explained
    n: int
    classes: list[str]
    dataset: str
    quantity: dict[str, str] | None = None  # what the routing map shows, in words; None: c (û·v̂)


def compute(model, image, label=None, *, classes, target="read", steps=8, seed=0) -> Result:
    """Judge the maps of one image (1, C, H, W).

    Parameters
    ----------
    label    true class, if it is known.
    classes  names of the classes.
    target   the class that is explained: "read" by the network, or "true".
    steps    in which pixels are removed, ever larger ones.
    seed     of the random order, of ties, squares and random weights.

    Raises
    ------
    ImportError  without captum.
    ValueError   for another target or number of steps, or scores without a gradient.
    """
    from capsviz.analyses.faithfulness import curves, measure
    from capsviz.transforms.augment import to_uint8

    measure.require_steps(steps)
    one = measure.example(model, image.cpu(), label, target=target, steps=steps, seed=seed)
    areas = curves.area(one.curves, one.shares).numpy()
    return Result(
        image=to_uint8(image[0].cpu()),
        names=one.names,
        maps=one.maps.float().numpy(),
        shares=one.shares.numpy(),
        deletion=one.curves[0].numpy(),
        insertion=one.curves[1].numpy(),
        deletion_area=areas[0],
        insertion_area=areas[1],
        infidelity=one.infidelity.numpy(),
        random_maps=one.random_maps.float().numpy(),
        correlation=one.correlation.numpy(),
        left_out=one.left_out,
        target=one.target,
        label=label,
        classes=list(classes),
        quantity=one.quantity,
    )


def evaluate(
    model, images, labels, *, classes, dataset, target="read", steps=8, seed=0, progress=iter
) -> Statistics:
    """Judge the maps of N images (N, C, H, W) with labels (N,).

    Parameters
    ----------
    classes   names of the classes.
    dataset   its name, for the record.
    target    the class that is explained: "read" by the network, or "true".
    steps     in which pixels are removed, ever larger ones.
    seed      of the random order, of ties, squares, random weights and the bootstrap.
    progress  wraps the chunks of images, for a progress bar.

    Raises
    ------
    ImportError  without captum.
    ValueError   for fewer than 2 images, another target or number of steps, or scores without a
                 gradient.
    """
    from capsviz.analyses.faithfulness import curves, measure
    from capsviz.analyses.faithfulness.maps import ROUTED
    from capsviz.statistics.comparison import compare_means, draw_resamples
    from capsviz.statistics.intervals import mean_interval, require_two

    images, labels = images.cpu(), labels.cpu()
    measure.require_steps(steps)
    require_two(len(images))
    survey = measure.survey(
        model, images, labels, target=target, steps=steps, seed=seed, progress=progress
    )
    counts = draw_resamples(len(images), seed=seed)

    def mean(values):
        return compare_means(values.numpy(), counts, shares=False)

    deletion, insertion = curves.area(survey.curves, survey.shares)
    gap = insertion - deletion
    changed = ~survey.infidelity.isnan().any(0)
    return Statistics(
        names=survey.names,
        shares=survey.shares.numpy(),
        curves=Estimate(*mean_interval(survey.curves.movedim(2, 0).numpy()), len(images)),
        deletion=mean(deletion),
        insertion=mean(insertion),
        gap=mean(gap),
        infidelity=measure.of_some(survey.infidelity[:, changed].numpy(), seed),
        routed_less=mean(gap[survey.names.index(ROUTED)] - gap) if ROUTED in survey.names else None,
        stages=survey.stages,
        sanity=Estimate(*mean_interval(survey.correlations.numpy()), len(survey.correlations)),
        left_out=survey.left_out,
        target=target,
        n=len(images),
        classes=list(classes),
        dataset=dataset,
        quantity=survey.quantity,
    )


def plot(result: Result | Statistics, *, width=7.16, part=""):
    """Maps of one image, or the judgements over a test set; or their "curves"."""
    from capsviz.analyses.faithfulness import draw

    drawn = draw.judgements if isinstance(result, Statistics) else draw.one_image
    return (draw.both_curves if part == "curves" else drawn)(result, width)


@analysis(__doc__, picture=True)
@options.number("Over N test images instead of one; mnist: 200 take a minute.", "--evaluate")
@click.option(
    "--target", default="read", show_default=True, metavar="read|true", help="Class explained."
)
@click.option("--steps", default=8, show_default=True, help="Steps of the curves.")
@options.seed
def command(run, n, target, steps, seed):
    """Write the figure and its numbers; say which maps are faithful."""
    options.refuse_with_evaluate(n, "digit", "index", "image")
    chosen = {"classes": run.classes, "target": target, "steps": steps, "seed": seed}
    if n is None:
        picture = run.picture
        result = compute(run.model, picture.image, picture.label, **chosen)
        yield f"faithfulness-{picture.name}", result
        return
    result = evaluate(
        run.model, *run.images(n), dataset=run.dataset, **chosen, progress=run.progress("maps")
    )
    yield f"faithfulness-{run.dataset}-{n}-images", result


def paper(inputs, settings):
    """For `capsviz figures`: one image; a test set takes too long."""
    from capsviz.inputs.opening import open_picture

    picture = open_picture(inputs, digit=settings.digit, index=settings.index)
    chosen = {"classes": inputs.dataset.classes, "seed": settings.seed}
    result = compute(inputs.model, picture.image, picture.label, **chosen)
    yield f"faithfulness-{picture.name}", result
