"""Do poses change lawfully when the image is warped, and can the warp be read off?

`capsviz equivariance --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import click
import numpy as np

from capsviz.analyses.equivariance import law as laws
from capsviz.analyses.equivariance.law import Law
from capsviz.analyses.equivariance.words import caption, findings, table
from capsviz.cli import options
from capsviz.cli.analysis import analysis
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import at_most_one, mean
from capsviz.statistics.threads import on_one_thread

EXAMPLES = """
capsviz equivariance --n 200 --warp rotation --fit 100  # about 4 min; more warps: longer
capsviz equivariance --law --n 200  # about 3 min
"""

NEEDS = ("poses", "primary")  # of a network, see tracing.needs
OVER_RUNS = {"probe_error": mean, "variance_kept": mean, "by_seed": mean, "seconds": sum}
R2 = ("fitted", "unchanged", "mean", "probe", "by_count", *laws.R2)
OVER_RUNS |= dict.fromkeys(R2, at_most_one)

__all__ = ["Law", "Result", "caption", "compute", "findings", "plot", "table"]

REACH = {"rotation": 30.0, "scale": 0.3, "shear": 0.6, "shift-x": 3.0, "shift-y": 3.0}
STEPS = (-1, -1 / 2, 1 / 2, 1)  # of the reach
FIT = 500  # training images of a class that a map is fitted on
SEEDS = 5  # freshly initialised networks of each preset, and draws of directions
SEEDS_PRINTED = 3  # in a figure set
PRINTED = LAWFUL = ("rotation",)  # in a figure set, as all take five times as long; with --law


class Result(NamedTuple):
    """S kinds of vectors of N images, F warps of A sizes; R2 on images that no fit saw.

    Intervals are 95 %. A difference is less the first kind's, paired over the images.
    """

    warps: list[str]  # F names
    units: list[str]  # after a size
    labels: list[str]  # what a size is
    neutral: np.ndarray  # (F,) the size that changes nothing
    sizes: np.ndarray  # (F, A) in that unit
    sources: list[str]  # S names, the first network's pose first, then its controls
    dimensions: list[int]  # numbers in a vector
    kept: int  # of them, at most, by PCA
    fitted: Estimate  # (S, F, A) R2 of the affine map
    unchanged: Estimate  # (S, F, A) R2 of the unwarped image's vector
    mean: Estimate  # (S, F) R2 of the affine maps of all sizes together
    probe: Estimate  # (S, F) R2 of the size read from a vector
    probe_error: np.ndarray  # (S, F) its root mean squared error, in the unit
    n: int
    dataset: str
    resamples: int
    variance_kept: np.ndarray | None = None  # (S, F) share within a class that the PCA keeps
    fit_counts: list[int] | None = None  # T images a class, ascending; the last: of all fits above
    by_count: Estimate | None = None  # (S, F, T) `mean` of fits on so many
    fit_of: str = "the other half of the images"  # what the fits are on
    seeds: int = 0  # of a freshly initialised network
    notes: list[str] | None = None  # what could not be had
    looks: int | None = None  # images of any size, warped or not, times networks that saw them
    seconds: float | None = None
    by_seed: np.ndarray | None = None  # (S, F, 2) lowest and highest `mean` of a seed's control


@on_one_thread
def compute(
    models, images, labels, *, names, dataset, fit_images=None, fit_labels=None, fit=FIT,
    fit_of="training images", warps=tuple(REACH), seeds=SEEDS, resamples=1000, seed=0,
    progress=iter,
) -> Result:  # fmt: skip
    """Warp N images (N, C, H, W), and M others to fit on, for K networks and the pixels.

    Parameters
    ----------
    models      K networks on one device, the first one with capsules.
    labels      (N,) true classes.
    names       of the networks.
    dataset     its name, for the record.
    fit_images  (M, C, H, W) that none of the images is among; None: the halves of each class of
                the images take turns.
    fit_labels  (M,).
    fit         of them, the first so many of each class; of fewer where a class has fewer.
    fit_of      what they are, in words.
    warps       names, of `REACH`.
    seeds       freshly initialised networks of each preset, and draws of random directions; each
                sees all images.
    resamples   of the bootstrap.
    seed        the first of the fresh networks' weights and of the directions; of the bootstrap.
    progress    wraps the classes, for a progress bar.

    Raises
    ------
    ValueError  for a first network without capsules, an unknown warp, or fewer than 8 images of a
                class to fit on, or 2 to measure.
    """
    from capsviz.analyses.equivariance import choice, kinds, measure, vectors
    from capsviz.statistics import comparison
    from capsviz.transforms.warps import family

    begin = time.perf_counter()
    images, labels, own = images.cpu(), labels.cpu().numpy(), list(map(family, warps))
    choice.check(models[0], names[0], warps, REACH, seeds)
    fit_images = None if fit_images is None else fit_images.cpu()
    groups, fit, notes = choice.groups(labels, fit_images, fit_labels, fit, fit_of)
    all_of = kinds.kinds(models, names, images, seeds, seed)
    resampled = comparison.draw_resamples(len(images), resamples=resamples, seed=seed)
    steps = {k: family(k).neutral + REACH[k] * np.array([0, *STEPS]) for k in warps}
    numbers, looks, kept = measure.counts(fit), 0, all_of.axes[0].shape[1]
    errors = {name: [[] for _ in range(all_of.count)] for name in warps}
    measured = measure.take_turns if fit_images is None else measure.fit_and_measure
    for k, places, others in progress(groups):  # memory holds the vectors of one class
        parts = [images[places]] + ([] if others is None else [fit_images[others]])
        looks += sum(map(len, parts)) * (1 + sum(len(one) - 1 for one in steps.values()))
        by_warp = [vectors.of_class(all_of.networks, part, k, steps, all_of.axes) for part in parts]
        for name, *both in zip(warps, *by_warp, strict=True):
            for row, pair in zip(errors[name], zip(*both, strict=True), strict=True):
                row.append(measured(*pair, steps[name], kept, numbers))
    order = np.argsort(np.concatenate([places for _, places, _ in groups]))
    rows = [[measure.joined(row, order) for row in errors[name]] for name in warps]
    values = [measure.explained(one, resampled, all_of.picked) for one in rows]
    return Result(
        warps=list(warps),
        units=[one.unit for one in own],
        labels=[one.label for one in own],
        neutral=np.array([one.neutral for one in own], float),
        sizes=np.stack([steps[name][1:] for name in warps]),
        sources=all_of.names,
        dimensions=[both[0][k].shape[2] for k in all_of.picked[0]],
        kept=kept,
        **measure.stacked(values),
        n=len(images),
        dataset=dataset,
        resamples=resamples,
        fit_counts=numbers,
        fit_of=fit_of if fit_images is not None else "images (the halves take turns)",
        seeds=all_of.seeds,
        notes=[*notes, *all_of.notes],
        looks=looks * len(all_of.networks),
        seconds=round(time.perf_counter() - begin, 1),
    )


def plot(result: Result | Law, *, width=7.16):
    """R2 by size, a panel for each warp, what is read off, R2 by images of a fit; or by law."""
    from capsviz.analyses.equivariance import draw

    return (laws.plot if isinstance(result, Law) else draw.sheet)(result, width)


@analysis(__doc__, networks=True)
@options.n
@click.option(
    "--law/--no-law", "law", default=False,
    help="Whether the maps are a law: composition, extrapolation, one map for all classes.",
)  # fmt: skip
@click.option(
    "--fit", type=int, metavar="N",
    help="Training images of each class that a map is fitted on. "
    f"[default: {FIT}, with --law {laws.FIT}]",
)  # fmt: skip
@click.option(
    "--warp", "chosen", multiple=True, metavar="NAME",
    help=f"{', '.join(REACH)}; several times. [default: all, with --law rotation]",
)  # fmt: skip
@click.option(
    "--seeds", type=int, metavar="K",
    help="Freshly initialised networks of each preset, each of which sees all images. "
    f"[default: {SEEDS}, with --law {laws.SEEDS}]",
)  # fmt: skip
@options.seed
def command(run, n, law, fit, chosen, seeds, seed):
    """Write the figure and its numbers; say what changes lawfully and what can be read."""
    n = options.usual(n, run.inputs)
    result = compare(
        run.networks, n, law=law, fit=fit, warps=chosen or None, seeds=seeds, seed=seed,
        progress=run.progress("networks" if law else "classes"),
    )  # fmt: skip
    yield f"equivariance-{run.dataset}-{n}-images", result


def compare(opened, n: int, *, law=False, fit=None, warps=None, seeds=None, **chosen):
    """`compute`, or `law.compute`, for networks with the same data, over n images of it.

    Fits are on its training split; where there is none the halves of the images take turns.
    """
    from capsviz.analyses.equivariance import choice
    from capsviz.inputs.networks import together
    from capsviz.inputs.samples import training_images

    fit = (laws.FIT if law else FIT) if fit is None else fit
    chosen["seeds"] = (laws.SEEDS if law else SEEDS) if seeds is None else seeds
    warps = tuple(warps or (LAWFUL if law else REACH))
    choice.check(opened[0].model, opened[0].name, warps, REACH, chosen["seeds"], fit, n)
    options = {**together(opened, n), **training_images(opened[0], fit), "fit": fit, **chosen}
    if law:
        return laws.compute(**options, reach={name: REACH[name] for name in warps})
    return compute(**options, warps=warps)


def paper(inputs, settings):
    """For `capsviz figures`: the network and its data set's baselines, under one of the warps."""
    from capsviz.inputs.networks import with_baselines

    result = compare(
        with_baselines(inputs), settings.few, warps=PRINTED, seeds=SEEDS_PRINTED,
        fit=min(FIT, max(8, settings.few // 10)),  # of ten classes, as many as are measured
        seed=settings.seed, progress=settings.progress("warping"),
    )  # fmt: skip
    yield f"equivariance-{inputs.dataset.name}-{settings.few}-images", result
