"""Does routing assign parts to the wholes that they belong to? Scored on `assemblies`."""

from typing import Annotated, Literal, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Default, Range, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import at_most_one, mean, within_one
from capsviz.statistics.words import shown


class Result(NamedTuple):
    """Scores of one network; chance is an AUROC of 0.5. Intervals are over images."""

    scored: list[str]  # (M,) scores of positions, controls, ceiling and floor
    subsets: list[str]  # (3,) subsets of the positions
    assignment: Estimate  # (M, 3) AUROC for the whole of each position, in images of two wholes
    pairs: list[str]  # (G,) positions whose couplings are compared, by what they see, and controls
    iterations: list[str]  # (R,)
    follows: Estimate  # (G, R) share of image pairs in which couplings follow the unseen part
    change: Estimate  # (G, R) size of this change, in units of the standard deviation, over
    # positions and images, of the difference of the couplings to both classes; NaN: no network
    unequal: float  # largest difference between capsules that see equal pixels
    answers: list[str]  # (3,) the class, its partner, another
    angles_deg: list[int]  # (A,) rotations of one part
    rotated: Estimate  # (3, A) share of predictions
    distances_px: list[int]  # (D,) shifts of one part
    accuracy: Estimate  # (D,)
    agreement: Estimate  # (D,) of the other part's votes with the class's pose
    vectors: list[str]  # (V,) inputs of the regressions for the true pose
    pose: list[str]  # (3,) components of the pose
    explained: Estimate  # (V, 2, 3) R² inside and outside the rotations of training
    ranges: list[str]  # (2,) inside and outside the rotations of training
    maps: list[str]  # (K,) names of maps
    relevance: Estimate  # (K,) AUROC of a map for the whole against distractors
    viewpoint: Estimate  # (2,) accuracy inside and outside the rotations of training
    by_angle: Estimate  # (B,) accuracy by the angle of the whole
    bins: list[str]  # (B,)
    example_image: np.ndarray  # (1, 64, 64) uint8, of two wholes
    example_true: np.ndarray  # (rows, columns) index of the whole; -1: none, or a distractor
    example_assigned: np.ndarray  # (rows, columns) whole by couplings; 2: not the true one
    left_out: list[str]
    distance: str  # "near" or "far"
    n: int
    dataset: str
    rotation: int = 30  # degrees, of training

    axes = {
        "assignment": ("scored", "subsets"),
        **dict.fromkeys(("follows", "change"), ("pairs", "iterations")),
        "rotated": ("answers", "angles_deg"),
        **dict.fromkeys(("accuracy", "agreement"), ("distances_px",)),
        "explained": ("vectors", "ranges", "pose"),
        "relevance": ("maps",),
        "viewpoint": ("ranges",),
        "by_angle": ("bins",),
    }
    formats = {
        **dict.fromkeys(("follows", "rotated", "accuracy", "viewpoint", "by_angle"), ".1%"),
        **dict.fromkeys(("assignment", "explained", "relevance", "agreement", "change"), ".2f"),
    }
    titles = {
        "assignment": "AUROC for the whole of a position",
        "follows": "couplings follow the unseen part",
        "relevance": "AUROC of the whole against distractors",
        "viewpoint": "accuracy",
        "by_angle": "accuracy by angle",
    }
    over_runs = {
        **dict.fromkeys(("assignment", "follows", "rotated", "accuracy"), within_one),
        **dict.fromkeys(("relevance", "viewpoint", "by_angle"), within_one),
        "explained": at_most_one, "unequal": mean,
    }  # fmt: skip


class Binding(Analysis):
    """Assignment, context, geometry, pose and relevance, against the truth."""

    Result = Result
    how = "{distance} parts"
    needs = ("couplings", "votes", "poses", "grid", "interventions")
    dataset = "assemblies"
    usual_n = 300
    figure_set = None  # other data sets have no ground truth of wholes
    headline = ("assignment", "follows", "viewpoint")
    examples = "capsviz binding  # about 1 min"

    def measure(
        self,
        inputs,
        n,
        *,
        progress=iter,
        distance: Annotated[
            Literal["near", "far"] | None,
            "Distance of the parts of a whole: 11 or 22 px.",
            Default("as in training"),
        ] = None,
        distractors: Annotated[int, Range(1, 6), "Parts that belong to no whole."] = 1,
        seed: Seed = 0,
    ):
        """Score a network on n images of one whole and n of two wholes, drawn from a seed.

        Raises ValueError for networks for other images or classes, or without positions.
        """
        from capsviz.analyses.binding.measure import evaluate

        trained = inputs.model.card.get("dataset", {}).get("options", {})
        options = {"parts": trained.get("parts", 2), "rotation": trained.get("rotation", 30)}
        options |= {"distance": distance or trained.get("distance", "near")}
        options |= {"distractors": distractors, "jitter": trained.get("jitter", 0.5)}
        found = evaluate(inputs.model, n, options, seed, progress)
        return Result(**found, rotation=options["rotation"])

    def verdict(self, result) -> str:
        from capsviz.analyses.binding.measure import ALONE, COUPLING

        own, alone = (result.assignment[result.scored.index(k), 0] for k in (COUPLING, ALONE))
        unseen, free = result.follows[0, -1], result.follows[1, -1]
        return " ".join([
            shown(own.low > 0.5, "couplings assign positions to their whole"),
            shown(own.low > alone.high, "they do so better than a probe of each position"),
            shown(unseen.low > free.high, "couplings follow a part that the position does not see "
                  "more often than those of distractors do"),
        ])  # fmt: skip

    def heading(self, result, part="") -> str:
        if part == "geometry":  # the numbers of images differ: they are in the caption
            return f"images of {result.dataset}; bars and bands: 95 %"
        n = result.relevance.n if part == "relevance" else result.n
        return f"{n:,} images of {result.dataset}; bars and bands: 95 %"

    def stem(self, base, result) -> str:
        return f"{base}-{result.distance}"
