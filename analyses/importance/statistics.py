"""Importance over many images: groups of capsules, pruning curves, dictionaries of couplings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import mean, within_one

OTHERS = 200  # images that importance is ranked on, at most
PUBLISHED = 11  # levels of the published dictionaries
LABELS = {  # of the kinds of groups
    "types": "capsule types",
    "places": "positions",
    "children": "groups of capsules",
    "dimensions": "pose dimensions",
}
# These are in another order in each training run; positions are not.
UNORDERED = dict.fromkeys(("types", "dimensions", "children"))


class Statistics(NamedTuple):
    """N images; by kind of group, G groups of it; intervals are 95 %."""

    kinds: list[str]
    base: Estimate  # (2,) true activation and accuracy with all children
    activation_change: dict[str, Estimate]  # (G,) without each group
    accuracy_change: dict[str, Estimate]  # (G,)
    control_activation_change: dict[str, Estimate]  # () without random ones of equal norm
    control_accuracy_change: dict[str, Estimate]  # ()
    rank_agreement: dict[str, float]  # Spearman's, with the importance on other images
    orders: list[str]  # (3,) random, least important first, most important first
    removed: dict[str, np.ndarray]  # (S,) groups removed at each step
    curve_accuracy: dict[str, Estimate]  # (3, S)
    curve_activation: dict[str, Estimate]  # (3, S)
    area_accuracy: dict[str, Estimate]  # (3,) mean height; difference: less that at random
    area_activation: dict[str, Estimate]  # (3,)
    levels: list[int]  # (K,) that couplings are rounded to
    entropy_bits: Estimate  # (K,) of the dictionary of a class, mean over classes
    keys: np.ndarray  # (K,) distinct trees of a class, mean over classes
    child_bits: np.ndarray  # (K,) entropy of a single child's rounded coupling, mean
    bound_bits: float  # log2 of the images of a class, mean
    apart_bits: Estimate  # (K,) children varied apart from each other
    fresh_bits: Estimate | None  # (K,) untrained network; None: it cannot be built anew
    rounded_accuracy: Estimate  # (1 + K,) own couplings, then rounded; difference: less the first
    grid: tuple[int, int, int] | None  # types, rows, columns
    how: str  # what the children that are left do
    others: str  # images that importance is ranked on
    classes: list[str]
    n: int
    dataset: str
    first: dict[str, int] | None = None  # group that ranks first on the other images; of one run
    first_activation_change: dict[str, Estimate] | None = None  # (2,) without it, without random
    # ones of its norm; differences are to the first

    axes = {
        "base": (("true activation", "accuracy"),),
        "curve_accuracy": ("orders", None),
        "curve_activation": ("orders", None),
        **dict.fromkeys(("area_accuracy", "area_activation"), ("orders",)),
        **dict.fromkeys(("entropy_bits", "apart_bits", "fresh_bits"), ("levels",)),
        "first_activation_change": (("most important group", "random ones of its norm"),),
    }
    titles = {"base": "all groups", "area_accuracy": "mean accuracy of the curve",
              "first_activation_change": "change of the true activation"}  # fmt: skip
    formats = dict.fromkeys(("accuracy_change", "area_accuracy", "rounded_accuracy"), ".1%")
    over_runs = {
        **dict.fromkeys(
            ("base", "curve_accuracy", "area_accuracy", "rounded_accuracy"), within_one
        ),
        **dict.fromkeys(("activation_change", "accuracy_change"), UNORDERED),
        **dict.fromkeys(("rank_agreement", "keys", "child_bits", "bound_bits"), mean),
        "first": None,
    }


class OverImages(Analysis):
    """Importance of capsule types, positions and pose dimensions over many images."""

    Result = Statistics
    needs = ("couplings", "interventions")
    examples = """
    capsviz importance --n 200  # about 15 s
    """
    slow = True
    headline = ("base", "first_activation_change", "area_accuracy")

    def measure(
        self, network, images, labels, *, classes, dataset, inputs, progress=iter, seed: Seed = 0
    ) -> Statistics:
        """Leave groups of capsules out, in the order of their importance on validation images.

        The seed is of random removals and orders, the untrained network and the bootstrap.

        Raises
        ------
        ValueError  for fewer than 2 images, or a network whose capsules cannot be left out.
        """
        from capsviz.analyses.importance.estimates import estimates
        from capsviz.inputs.samples import other_images

        others = other_images(inputs, OTHERS)
        fields = estimates(network, images.cpu(), labels.cpu(), others, seed, progress)
        return Statistics(**fields, classes=list(classes), n=len(images), dataset=dataset)

    def draw(self, result, *, width=7.16, part=""):
        """Draw importance and pruning curves, or dictionaries of couplings."""
        from capsviz.analyses.importance import draw

        return {"": draw.curves, "dictionaries": draw.dictionaries}[part](result, width)

    def parts(self, result) -> tuple[str, ...]:
        """Return the curves, and the dictionaries."""
        return ("", "dictionaries")

    def verdict(self, result) -> str:
        """Say for each kind whether importance orders it, and how many trees there are."""
        from capsviz.analyses.importance.image import group

        lines = []
        for kind in result.kinds:
            _, least, most = result.area_accuracy[kind].difference
            best = ""
            if result.first is not None and result.first_activation_change[kind].runs is None:
                best = f" (most important: {group(result, kind, result.first[kind])})"
            lines.append(f"{LABELS[kind].capitalize()}{best}: {ranking(least, most)}.")
        k = result.levels.index(PUBLISHED)
        text = (
            f"Rounded to {PUBLISHED} levels, the couplings of a class form {result.keys[k]:.1f} "
            "different trees on average"
        )
        if result.entropy_bits.value[k] > 0.99 * result.bound_bits:
            text += "; almost every image has its own, so the entropy only counts the images"
        elif result.keys[k] < 1.5:
            text += "; the levels are coarser than the differences between couplings"
        return "\n".join([*lines, f"{text}."])

    def caption(self, result, part="") -> str:
        """Return what the picture shows, and what its bars are."""
        if part == "dictionaries":
            return (
                "Entropy of the dictionaries of rounded couplings by the number of levels, and "
                "accuracy with the rounded couplings. Bands: 95 % intervals over images."
            )
        return (
            "Change of the true class's activation without each group of lower-level capsules, or "
            "dimension of their poses, sorted; and accuracy as groups are removed in the order of "
            f"their importance on {result.others}. Dashed lines and diamonds are random removals "
            "of equal norm. Bars and bands: 95 % intervals over images."
        )


def ranking(least: Estimate, most: Estimate) -> str:
    """Say whether importance orders the groups, by differences to a random order of removal.

    Parameters
    ----------
    least, most  of the mean accuracy, if the least or the most important go first.
    """
    right = (float(least.low) > 0, float(most.high) < 0)
    wrong = (float(least.high) < 0, float(most.low) > 0)
    if any(wrong):
        end = " at one end of the order" if any(right) or not all(wrong) else ""
        return f"importance misleads{end}, it is worse than a random order"
    if all(right):
        return "importance predicts which can be removed"
    if any(right):
        return "importance predicts only one end of the order"
    return "no order is better than a random one"
