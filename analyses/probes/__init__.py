"""What does a pose know of slant, width, thickness and place, and does it lead anywhere?

`capsviz probes --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

from typing import NamedTuple

import click
import numpy as np

from capsviz.analyses.probes.runs import OVER_RUNS
from capsviz.analyses.probes.words import caption, findings, parts
from capsviz.cli import options
from capsviz.cli.analysis import analysis
from capsviz.statistics.estimate import Estimate

EXAMPLES = """
capsviz probes --digit 2 --other-index 5  # 10 s
capsviz probes --n 1000  # about 2 min
"""

NEEDS = ("poses",)  # of a network, see tracing.needs; what needs a decoder is left out without one

__all__ = ["OVER_RUNS", "caption", "findings", "parts"]

FIT = 500  # training images of each class that a probe is fitted on
SHIFT_PX = 2  # at most, as in training


class Result(NamedTuple):
    """Two images, and T drawings on the way from the one's pose to the other's, both ends too."""

    images: np.ndarray  # (2, C, H, W) uint8
    labels: list[int | None]  # (2,) true classes, where they are known
    capsule: int  # the class whose pose is changed: what the first is read as
    t: np.ndarray  # (T,) from 0 to 1
    path: np.ndarray  # (T, C, H, W) uint8, decoded from (1 - t) v_a + t v_b
    fade: np.ndarray  # (T, C, H, W) uint8, (1 - t) the first of them + t the last
    path_activations: np.ndarray  # (T, J) of what is drawn, encoded again
    fade_activations: np.ndarray  # (T, J)
    activations: np.ndarray  # (2, J) of the images
    classes: list[str]
    score: str = "capsule length"  # or "activation", what activations are


class Statistics(NamedTuple):
    """S kinds of vectors probed for M measures; intervals are 95 %.

    Differences are less the first kind's, paired; the last fields are None without a decoder.
    """

    measures: list[str]  # (M,) names with units
    sources: list[str]  # S names, the network's pose first
    dimensions: list[int]  # (S,) numbers in a vector
    r2: Estimate  # (S, M) on test images
    control: Estimate  # (S, M) R2 of the control task
    selectivity: Estimate  # (S, M) r2 - control, where that is above 0
    informed: Estimate  # (S,) mean of r2 over measures
    codes: list[str]  # (S + 1,) sources, and after the first the same turned at random
    disentanglement: Estimate  # (S + 1,) mean over classes
    completeness: Estimate  # (S + 1,)
    spread: np.ndarray  # (M,) standard deviation of a measure within a class, in its unit
    n: int  # test images
    fitted: int  # images that probes are fitted on
    fit_of: str  # what they are
    probed: int  # classes that are read often enough to be probed
    shift_px: int
    seeds: int  # of a freshly initialised network; each sees all images
    dataset: str
    notes: list[str]
    seconds: float
    returns: list[str] | None = None  # (3,) what is encoded: the drawing, and its controls
    cycle: Estimate | None = None  # (3,) R2 of the pose within its class
    cycle_read: Estimate | None = None  # (3,) share read as the same class
    t: np.ndarray | None = None  # (T,) of the path
    path_read: Estimate | None = None  # (2, T) share read as the class: path, cross-fade
    path_activation: Estimate | None = None  # (2, T) mean activation of the class
    path_distance: Estimate | None = None  # (2, T) to the nearest training image, rms grey value
    couples: int = 0


def compute(model, images, labels=(None, None), *, classes) -> Result:
    """The straight path between the poses of two images (2, C, H, W), and a cross-fade.

    Parameters
    ----------
    labels   true classes, where they are known.
    classes  names of the classes.

    Raises
    ------
    ValueError  for another number of images, or a network without a decoder.
    """
    from capsviz.analyses.probes import inputs, paths
    from capsviz.tracing import score_name, scores
    from capsviz.transforms.augment import to_uint8

    inputs.require_drawings(model)
    if len(images) != 2:
        raise ValueError(f"expected two images, the ends of a path, got {len(images)}")
    images = images.cpu()
    activations = scores(model, images)
    capsule = int(activations[0].argmax())
    path, fade = paths.strips(model, images[:1], images[1:], capsule)
    return Result(
        images=to_uint8(images),
        labels=list(labels),
        capsule=capsule,
        t=paths.T.numpy(),
        path=to_uint8(path[0]),
        fade=to_uint8(fade[0]),
        path_activations=scores(model, path[0]).numpy(),
        fade_activations=scores(model, fade[0]).numpy(),
        activations=activations.numpy(),
        classes=list(classes),
        score=score_name(model, images),
    )


def evaluate(
    model, images, *, name, dataset, baselines=None, fit_images=None, fit_labels=None, fit=FIT,
    shift_px=SHIFT_PX, seeds=3, seed=0, progress=iter,
) -> Statistics:  # fmt: skip
    """Probe the poses of N images (N, C, H, W), and others to fit on.

    Parameters
    ----------
    name        of the network.
    dataset     its name, for the record.
    baselines   name -> network without capsules.
    fit_images  (M, C, H, W) that none of the images is among; None: their halves take turns.
    fit_labels  (M,) their true classes.
    fit         that they are so many of each class, for the record.
    shift_px    that all images are shifted by, at most, in whole pixels; 0: not at all.
    seeds       freshly initialised networks of each preset, and draws of turned poses.
    seed        of shifts, control tasks, fresh networks and the bootstrap.
    progress    wraps the parts of the work, for a progress bar.

    Raises
    ------
    ValueError  where no class is read often enough.
    """
    from capsviz.analyses.probes import measure

    return Statistics(
        **measure.statistics(
            model, images, name=name, baselines=baselines or {}, fit_images=fit_images,
            fit_labels=fit_labels, shift_px=shift_px, seeds=seeds, seed=seed, progress=progress,
        ),
        fit_of="images (the halves take turns)" if fit_images is None
        else f"training images, up to {fit} of each class",
        dataset=dataset,
    )  # fmt: skip


def plot(result: Result | Statistics, *, width=7.16, part=""):
    """A film strip, or probes and their controls; or "paths", which need a decoder."""
    from capsviz.analyses.probes import draw, film

    if part == "paths":
        return draw.paths(result, width)
    return (draw.sheet if isinstance(result, Statistics) else film.strip)(result, width)


@analysis(__doc__, picture=True)
@click.option(
    "--other-index", type=int, metavar="K",
    help="Which image of the class the path leads to. [default: the one after --index]",
)  # fmt: skip
@options.number("Probes over N test images instead of a path.", "--evaluate")
@click.option(
    "--fit", default=FIT, show_default=True, metavar="N",
    help="Training images of each class that a probe is fitted on.",
)  # fmt: skip
@click.option("--shift-px", default=SHIFT_PX, show_default=True, help="Shift of images, at most.")
@click.option(
    "--seeds", default=3, show_default=True, metavar="K",
    help="Freshly initialised networks of each preset, each of which sees all images.",
)  # fmt: skip
@options.seed
def command(run, other_index, n, fit, shift_px, seeds, seed):
    """Write the figure and its numbers; say what the poses know and where they lead."""
    from capsviz.analyses.probes import inputs
    from capsviz.tracing import reconstructs

    options.refuse_without_evaluate(n, "fit", "shift_px", "seeds")
    options.refuse_with_evaluate(n, "digit", "index", "image", "other_index")
    if n is None:
        inputs.require_drawings(run.model)
        stem, *pair = inputs.pair(run.inputs, run.picture, other_index)
        yield stem, compute(run.model, *pair, classes=run.classes)
        return
    inputs.check(run.inputs.dataset, n, fit=fit, shift_px=shift_px, seeds=seeds)
    if not reconstructs(run.model):
        click.echo(inputs.NO_DECODER, err=True)
    chosen = {"shift_px": shift_px, "seeds": seeds, "seed": seed}
    result = evaluate(
        run.model, **inputs.material(run.inputs, n, fit), **chosen, progress=run.progress("probing")
    )
    yield f"probes-{run.dataset}-{n}-images", result


def paper(opened, settings):
    """For `capsviz figures`: a path between two images, and the probes over the test set."""
    from capsviz.analyses.probes import inputs
    from capsviz.inputs.opening import open_picture
    from capsviz.tracing import reconstructs

    if reconstructs(opened.model):
        picture = open_picture(opened, digit=settings.digit, index=settings.index)
        stem, *pair = inputs.pair(opened, picture, None, index=settings.index)
        yield stem, compute(opened.model, *pair, classes=opened.dataset.classes)
    fit = min(FIT // 2, max(inputs.LEAST, settings.few // 4))  # a small set is a quick one
    result = evaluate(
        opened.model, **inputs.material(opened, settings.few, fit), seed=settings.seed,
        progress=settings.progress("probing"),
    )  # fmt: skip
    yield f"probes-{result.dataset}-{settings.few}-images", result
