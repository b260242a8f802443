"""Do poses follow a transformation of the image, and can its size be predicted from them?"""

from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Default, Fill, Flag, Range, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import at_most_one
from capsviz.statistics.words import in_a_row, sentence, untrained_of

REACH = {"rotation": 30.0, "scale": 0.3, "shear": 0.6, "shift-x": 3.0, "shift-y": 3.0}
STEPS = (0, -1, -1 / 2, 1 / 2, 1)  # multiples of the reach, the unwarped image first
FIT, FIT_LAW = 500, 150  # training images per class to fit a map on; with --law
SEEDS, SEEDS_LAW = 5, 3  # untrained networks of each preset; with --law
LAWS = (
    "own map, whole warp",
    "half a warp, twice",
    "extrapolated from half",
    "one matrix, own offsets",
    "one map for all classes",
    "one shift",
)
OWN, TWICE, EXTRAPOLATED, ONE_MATRIX, ONE_MAP, SHIFT = range(len(LAWS))
BASELINES = (OWN, SHIFT)  # laws are compared with these
MEASURES = {"affine map": "mean", "size read linearly": "probe"}  # row of the table -> field

Fit = Annotated[
    int | None,
    Range(1),
    Flag("--fit", metavar="N"),
    Default(f"{FIT}, with --law {FIT_LAW}"),
    "Training images per class to fit a map on.",
]
Warps = Annotated[
    tuple[str, ...],
    Flag("--warp", metavar="NAME"),
    Default("all, with --law rotation"),
    f"{', '.join(REACH)}; may be given several times.",
]
Seeds = Annotated[
    int | None,
    Range(0),
    Flag("--seeds", metavar="K"),
    Default(f"{SEEDS}, with --law {SEEDS_LAW}"),
    "Number of untrained networks per preset.",
]


class Result(NamedTuple):
    """S kinds of vectors of N images, F warps of A sizes; R2 on images that no fit has used.

    Intervals are 95 %. Differences are to the first kind, paired over the images.
    """

    warps: list[str]  # F names
    units: list[str]  # F units of the sizes
    labels: list[str]  # F meanings of the sizes
    neutral: np.ndarray  # (F,) the size that changes nothing
    sizes: np.ndarray  # (F, A) in `units`
    sources: list[str]  # S names, the first network's pose first, then its controls
    dimensions: list[int]  # S numbers of dimensions of a vector
    kept: int  # largest number of dimensions after PCA
    fitted: Estimate  # (S, F, A) R2 of the affine map
    unchanged: Estimate  # (S, F, A) R2 of the unwarped image's vector
    mean: Estimate  # (S, F) R2 of the affine maps of all sizes together
    probe: Estimate  # (S, F) R2 of the size predicted from a vector
    n: int
    dataset: str
    fit_counts: list[int]  # T images per class, ascending; the other fits are on the last number
    by_count: Estimate  # (S, F, T) `mean` of fits on so many images
    fit_of: str  # images that the fits are on
    seeds: int  # untrained networks of each preset
    notes: list[str]  # what is missing, and why
    fill: str = "black"  # of `transforms.Fill`

    axes = {
        **dict.fromkeys(("fitted", "unchanged"), ("sources", "warps", "size {1}")),
        **dict.fromkeys(("mean", "probe"), ("sources", "warps")),
        "by_count": ("sources", "warps", "fit_counts"),
    }
    titles = {
        "fitted": "R² of the fitted map",
        "unchanged": "R² of no change",
        "mean": "R² of the fitted maps, all sizes",
        "probe": "R² of the predicted size",
        "by_count": "R² by images of a fit",
    }
    formats = dict.fromkeys(axes, ".2f")
    over_runs = dict.fromkeys(axes, at_most_one)


class _OverNetworks(Analysis):
    """Intervals of untrained networks are over their seeds too."""

    def intervals(self, result) -> str:
        return super().intervals(result) + ", and over untrained networks" * (result.seeds > 1)


