"""Are the maps of a warp a law? Composition, extrapolation, one map for all classes."""

from __future__ import annotations

import time
from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analyses.equivariance.affine import (
    FIT_LAW,
    REACH,
    SEEDS_LAW,
    Fit,
    Seeds,
    Warps,
    untrained,
)
from capsviz.analysis import Analysis, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import at_most_one
from capsviz.statistics.threads import on_one_thread
from capsviz.statistics.words import in_a_row, number, sentence

STEPS = (0, -2, -1, 1, 2)  # halves of the reach, the unwarped image first
LAWS = (
    "own map, whole warp",
    "half a warp, twice",
    "extrapolated from half",
    "one matrix, own offsets",
    "one map for all classes",
    "one shift",
)
OWN, TWICE, EXTRAPOLATED, ONE_MATRIX, ONE_MAP, SHIFT = range(len(LAWS))
BASELINES = (OWN, SHIFT)  # that a law is compared with, none themselves


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

    axes = dict.fromkeys(("explained", "change", "to_own"), ("sources", "warps", "laws"))
    formats = dict.fromkeys(axes, ".2f")
    over_runs = {"explained": at_most_one, "change": at_most_one, "seconds": sum}


class Laws(Analysis):
    """R2 of six ways to predict the vector under the whole warp."""

    Result = Law
    needs = ("poses", "primary")
    figure_set = None
    headline = ("explained", "change")

    def measure(
        self, networks, images, labels, *, dataset, inputs, progress=iter,
        law: Annotated[
            bool,
            "Whether the maps are a law: composition, extrapolation, one map for all classes.",
        ] = False,
        fit: Fit = None, warp: Warps = (), seeds: Seeds = None, seed: Seed = 0,
    ) -> Law:  # fmt: skip
        """Compare networks over N images (N, C, H, W); fits are on the training split."""
        from capsviz.inputs.samples import training_images

        fit = FIT_LAW if fit is None else fit
        return compute(
            list(networks.values()), images, labels, names=list(networks), dataset=dataset,
            reach={name: REACH.get(name, 0.0) for name in warp or ("rotation",)}, fit=fit,
            seeds=SEEDS_LAW if seeds is None else seeds, seed=seed, progress=progress,
            **training_images(inputs, fit),
        )  # fmt: skip

    def draw(self, result, *, width=7.16, part=""):
        """Draw R2 of the vector and of its change, a row for each way to predict it."""
        from capsviz.analyses.equivariance import draw

        return draw.laws(result, width)

    def verdict(self, result) -> str:
        """Say which laws hold clearly better than in untrained networks."""
        texts = [_holds(result, f) for f in range(len(result.warps))]
        return " ".join(filter(None, [*texts, *map(sentence, result.notes)]))

    def caption(self, result, part="") -> str:
        """Return what the panels show, and what the bars are."""
        return (
            "R² of the warped image's vector (left) and of its change (right), within its class, "
            "by maps fitted for each class and by laws: half a warp twice, extrapolation from "
            f"half, and one matrix or one map for all classes. Bars: 95 % intervals over "
            f"{result.n:,} images of {result.dataset}, and over untrained networks (bootstrap; "
            "Student's t)."
        )

    def table(self, result):
        """Return R2 of every kind of vector, by warp and law."""
        rows = [
            [name, words, what]
            + [
                number(float(one.value), ".2f") if np.isnan(one.value) else f"{one:.2f}"
                for one in getattr(result, field)[:, f, law]
            ]
            for f, name in enumerate(result.warps)
            for law, words in enumerate(result.laws)
            for what, field in (("vector", "explained"), ("change", "change"))
        ]
        header = ["Warp", "Predicted by", "R² of", *result.sources]
        return header, rows, self.caption(result)


def _holds(result, f: int) -> str:
    """Which laws of a warp are above those of untrained networks, and which below."""
    name = result.warps[f]
    if np.isnan(result.change.value[0, f]).any():
        return f"Under {name}, all images of a class change alike: one shift is the whole law."
    if not untrained(result):
        return ""
    above, below = (
        [words for law, words in enumerate(result.laws) if which(result, f, law)]
        for which in (_above, _below)
    )
    text = f"Under {name}, {in_a_row(above) if above else 'no law'} explains clearly more than"
    text += " in untrained networks"
    return f"{text}; {in_a_row(below)} explains clearly less." if below else f"{text}."


def _above(result, f: int, law: int) -> bool:
    """Whether a law explains something of the vector and of its change, and more of both than in
    untrained networks of every preset.
    """
    own = result.explained[0, f, law], result.change[0, f, law]
    return (
        law not in BASELINES
        and all(one.low > 0 for one in own)
        and all(
            result.explained.difference.high[s, f, law] < 0
            and result.change.difference.high[s, f, law] < 0
            for s in untrained(result)
        )
    )


def _below(result, f: int, law: int) -> bool:
    """Whether every untrained network has more of the law, in the vector and in its change."""
    return law not in BASELINES and all(
        result.explained.difference.low[s, f, law] > 0
        and result.change.difference.low[s, f, law] > 0
        for s in untrained(result)
    )


@on_one_thread
def compute(
    models, images, labels, *, names, dataset, reach, fit_images=None, fit_labels=None, fit=FIT_LAW,
    fit_of="training images", seeds=SEEDS_LAW, resamples=1000, seed=0, progress=iter,
) -> Law:  # fmt: skip
    """Predict the vectors of N warped images (N, C, H, W), for K networks and the pixels.

    Parameters
    ----------
    reach  name of a warp -> its largest size.
    seeds  untrained networks of each preset; every one of them sees all images.
    Others as of `affine.compute`.

    Raises
    ------
    ValueError  as `affine.compute`.
    """
    from capsviz import checkpoint
    from capsviz.analyses.equivariance import law_fits, vectors
    from capsviz.analyses.equivariance.fits import stacked
    from capsviz.statistics.comparison import draw_resamples
    from capsviz.transforms.warps import family

    begin = time.perf_counter()
    vectors.check(models[0], names[0], list(reach), REACH, seeds, fit, len(images))
    counts = draw_resamples(len(images), resamples=resamples, seed=seed)
    data = law_fits.gather(images, labels, fit_images, fit_labels, fit, fit_of)
    fresh, missing = checkpoint.controls(models[0], range(seed, seed + seeds), images)
    kinds = [[models[0]], *fresh.values(), *([one] for one in models[1:]), [law_fits.PIXELS]]
    sizes = np.stack([warp_sizes(name, size) for name, size in reach.items()])
    errors = law_fits.errors(kinds, data, list(reach), sizes, progress)
    fields = [law_fits.explained(one, counts) for one in errors]
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
