"""Is the routing map faithful: does the class fall without the pixels it points at?

Method: the additive map of routing, Σ over types of c_ij (û_ij · v̂_j), each place's evidence
divided among the pixels that it sees in proportion to how far they are from black, and the same
map with uniform couplings, are judged beside gradient, integrated gradients (Sundararajan et al.
2017, arXiv:1703.01365), Grad-CAM on the first and the last convolution (Selvaraju et al. 2017,
arXiv:1610.02391) and occlusion (Zeiler & Fergus 2014, arXiv:1311.2901), all by captum; black is
the baseline. Where the activation is no length, the map is the routing's own decomposition of what
the activation is read from (see `routing`); the caption says which. Of a capsule network the
activation of a class is explained, of any other its logit.
Three judgements:

- Deletion and insertion (Petsiuk et al. 2018, arXiv:1806.07421): pixels are set to black, or shown
  on black, in the order of the map; the score of the class is plotted against their share, and the
  areas are compared. A faithful map deletes with a small area and inserts with a large one. The
  shares are few, closer together where the curves are steep: an area is off by about 0.01 from
  that of pixel after pixel, alike for maps that are alike.
- Infidelity (Yeh et al. 2019, arXiv:1901.09392): squares of a quarter of the image's side are set
  to black; what share of the squared losses does the sum of the map over the square leave
  unexplained, up to one factor for each image, not below 0? 0 is a map that foretells every loss,
  1 one of nothing or of the wrong sign. Pixels in random order, which foretell that any square
  loses something, have less than 1: what to compare with.
- Sanity (Adebayo et al. 2018, arXiv:1810.03292): the weights are replaced by normal draws, layer
  by layer from the class down. A map that still looks the same shows the image and not the
  network. It is correlated by ranks with what it was, maps of routing place by place.

Controls that know nothing of the class: pixels in random order, by their ink, and by |u|, the
norms of the children summed over types, divided among pixels likewise. A network without capsules,
or whose capsules lie at no places, has no routing map; the others are judged all the same. Over a
test set (`--n N`) areas and errors are compared image by image, intervals are 95 % by
bootstrap of the images; those of the sanity check are by Student's t over draws of the weights, a
few images under each.

A reader should see whether the routing map is ahead of its own controls: of uniform couplings, and
of ink and |u|, which need no routing. Where it is not, its bright places say no more than those.

Do not conclude that a map which deletes well is what the network "looks at": images with removed
pixels are none that it was trained on, and an order by ink does well on white digits on black, for
nothing else can be removed. Maps of routing are divided by ink and so share that; what routing
adds is in the differences to ink, |u| and uniform couplings. Nor that a map of low infidelity is
right about single pixels: it is asked of squares.
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
