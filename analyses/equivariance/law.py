"""Are the maps of a warp a law? Composition, extrapolation, one map for all classes."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analyses.equivariance import affine
from capsviz.analyses.equivariance.affine import FIT_LAW, REACH, SEEDS_LAW
from capsviz.analysis import Analysis, Fill, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import at_most_one
from capsviz.statistics.words import in_a_row, sentence, untrained_of

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
    seeds: int  # of an untrained network
    notes: list[str]  # what could not be had
    passes: int  # images of any size, warped or not, times networks that saw them
    seconds: float
    fill: str = "black"  # of `transforms.Fill`

    axes = dict.fromkeys(("explained", "change", "to_own"), ("sources", "warps", "laws"))
    titles = {
        "explained": "R² of the vector",
        "change": "R² of its change",
        "to_own": "R² less that of the own map",
    }
    formats = dict.fromkeys(axes, ".2f")
    over_runs = {"explained": at_most_one, "change": at_most_one, "seconds": sum}


class Laws(Analysis):
    """R2 of six ways to predict the vector under the whole warp."""

    Result = Law
    how = "and over untrained networks; bootstrap"
    panels = "draw:LAWS"
    needs = ("poses", "primary")
    figure_set = None
    headline = ("explained", "change")

    def measure(
        self, networks, images, labels, *, dataset, inputs, progress=iter,
        law: Annotated[
            bool,
            "Test whether the maps are a law: composition, extrapolation, one map for all classes.",
        ] = False,
        fit: affine.Fit = None, warp: affine.Warps = (), seeds: affine.Seeds = None,
        fill: Fill = "black", seed: Seed = 0,
    ) -> Law:  # fmt: skip
        """Compare networks over N images (N, C, H, W); fits are on the training split."""
        from capsviz.analyses.equivariance import fits
        from capsviz.analyses.equivariance.measure import compare

        fields, _, fitted = compare(
            networks, images, labels, inputs, warp_sizes, fits.laws_of_vectors, fits.law_fields,
            warps=warp or ("rotation",), fit=FIT_LAW if fit is None else fit,
            seeds=SEEDS_LAW if seeds is None else seeds, seed=seed, dataset=dataset, fill=fill,
            progress=progress,
        )  # fmt: skip
        return Law(**fields, laws=list(LAWS), fit_count=fitted)

    def verdict(self, result) -> str:
        """Say which laws hold clearly better than in untrained networks."""
        texts = [_holds(result, f) for f in range(len(result.warps))]
        return " ".join(filter(None, [*texts, *map(sentence, result.notes)]))

    def table(self, result):
        """Return R2 of every kind of vector, by warp and law."""
        rows = [
            [name, words, what, *(f"{one:.2f}" for one in getattr(result, field)[:, f, law])]
            for f, name in enumerate(result.warps)
            for law, words in enumerate(result.laws)
            for what, field in (("vector", "explained"), ("change", "change"))
        ]
        header = ["Warp", "Predicted by", "R² of", *result.sources]
        return header, rows, self.caption(result)


def _holds(result, f: int) -> str:
    """Which laws of a warp explain more than in untrained networks, of vector and change alike."""
    name, both = result.warps[f], (result.explained, result.change)
    if np.isnan(result.change.value[0, f]).any():
        return f"Under {name}, all images of a class change alike: one shift is the whole law."
    if not (untrained := untrained_of(result.sources)):
        return ""
    above = [
        words
        for law, words in enumerate(result.laws)
        if law not in BASELINES
        and all(one.low[0, f, law] > 0 for one in both)
        and all((one.difference.high[untrained, f, law] < 0).all() for one in both)
    ]
    which = in_a_row(above) if above else "no law"
    explain = "explain" if len(above) > 1 else "explains"
    return f"Under {name}, {which} {explain} clearly more than in untrained networks."


def warp_sizes(name: str) -> np.ndarray:
    """Sizes (5,) of a warp by `STEPS`: two halves in a row are the whole."""
    from capsviz.transforms.warps import family

    steps, neutral = np.array(STEPS) / 2, family(name).neutral
    return (1 + REACH[name]) ** steps if name == "scale" else neutral + REACH[name] * steps
