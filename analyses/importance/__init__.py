"""Which capsule types, positions and pose dimensions does the prediction need?"""

from typing import NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import mean, within_one
from capsviz.statistics.words import part_name, word_for

OTHERS = 200  # images that importance is ranked on, at most
PUBLISHED = 11  # levels of the published dictionaries
LABELS = {  # plural name of each kind of group
    "types": "capsule types",
    "positions": "positions",
    "children": "groups of capsules",
    "dimensions": "pose dimensions",
}
# Their order differs between training runs; that of positions does not.
UNORDERED = dict.fromkeys(("types", "dimensions", "children"))


class Result(NamedTuple):
    """Activation of one image without each of G groups, by kind of group (a key of `LABELS`)."""

    image: np.ndarray  # (C, H, W) uint8
    label: int | None  # true class, if it is known
    watched: int  # class whose activation is measured: the true one, or else the predicted one
    activations: np.ndarray  # (J,) with all children
    change: dict[str, np.ndarray]  # (G,) change of that activation without each group
    control: dict[str, np.ndarray]  # (2,) 5 % and 95 % quantiles of the change when random
    # children are removed, with the norm of a random group
    grid: tuple[int, int, int] | None  # types, rows, columns; None: no positions
    how: str  # whether the remaining children are routed again
    extent_px: list[float] | None  # left, right, bottom, top of the positions on the image
    classes: list[str]


class OneImage(Analysis):
    """Change of one image's activation without each type, position and dimension."""

    Result = Result
    needs = ("couplings", "interventions")
    examples = "capsviz importance --digit 4  # 10 s"

    def measure(self, network, image, label=None, *, classes, seed: Seed = 0):
        """Remove each group of capsules; as a control, random capsules with the norm of a group."""
        from capsviz.analyses.importance.measure import of_one_image

        fields = of_one_image(network, image.cpu(), label, seed)
        return Result(**fields, label=label, classes=list(classes))

    def verdict(self, result) -> str:
        name = result.classes[result.watched]
        lines = [f"The activation of class {name} is {result.activations[result.watched]:.3f}."]
        for kind, change in result.change.items():
            beyond, worst = int((change < result.control[kind][0]).sum()), int(change.argmin())
            most = f"{part_name(kind, worst, result.grid)} most ({change[worst]:+.3f})"
            lines.append(
                f"{beyond} of {len(change)} {LABELS[kind]} matter more than 95 % of random "
                f"removals (each of the norm of a random group); {most}."
            )
        return "\n".join(lines)


class Statistics(NamedTuple):
    """N images without each of G groups, by kind of group (`kinds`); intervals are 95 %."""

    kinds: list[str]
    base: Estimate  # (2,) true activation and accuracy with all children
    activation_change: dict[str, Estimate]  # (G,) without each group
    control_activation_change: dict[str, Estimate]  # () without random children that have the
    # norm of a group, drawn at random for each image
    orders: list[str]  # (3,) random, least important first, most important first
    removed: dict[str, np.ndarray]  # (S,) groups removed at each step
    curve_accuracy: dict[str, Estimate]  # (3, S)
    area_accuracy: dict[str, Estimate]  # (3,) mean of each curve; difference: minus the random one
    levels: list[int]  # (K,) numbers of levels that couplings are rounded to
    entropy_bits: Estimate  # (K,) entropy of a class's dictionary, mean over classes
    keys: np.ndarray  # (K,) distinct trees of a class, mean over classes
    child_bits: np.ndarray  # (K,) entropy of a single child's rounded coupling, mean
    bound_bits: float  # log2 of the number of images of a class, mean over classes
    apart_bits: Estimate  # (K,) entropy with each child shuffled independently within a class
    untrained_bits: Estimate | None  # (K,) untrained network; None: it cannot be rebuilt
    rounded_accuracy: Estimate  # (1 + K,) own couplings, then rounded; difference: minus the first
    grid: tuple[int, int, int] | None  # types, rows, columns
    how: str  # whether the remaining children are routed again
    others: str  # images that importance is ranked on
    classes: list[str]
    n: int
    dataset: str
    first: dict[str, int]  # most important group on the other images; for one run only
    first_activation_change: dict[str, Estimate]  # (2,) without that group, without random
    # children of its norm; difference: minus the first

    axes = {
        "base": (("true activation", "accuracy"),),
        "curve_accuracy": ("orders", "removed"),
        "rounded_accuracy": ("rounded",),
        "area_accuracy": ("orders",),
        **dict.fromkeys(("entropy_bits", "apart_bits", "untrained_bits"), ("levels",)),
        "first_activation_change": (("most important group", "random ones of its norm"),),
    }
    rounded = property(lambda self: ["own couplings", *map(str, self.levels)])
    titles = {"base": "all groups", "area_accuracy": "mean accuracy of the curve",
              "first_activation_change": "change of the true activation"}  # fmt: skip
    formats = dict.fromkeys(("area_accuracy", "rounded_accuracy"), ".1%")
    over_runs = {
        **dict.fromkeys(("base", "curve_accuracy"), within_one),
        **dict.fromkeys(("area_accuracy", "rounded_accuracy"), within_one),
        "activation_change": UNORDERED,
        **dict.fromkeys(("keys", "child_bits", "bound_bits"), mean),
        "first": None,
    }


class OverImages(Analysis):
    """Importance of capsule types, positions and pose dimensions over many images."""

    Result = Statistics
    panels = "draw:MANY"
    needs = ("couplings", "interventions")
    any_input = True
    examples = "capsviz importance --n 200  # about 15 s"
    slow = True
    headline = ("base", "first_activation_change", "area_accuracy")

    def measure(
        self, network, images, labels, *, classes, dataset, inputs, progress=iter, seed: Seed = 0
    ) -> Statistics:
        """Remove groups of capsules, ranked by their importance on validation images."""
        from capsviz.analyses.importance.measure import estimates
        from capsviz.inputs.samples import other_images

        others = other_images(inputs, OTHERS)
        fields = estimates(network, images.cpu(), labels.cpu(), others, seed, progress)
        return Statistics(**fields, classes=list(classes), n=len(images), dataset=dataset)

    def verdict(self, result) -> str:
        lines = []
        for kind in result.kinds:
            _, least, most = result.area_accuracy[kind].difference
            best = ""
            if result.first_activation_change[kind].runs is None:
                best = f" (most important: {part_name(kind, result.first[kind], result.grid)})"
            first = word_for(least, "less", "more", "not clearly less")
            last = word_for(most, "less", "more", "not clearly more")
            lines.append(
                f"{LABELS[kind].capitalize()}{best}: removing the least important first costs "
                f"{first} accuracy than a random order; removing the most important first, {last}."
            )
        k = result.levels.index(PUBLISHED)
        lines.append(
            f"Rounded to {PUBLISHED} levels, the couplings of a class form {result.keys[k]:.1f} "
            "different trees on average."
        )
        if result.entropy_bits.value[k] > 0.99 * result.bound_bits:
            lines.append("Almost every image has its own tree, so the entropy only counts images.")
        return "\n".join(lines)