class AffineMaps(_OverNetworks):
    """R2 of affine maps from the vector of an image to that of the warped image."""

    Result = Result
    needs = ("poses", "primary")
    examples = """
    capsviz equivariance --n 200 --warp rotation --fit 100  # about 4 min; more warps: longer
    capsviz equivariance --law --n 200  # about 3 min
    """
    figure_set = {  # all warps take five times as long
        "warp": ("rotation",),
        "seeds": 3,
        "fit": lambda n: min(FIT, max(8, n // 6)),  # with ten classes, more than the n images
    }
    slow = True
    headline = ("mean", "probe")

    def measure(
        self, networks, images, labels, *, dataset, inputs, progress=iter, fit: Fit = None,
        warp: Warps = (), seeds: Seeds = None, fill: Fill = "black", seed: Seed = 0,
    ):  # fmt: skip
        """Compare networks over N images (N, C, H, W).

        Fits are on the training split. Without one, the two halves of the images take turns.
        """
        from capsviz.analyses.equivariance import fits
        from capsviz.analyses.equivariance.measure import compare
        from capsviz.transforms.warps import family

        fields, pose, fitted = compare(
            networks, images, labels, inputs, {name: warp_sizes(name) for name in warp or REACH},
            fits.of_vectors, fits.affine_fields, fit=FIT if fit is None else fit,
            seeds=SEEDS if seeds is None else seeds, seed=seed, dataset=dataset, fill=fill,
            directions=True, progress=progress,
        )  # fmt: skip
        own = [family(name) for name in fields["warps"]]
        return Result(
            **fields,
            labels=[one.label for one in own],
            neutral=np.array([one.neutral for one in own], float),
            kept=pose,
            fit_counts=fits.counts(fitted),
        )

    def verdict(self, result) -> str:
        if not (untrained := untrained_of(result.sources)):
            return " ".join(map(sentence, result.notes))
        less = result.mean.difference[untrained]
        above, below = (
            in_a_row([str(name) for name in np.array(result.warps)[which]] or ["none of the warps"])
            for which in ((less.high < 0).all(0), (less.low > 0).any(0))
        )
        first = (
            f"Affine maps predict trained poses clearly better than untrained ones under {above}"
        )
        if (less.low > 0).any():
            first += f", and worse under {below}"
        return " ".join(map(sentence, [first, *result.notes]))

    def table(self, result):
        rows = [
            [f"{name}, {reach(result, f)}", what]
            + [f"{one:.2f}" for one in getattr(result, field)[:, f]]
            for f, name in enumerate(result.warps)
            for what, field in MEASURES.items()
        ]
        return ["Warp", "R² of", *result.sources], rows, self.caption(result)


def reach(result, f: int) -> str:
    """Return the range of a warp's sizes."""
    return f"{result.sizes[f, 0]:g} to {result.sizes[f, -1]:g}{result.units[f]}"


class Law(NamedTuple):
    """S kinds of vectors of N images under F whole warps, predicted in L ways; intervals: 95 %.

    Differences are to the first kind, paired over the images.
    """

    warps: list[str]  # F names
    units: list[str]  # F units of the sizes
    sizes: np.ndarray  # (F, 4) -whole, -half, half, whole
    laws: list[str]  # L ways to predict
    sources: list[str]  # S names, the first network's pose first, then its controls
    dimensions: list[int]  # S numbers of dimensions of a vector
    explained: Estimate  # (S, F, L) R2 of the vector under the whole warp
    change: Estimate  # (S, F, L) R2 of its change
    to_own: Estimate  # (S, F, L) `explained` minus that of the own map, paired
    n: int
    dataset: str
    fit_count: int  # images per class to fit a map on
    fit_of: str  # images that the fits are on
    seeds: int  # untrained networks of each preset
    notes: list[str]  # what is missing, and why
    fill: str = "black"  # of `transforms.Fill`

    axes = dict.fromkeys(("explained", "change", "to_own"), ("sources", "warps", "laws"))
    titles = {
        "explained": "R² of the vector",
        "change": "R² of its change",
        "to_own": "R² less that of the own map",
    }
    formats = dict.fromkeys(axes, ".2f")
    over_runs = dict.fromkeys(("explained", "change"), at_most_one)


class Laws(_OverNetworks):
    """R2 of six ways to predict the vector under the whole warp."""

    Result = Law
    how = "bootstrap"
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
        fit: Fit = None, warp: Warps = (), seeds: Seeds = None,
        fill: Fill = "black", seed: Seed = 0,
    ) -> Law:  # fmt: skip
        """Compare networks over N images (N, C, H, W); fits are on the training split."""
        from capsviz.analyses.equivariance import fits
        from capsviz.analyses.equivariance.measure import compare

        fields, _, fitted = compare(
            networks, images, labels, inputs,
            {name: warp_sizes(name, composed=True) for name in warp or ("rotation",)},
            fits.laws_of_vectors, fits.law_fields, fit=FIT_LAW if fit is None else fit,
            seeds=SEEDS_LAW if seeds is None else seeds, seed=seed, dataset=dataset, fill=fill,
            progress=progress,
        )  # fmt: skip
        return Law(**fields, laws=list(LAWS), fit_count=fitted)

    def verdict(self, result) -> str:
        texts = [_holds(result, f) for f in range(len(result.warps))]
        return " ".join(filter(None, [*texts, *map(sentence, result.notes)]))

    def table(self, result):
        rows = [
            [name, words, what, *(f"{one:.2f}" for one in getattr(result, field)[:, f, law])]
            for f, name in enumerate(result.warps)
            for law, words in enumerate(result.laws)
            for what, field in (("vector", "explained"), ("change", "change"))
        ]
        header = ["Warp", "Predicted by", "R² of", *result.sources]
        return header, rows, self.caption(result)


def _holds(result, f: int) -> str:
    """Return a sentence on the laws of a warp that explain more than in untrained networks.

    They must explain more of both the vector and its change.
    """
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


def warp_sizes(name: str, composed: bool = False) -> np.ndarray:
    """Return sizes (5,) of a warp by `STEPS`; if `composed`, two half warps give the whole."""
    from capsviz.transforms.warps import family

    steps = np.array(STEPS)
    if composed and name == "scale":
        return (1 + REACH[name]) ** steps
    return family(name).neutral + REACH[name] * steps
