"""Do poses change lawfully when the image is warped, and can the warp be read off?

Method: every image is warped by five kinds of warp, each of six sizes (kornia, one warp of the
original). The vector of an image is the pose of its true class; of a CNN what its last linear layer
is given; and the pixels themselves. *Equivariance*: for each class, warp and size an affine map A
is fitted by ridge regression, v(warped) = A v(unwarped), on half of the class's images, shrunk
towards the mean or towards no change, whichever predicts better there; R2 is the share of the
variance of v(warped) within its class that it explains on the other half (then the halves change
places). *Unchanged* is R2 of A = 1: invariance. *Probe*: for each class and warp a ridge regression
reads the size off the vector; R2 on held-out images, over all sizes. Vectors longer than the pose
are reduced to its length by PCA, so that all have equally many numbers. Control: the same network
with the numbers of each weight shuffled. Intervals at 95 % by paired bootstrap over images, 1,000
resamples, fits held fixed.

A reader should see R2 near 1 where the pose changes lawfully, and above that of the network with
shuffled weights where training made it so. With an invariant vector "unchanged" would be near 1 and
the probe near 0. Do not conclude from a high R2 alone: pixels before PCA are equivariant by
definition, because a warp is linear in them, and random weights keep some of that. Nor from a low
probe that the size is not there: only linear reading is tried, of the true class alone, and
handwriting itself leans and turns, which no probe of the applied size can tell apart. The numbers
hold for these weights; another training run may differ.
"""

from __future__ import annotations

from typing import NamedTuple

import click
import numpy as np

from analyses._words import with_interval
from capsviz import options

REACH = {"rotation": 30.0, "scale": 0.3, "shear": 0.6, "shift-x": 3.0, "shift-y": 3.0}
STEPS = (-1, -2 / 3, -1 / 3, 1 / 3, 2 / 3, 1)  # of the reach
MEASURES = {"affine map": "mean", "size read linearly": "probe"}  # fields, by what they explain


class Result(NamedTuple):
    """S kinds of vectors of N images, F warps of A sizes; R2 on held-out images, 95 % intervals.

    A difference is less the first kind's, paired over the images.
    """

    warps: list[str]  # F names
    units: list[str]  # after a size
    labels: list[str]  # what a size is
    neutral: np.ndarray  # (F,) the size that changes nothing
    sizes: np.ndarray  # (F, A) in that unit
    sources: list[str]  # S names, the first network's pose first, then its control
    dimensions: list[int]  # numbers in a vector
    kept: int  # of them, at most, by PCA
    fitted: np.ndarray  # (S, F, A) R2 of the affine map
    fitted_ci95: np.ndarray  # (S, F, A, 2)
    unchanged: np.ndarray  # (S, F, A) R2 of the unwarped image's vector
    unchanged_ci95: np.ndarray  # (S, F, A, 2)
    mean: np.ndarray  # (S, F) R2 of the affine maps of all sizes together
    mean_ci95: np.ndarray  # (S, F, 2)
    mean_difference: np.ndarray  # (S, F)
    mean_difference_ci95: np.ndarray  # (S, F, 2)
    probe: np.ndarray  # (S, F) R2 of the size read from a vector
    probe_ci95: np.ndarray  # (S, F, 2)
    probe_difference: np.ndarray  # (S, F)
    probe_difference_ci95: np.ndarray  # (S, F, 2)
    probe_error: np.ndarray  # (S, F) its root mean squared error, in the unit
    n: int
    dataset: str
    resamples: int


def compute(
    models, images, labels, *, names, dataset, resamples=1000, seed=0, progress=iter
) -> Result:
    """Warp N images (N, C, H, W) and fit, for K networks and the pixels.

    Memory does not grow with the number of warps.

    Parameters
    ----------
    models     K networks on one device, the first one with capsules.
    labels     (N,) true classes.
    names      of the networks.
    dataset    its name, for the record.
    resamples  of the bootstrap.
    seed       of shuffled weights and of the bootstrap.
    progress   wraps the warps, for a progress bar.

    Raises
    ------
    ValueError  for a first network without capsules, or fewer than 8 images of a class.
    """
    from analyses import _equivariance_features as vectors
    from analyses import _equivariance_fits as fits
    from capsviz import comparison
    from capsviz.warps import family

    if not hasattr(models[0], "look"):
        raise ValueError(
            f"{names[0]} has no capsules: expected a capsule network first, those that it is "
            "compared with after it"
        )
    images, labels = images.cpu(), labels.cpu()
    half = fits.halves(labels.numpy())
    networks = [models[0], vectors.shuffled(models[0], seed), *models[1:]]
    upright = vectors.all_of(networks, images, labels)
    counts = comparison.draw_resamples(len(images), resamples=resamples, seed=seed)
    kept, found = upright[0].shape[1], []
    for name in progress(list(REACH)):
        sizes = np.array([family(name).neutral, *_sizes(name)])
        seen = vectors.warped(networks, images, labels, name, sizes[1:])
        errors = [
            fits.cross_fit(np.stack(values), sizes, labels.numpy(), half, kept)
            for values in zip(upright, *seen, strict=True)
        ]
        found.append(_measures(fits.Errors(*map(np.stack, zip(*errors, strict=True))), counts))
    own = [family(name) for name in REACH]
    return Result(
        warps=list(REACH),
        units=[one.unit for one in own],
        labels=[one.label for one in own],
        neutral=np.array([one.neutral for one in own], float),
        sizes=np.stack([_sizes(name) for name in REACH]),
        sources=[names[0], f"{names[0]}, weights shuffled", *names[1:], "pixels"],
        dimensions=[values.shape[1] for values in upright],
        kept=kept,
        **{name: np.stack([one[name] for one in found], 1) for name in found[0]},
        n=len(images),
        dataset=dataset,
        resamples=resamples,
    )


