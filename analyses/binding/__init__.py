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
    subsets: list[str]  # (3,) positions that are scored
    assignment: Estimate  # (M, 3) AUROC for the whole of each position, in images of two wholes
    pairs: list[str]  # (G,) what is seen by the positions whose couplings are compared
    iterations: list[str]  # (R,)
    follows: Estimate  # (G, R) share of image pairs in which couplings follow the unseen part
    change: Estimate  # (G, R) by how much, in standard deviations over positions and images of the
    # coupling to one class less that to the other; NaN: of no network
    unequal: float  # largest difference of a capsule that sees equal pixels
    answers: list[str]  # (3,) the class, its partner, another
    angles_deg: list[int]  # (A,) that one part is rotated by
    rotated: Estimate  # (3, A) share of predictions
    distances_px: list[int]  # (D,) that one part is moved by
    accuracy: Estimate  # (D,)
    agreement: Estimate  # (D,) of the other part's votes with the class's pose
    vectors: list[str]  # (V,) what poses are predicted from
    pose: list[str]  # (3,)
    explained: Estimate  # (V, 2, 3) R² inside and outside the rotations of training
    ranges: list[str]  # (2,)
    maps: list[str]  # (K,)
    relevance: Estimate  # (K,) AUROC of a map for the whole against distractors
    viewpoint: Estimate  # (2,) accuracy inside and outside the rotations of training
    by_angle: Estimate  # (B,) accuracy by the angle of the whole
    bins: list[str]  # (B,)
    example_image: np.ndarray  # (1, 64, 64) uint8, of two wholes
    example_true: np.ndarray  # (rows, columns) whole; -1: none seen, or a distractor
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
    figure_set = None  # networks for other data have no truth to be scored by
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
        """Score a network on n images of one and n of two wholes, drawn from a seed.

        ValueError for networks of other images or classes, or without positions.
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
        if part == "geometry":  # of other numbers of images: see the caption
            return f"images of {result.dataset}; bars and bands: 95 %"
        n = result.relevance.n if part == "relevance" else result.n  # maps are of fewer images
        return f"{n:,} images of {result.dataset}; bars and bands: 95 %"

    def stem(self, base, result) -> str:
        return f"{base}-{result.distance}"
