"""Are the maps of a warp a law? Composition, one map for all classes, extrapolation, change itself.

A map that is fitted for one size of a warp only predicts. A law holds beyond its fit: half a warp
twice is the whole one, small warps tell of larger ones, and one law serves all classes. All maps
are affine, fitted by ridge regression as those of `equivariance`, none on an image that is
measured, and all predict the vector of the image under the whole warp, to either side:

own map, whole warp       v -> v(whole), fitted for each class: what the others are compared with.
half a warp, twice        A(A v), where A is the own map of half the warp.
extrapolated from half    v + 2 (B v + b) + 4 (C v + c) and v - 2 (B v + b) + 4 (C v + c): odd and
                          even part of the change under half the warp to either side.
one matrix, own offsets   one A for all classes, between vectors less the mean of their class.
one map for all classes   one affine map, fitted on all classes together: also one offset.
one shift                 v + the mean change of the class: A = 1 and an offset.

R2 of the vector is the share of its squares, about the mean of its class in the images of the fit,
that is explained. A vector that hardly
changes has a high one for nothing; so beside it stands R2 of the change v(whole) - v, which one
shift leaves at zero. A law is said to be above freshly initialised networks only where it explains
some of both, and clearly more of both: every one of them sees all images, and how they differ is in
the intervals. Maps of all classes are fitted on as many
times more images: where few are at hand, an own map may over-fit and they may not. No vector is
reduced. Halves are of the angle, the shift and the shear, and
for a scale of its logarithm.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from capsviz.analyses.equivariance.law.words import LAWS
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.threads import on_one_thread

FIT = 150  # training images of a class: every network sees them all, five times
SEEDS = 3  # freshly initialised networks of each preset
STEPS = (0, -2, -1, 1, 2)  # halves of the reach, the unwarped image first


R2 = ("explained", "change")  # fields that end at 1 above


class Law(NamedTuple):
    """S kinds of vectors of N images under F whole warps, predicted in L ways; intervals: 95 %.

    Differences are less the first kind's, paired over the images.
    """

    warps: list[str]  # F names
    units: list[str]  # after a size
    sizes: np.ndarray  # (F, 4) -whole, -half, half, whole
    laws: list[str]  # L ways to predict
    sources: list[str]  # S names, the first network's pose first, then its controls
    dimensions: list[int]  # (S,) numbers in a vector
    explained: Estimate  # (S, F, L) R2 of the vector under the whole warp
    change: Estimate  # (S, F, L) R2 of its change
    to_own: Estimate  # (S, F, L) `explained` less that of the own map, paired
    n: int
    dataset: str
    resamples: int
    fit_count: int  # images of each class that a map is fitted on
    fit_of: str  # what they are
    seeds: int  # of a freshly initialised network
    notes: list[str]  # what could not be had
    looks: int  # images of any size, warped or not, times networks that saw them
    seconds: float


@on_one_thread
def compute(
    models, images, labels, *, names, dataset, reach, fit_images=None, fit_labels=None, fit=FIT,
    fit_of="training images", seeds=SEEDS, resamples=1000, seed=0, progress=iter,
) -> Law:  # fmt: skip
    """Predict the vectors of N warped images (N, C, H, W), for K networks and the pixels.

    Parameters
    ----------
    reach  name of a warp -> its largest size.
    seeds  freshly initialised networks of each preset; every one of them sees all images.
    Others as of `equivariance.compute`.

    Raises
    ------
    ValueError  as `equivariance.compute`.
    """
    from capsviz import checkpoint
    from capsviz.analyses.equivariance import choice
    from capsviz.analyses.equivariance.law import measure
    from capsviz.analyses.equivariance.measure import stacked
    from capsviz.statistics.comparison import draw_resamples
    from capsviz.transforms.warps import family

    begin = time.perf_counter()
    choice.check(models[0], names[0], list(reach), reach, seeds)
    counts = draw_resamples(len(images), resamples=resamples, seed=seed)
    data = measure.gather(images, labels, fit_images, fit_labels, fit, fit_of)
    fresh, missing = checkpoint.controls(models[0], range(seed, seed + seeds), images)
    kinds = [[models[0]], *fresh.values(), *([one] for one in models[1:]), [measure.PIXELS]]
    sizes = np.stack([warp_sizes(name, size) for name, size in reach.items()])
    errors = measure.errors(kinds, data, list(reach), sizes, progress)
    fields = [measure.explained(one, counts) for one in errors]
    passes = len(data.images) * (1 + len(reach) * (len(STEPS) - 1))
    return Law(
        warps=list(reach),
        units=[family(name).unit for name in reach],
        sizes=sizes[:, 1:],
        laws=list(LAWS),
        sources=[names[0], *(f"{names[0]} {one}" for one in fresh), *names[1:], "pixels"],
        dimensions=[some[0].dimensions for some in errors[0]],
        **stacked(fields),
        n=len(images),
        dataset=dataset,
        resamples=resamples,
        fit_count=data.fit,
        fit_of=fit_of if fit_images is not None else "images (the halves take turns)",
        seeds=seeds if fresh else 0,
        notes=[*data.notes, *missing],
        looks=passes * (sum(map(len, kinds)) - 1),  # nothing looks at the pixels
        seconds=round(time.perf_counter() - begin, 1),
    )


def warp_sizes(name: str, reach: float) -> np.ndarray:
    """Sizes (5,) of a warp by `STEPS`: two halves in a row are the whole."""
    from capsviz.transforms.warps import family

    steps = np.array(STEPS) / 2
    if name == "scale":
        return (1 + reach) ** steps
    return family(name).neutral + reach * steps


def plot(law: Law, width=7.16):
    """R2 of the vector and of its change, a row for each way to predict it."""
    from capsviz.analyses.equivariance.law import draw

    return draw.sheet(law, width)