def _sizes(name: str) -> np.ndarray:
    """The sizes (A,) of a warp."""
    from capsviz.warps import family

    return family(name).neutral + REACH[name] * np.array(STEPS)


def _measures(errors, counts) -> dict[str, np.ndarray]:
    """Fields of `Result` of one warp, from `Errors` with an axis (S,) in front."""
    from capsviz.comparison import compare_explained

    made = {}
    for field in ("fitted", "unchanged"):
        by_size = [
            compare_explained(getattr(errors, field)[:, a], errors.spread[:, a], counts)
            for a in range(errors.spread.shape[1])
        ]
        made[field] = np.stack([one.value for one in by_size], 1)
        made[f"{field}_ci95"] = np.stack([one.ci95 for one in by_size], 1)
    pairs = {
        "mean": (errors.fitted.sum(1), errors.spread.sum(1)),
        "probe": (errors.read, errors.range),
    }
    for field, pair in pairs.items():
        endings = ("", "_ci95", "_difference", "_difference_ci95")
        compared = compare_explained(*pair, counts)
        made |= {field + end: value for end, value in zip(endings, compared, strict=True)}
    return made | {"probe_error": np.sqrt(errors.read.mean(1))}


def plot(result: Result, *, width=7.16):
    """R2 by size, a panel for each warp, and what can be read off."""
    from analyses import _equivariance_drawing as drawing

    return drawing.sheet(result, width)


@click.command(help=__doc__.split("\n")[0])
@options.subjects
@click.option("--n", type=int, help=f"Test images. [default: {options.USUAL}, or all if fewer]")
@options.seed
@options.figure
@options.as_json
def command(n, seed, as_json, figure, subjects):
    """Write the figure and its numbers; say what changes lawfully and what can be read."""
    from capsviz.subject import together

    opened = options.open_subjects(subjects)
    n = options.usual(n, opened[0])
    result = compute(**together(opened, n), seed=seed, progress=options.progress("warps"))
    name = f"equivariance-{result.dataset}-{n}-images"
    paths = options.save(name, "equivariance", result, opened[0], figure)
    options.report(result, findings(result), paths, as_json)


def findings(result: Result) -> str:
    """R2 of the affine maps and of the probe, a line for each warp."""
    lines = [
        f"{result.n} {result.dataset} images, R2 on held-out ones, with 95 % intervals; in round "
        f"brackets {', '.join(result.sources[1:])}:"
    ]
    for f, name in enumerate(result.warps):
        parts = []
        for what, field in MEASURES.items():
            first, *others = _cells(result, field, f)
            parts.append(f"{what} {first} ({', '.join(one.split(' ')[0] for one in others)})")
        lines.append(f"{name}, {_reach(result, f)}: {'; '.join(parts)}")
    return "\n".join(lines)


def table(result: Result):
    """Header, rows and caption: R2 of every kind of vector under every warp."""
    rows = [
        [f"{name}, {_reach(result, f)}", what, *_cells(result, field, f)]
        for f, name in enumerate(result.warps)
        for what, field in MEASURES.items()
    ]
    return ["Warp", "R² of", *result.sources], rows, caption(result)


def _cells(result: Result, field: str, f: int) -> list[str]:
    """What `field` is under one warp, of every kind of vector, with its interval."""
    values, ends = getattr(result, field)[:, f], getattr(result, f"{field}_ci95")[:, f]
    return [with_interval(*pair, ".2f") for pair in zip(values, ends, strict=True)]


def _reach(result: Result, f: int) -> str:
    return f"{result.sizes[f, 0]:g} to {result.sizes[f, -1]:g}{result.units[f]}"


def paper(subject, settings):
    """For `capsviz figures`: the network and the shipped baselines of its data set."""
    from capsviz.subject import together, with_baselines

    result = compute(
        **together(with_baselines(subject), settings.n),
        seed=settings.seed,
        progress=settings.progress("warping"),
    )
    yield f"equivariance-{result.dataset}-{settings.n}-images", result


def caption(result: Result) -> str:
    """What the figure shows, with its numbers."""
    from analyses import _equivariance_drawing as drawing

    head, *rows = findings(result).split("\n")
    return (
        "Share of the variance of a warped image's vector, within its class, that an affine map of "
        "the unwarped one's explains, by size of the warp (dotted: that it explains as it is; axes "
        f"are cut at {drawing.LOWEST:g}), and how well the size can be read off linearly; vectors "
        f"of more than {result.kept} numbers reduced to as many by PCA. {head} {'; '.join(rows)}."
    )
