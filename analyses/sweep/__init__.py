"""Networks under warps of growing size: accuracy, true-class score, calibration.

`capsviz sweep --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

from typing import NamedTuple

import click
import numpy as np

from capsviz.analyses.sweep.words import caption, findings
from capsviz.cli import options
from capsviz.cli.analysis import analysis
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.replicates import largest

EXAMPLES = """
capsviz sweep --checkpoint mnist --checkpoint mnist-resnet --n 1000  # about 90 s
"""

NEEDS = ()  # of a network: its scores
OVER_RUNS = {"mcnemar_p": largest}  # unequal in every run

__all__ = ["Result", "caption", "command", "compute", "findings", "paper", "plot"]


# What the axes of estimates are: fields with their names, or the names; None: numbered from 1.
AXES = {
    **dict.fromkeys(("accuracy", "true_score", "calibration"), ("names", "sizes")),
    **dict.fromkeys(("area", "worst"), ("names",)),
}


class Result(NamedTuple):
    """K networks on N images under A sizes of a warp; intervals are 95 %, see the module.

    A difference is less the first network's, paired over the images.
    """

    warp: str
    unit: str  # after a size
    label: str  # what a size is
    sizes: np.ndarray  # (A,) in that unit
    names: list[str]  # of the networks
    scores: list[str]  # what each one's score is: "capsule length", "activation" or "probability"
    accuracy: Estimate  # (K, A)
    true_score: Estimate  # (K, A) mean score of the true class
    calibration: Estimate  # (K, A) expected calibration error
    mcnemar_p: np.ndarray  # (K, A) exact, against the first network, not corrected
    area: Estimate  # (K,) under the accuracy curve, divided by the range
    grid: int | None  # rotations of the grid, each with 9 shifts; None: left out
    worst: Estimate | None  # (K,) share of images right under every warp of the grid; Wilson
    n: int
    dataset: str
    resamples: int


def compute(
    models,
    images,
    labels,
    *,
    classes,
    names,
    dataset,
    warp="rotation",
    start=None,
    stop=None,
    step=None,
    grid=5,
    resamples=1000,
    seed=0,
    progress=iter,
) -> Result:
    """Look at N images (N, C, H, W) at every size of a warp with K networks.

    Memory does not grow with the number of sizes.

    Parameters
    ----------
    models             K networks on one device; the others are compared with the first.
    labels             (N,).
    classes            names of the classes.
    names              of the networks.
    dataset            its name, for the record.
    warp               a name of `capsviz.transforms.warps.FAMILIES`.
    start, stop, step  in the unit of the warp; None: its own.
    grid               rotations between -30° and 30° of the worst-of-grid accuracy; None: no grid.
    resamples, seed    of the bootstrap.
    progress           wraps the sizes, and then the warps of the grid, for a progress bar.

    Raises
    ------
    ValueError  for fewer than 2 images, networks of other image sizes or classes, or a sweep that
                `sizes` or `grid_warps` refuses.
    """
    from capsviz.analyses.sweep import measure as measures
    from capsviz.statistics import calibration, comparison
    from capsviz.tracing import score_name
    from capsviz.transforms.warps import family, family_matrix

    sizes = measures.sizes(warp, start, stop, step)
    warps = [] if grid is None else measures.grid_warps(grid)
    images, labels = images.cpu(), labels.cpu()
    measures.check(models, names, images)
    counts = comparison.draw_resamples(len(images), resamples=resamples, seed=seed)
    inputs, frame = (models, images, labels, len(classes)), tuple(images.shape[2:])
    curves, mcnemar, area = [], [], np.zeros((len(models), len(images)))
    for size, weight in zip(progress(sizes), measures.area_weights(sizes), strict=True):
        right, true, winner = measures.look(*inputs, family_matrix(warp, size, frame))
        mcnemar.append([comparison.mcnemar(right[0], one) for one in right])
        curves.append(
            {
                "accuracy": comparison.compare_means(right, counts),
                "true_score": comparison.compare_means(true, counts, shares=False),
                "calibration": calibration.compare_calibration(winner, right, counts),
            }
        )
        area += weight * right
    worst = measures.worst_case(*inputs, progress(warps)) if warps else None
    own = family(warp)
    return Result(
        warp=warp,
        unit=own.unit,
        label=own.label,
        sizes=sizes,
        names=list(names),
        scores=[score_name(model, images) for model in models],
        **{name: stack([one[name] for one in curves], 1) for name in curves[0]},
        mcnemar_p=np.array(mcnemar).T,
        area=comparison.compare_means(area, counts),
        worst=worst,
        grid=grid,
        n=len(images),
        dataset=dataset,
        resamples=resamples,
    )


def plot(result: Result, *, width=7.16):
    """Curves of all networks on one axis of sizes, and their summary."""
    from capsviz.analyses.sweep.draw import draw

    return draw(result, width)


@analysis(__doc__, networks=True)
@click.option(
    "--warp",
    default="rotation",
    show_default=True,
    metavar="NAME",
    help="rotation, scale, shear, shift-x or shift-y.",
)
@click.option("--from", "start", type=float, help="First size. [default: the warp's own]")
@click.option("--to", "stop", type=float, help="Last size. [default: the warp's own]")
@click.option("--step", type=float, help="Step between sizes. [default: the warp's own]")
@options.n
@click.option(
    "--grid", default=5, show_default=True, metavar="ODD", help="Rotations of the worst-case grid."
)
@click.option("--worst/--no-worst", default=True, help="Accuracy in the worst case of the grid.")
@options.seed
def command(run, warp, start, stop, step, n, grid, worst, seed):
    """Write the curves and their numbers; say how far the networks are apart."""
    from capsviz.analyses.sweep.measure import grid_warps, sizes

    sweep = {"warp": warp, "start": start, "stop": stop, "step": step}
    sizes(*sweep.values())
    grid_warps(grid)
    if not worst and options.typed("grid"):
        raise ValueError("--no-worst looks at no grid: drop --grid")
    sweep |= {"grid": grid if worst else None, "seed": seed, "progress": run.progress("warps")}
    n = options.usual(n, run.inputs)
    yield f"sweep-{warp}-{run.dataset}-{n}-images", compare(run.networks, n, **sweep)


def compare(opened, n, **sweep) -> Result:
    """`compute` for networks with the same data, over n images of it."""
    from capsviz.inputs.networks import together

    return compute(**together(opened, n), classes=opened[0].dataset.classes, **sweep)


def paper(inputs, settings):
    """For `capsviz figures`: rotation, the network and the shipped baselines of its data set."""
    from capsviz.inputs.networks import with_baselines

    result = compare(
        with_baselines(inputs),
        settings.few,
        step=10.0,
        grid=3,
        seed=settings.seed,
        progress=settings.progress("warping"),
    )
    yield f"sweep-rotation-{result.dataset}-{settings.few}-images", result
