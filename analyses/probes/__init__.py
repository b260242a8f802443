"""Which of slant, width, thickness and position does a pose encode? Probes, and paths."""

from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analyses.probes.dci import LEAST
from capsviz.analysis import Analysis, Default, Fill, Flag, Range, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import at_most_one, mean, within_one
from capsviz.statistics.words import sentence, shown, untrained_of

FIT = 500  # training images of each class to fit a probe on


class Result(NamedTuple):
    """Two images, and T images on the path between their poses, both ends included."""

    images: np.ndarray  # (2, C, H, W) uint8
    labels: list[int | None]  # (2,) true classes, None: unknown
    capsule: int  # the class whose pose is changed: the first image's predicted class
    t: np.ndarray  # (T,) from 0 to 1
    path: np.ndarray  # (T, C, H, W) uint8, decoded from (1 - t) v_a + t v_b
    fade: np.ndarray  # (T, C, H, W) uint8, (1 - t) first + t last of the path
    path_activations: np.ndarray  # (T, J) of the path's images, encoded again
    fade_activations: np.ndarray  # (T, J) of the cross-fade's images
    activations: np.ndarray  # (2, J) of the two images
    classes: list[str]
    score: str  # kind of activations: "capsule length" or "activation"
    other_index: int | None = None  # index of the second image within its class


class Path(Analysis):
    """The straight path between the poses of two images, and a cross-fade."""

    Result = Result
    needs = ("poses", "decode")
    examples = "capsviz probes --digit 2 --other-index 5  # 10 s"

    def measure(
        self, network, *, picture, inputs, classes,
        other_index: Annotated[
            int | None,
            Flag("--other-index", metavar="K"),
            Default("the one after --index"),
            "Which image of the class the path leads to.",
        ] = None,
    ):  # fmt: skip
        from capsviz.analyses.probes.measure import path_between
        from capsviz.inputs.samples import beside, class_of

        label = class_of(inputs, picture)
        if other_index is None:
            other_index = _next_index(inputs, picture)
        images = beside(inputs, picture, label, other_index, "another one (--other-index)")
        return Result(
            **path_between(network, images), labels=[picture.label, label], classes=list(classes),
            other_index=other_index,
        )  # fmt: skip

    def left_out(self, inputs):
        from capsviz.tracing.needs import missing

        lacks = missing(inputs.model, self.needs)
        return f"the network has no {lacks[0]}" if lacks else ""

    def stem(self, base, result):
        return f"{base}-to-{result.other_index}"

    def verdict(self, result) -> str:
        ways = (result.path_activations, result.fade_activations)
        path, fade = (int((one.argmax(1) == result.capsule).sum()) for one in ways)
        return (
            f"{path} of {len(result.t)} images along the path are predicted as "
            f"{result.classes[result.capsule]}, and {fade} along the cross-fade of its ends."
        )


def _next_index(inputs, picture) -> int:
    """Return the index of the next image of the picture's class; after the last, 0."""
    if picture.label is None:
        return 0
    index = int(picture.name.rpartition("-")[2]) + 1
    return index if index < int((inputs.dataset.labels == picture.label).sum()) else 0


class Statistics(NamedTuple):
    """S kinds of vectors probed for M measures; intervals are 95 %.

    Differences are paired, minus the first kind. Fields from `returns` on are None without a
    decoder.
    """

    measures: list[str]  # (M,) names with units
    sources: list[str]  # (S,) names, the network's pose first
    dimensions: list[int]  # (S,) length of a vector
    r2: Estimate  # (S, M) on test images
    control: Estimate  # (S, M) R2 of the control task
    selectivity: Estimate  # (S, M) r2 - max(control, 0)
    informed: Estimate  # (S,) mean of r2 over measures
    codes: list[str]  # (S + 1,) sources; the second is the first one rotated at random
    disentanglement: Estimate  # (S + 1,) mean over classes
    completeness: Estimate  # (S + 1,)
    spread: np.ndarray  # (M,) standard deviation of a measure within a class, in its unit
    n: int  # test images
    fitted: int  # images that probes are fitted on
    fit_of: str  # source of these images
    probed: int  # classes that are predicted often enough to be probed
    shift_px: int
    seeds: int  # untrained networks of each kind, each probed on all images
    dataset: str
    notes: list[str]
    seconds: float
    returns: list[str] | None = None  # (3,) encoded images: the reconstruction, and its controls
    cycle: Estimate | None = None  # (3,) R2 of the pose within its class
    cycle_predicted: Estimate | None = None  # (3,) share predicted as the same class
    t: np.ndarray | None = None  # (T,) steps of the path, 0 to 1
    path_predicted: Estimate | None = None  # (2, T) share predicted as the class: path, cross-fade
    path_activation: Estimate | None = None  # (2, T) mean activation of the class
    path_distance: Estimate | None = None  # (2, T) to the nearest training image, rms grey value
    couples: int = 0  # pairs of images
    fill: str = "black"  # see `transforms.Fill`

    axes = {
        **dict.fromkeys(("r2", "control", "selectivity"), ("sources", "measures")),
        "informed": ("sources",),
        **dict.fromkeys(("disentanglement", "completeness"), ("codes",)),
        **dict.fromkeys(("cycle", "cycle_predicted"), ("returns",)),
        **dict.fromkeys(
            ("path_predicted", "path_activation", "path_distance"), (("path", "cross-fade"), "t")
        ),
    }
    titles = {
        "r2": "R²",
        "control": "R² of the control task",
        "informed": "mean R²",
        "cycle": "R² of the pose, encoded again",
        "cycle_predicted": "same class, encoded again",
        "path_predicted": "predicted as their class",
        "path_activation": "activation of the class",
        "path_distance": "distance to training images",
    }
    formats = {
        **dict.fromkeys(axes, ".2f"),
        "cycle_predicted": ".1%",
        "path_predicted": ".1%",
        "path_distance": ".3f",
    }
    over_runs = {
        "spread": mean,
        "seconds": sum,
        **dict.fromkeys(("n", "fitted", "probed", "couples"), min),
        **dict.fromkeys(("r2", "control", "selectivity", "informed", "cycle"), at_most_one),
        **dict.fromkeys(("disentanglement", "completeness", "cycle_predicted"), within_one),
        **dict.fromkeys(("path_predicted", "path_activation"), within_one),
    }


class Probes(Analysis):
    """Linear probes of N poses; if there is a decoder, also cycles and paths."""

    Result = Statistics
    how = "bootstrap; for DCI over classes, for paths over pairs"
    panels = "draw:MANY"
    examples = "capsviz probes --n 1000  # about 2 min"
    needs = ("poses",)  # without a decoder, cycle and paths are left out
    slow = True
    figure_set = {"fit": lambda n: min(FIT // 2, max(LEAST, n // 4))}  # quick for small sets
    headline = ("r2", "informed", "disentanglement", "completeness", "cycle")

    def measure(
        self, network, images, *, dataset, inputs, progress=iter,
        fit: Annotated[
            int,
            Range(LEAST),
            Flag("--fit", metavar="N"),
            "Training images per class to fit a probe on.",
        ] = FIT,
        shift_px: Annotated[int, Range(0), "Largest shift of images, pixels."] = 2,
        seeds: Annotated[
            int,
            Range(0),
            Flag("--seeds", metavar="K"),
            "Number of untrained networks per preset.",
        ] = 3,
        fill: Fill = "black",
        seed: Seed = 0,
    ) -> Statistics:  # fmt: skip
        """Probe images (N, C, H, W), also with the data set's networks without capsules."""
        from capsviz.analyses.probes.measure import evaluate
        from capsviz.inputs.opening import with_baselines
        from capsviz.inputs.samples import training_images

        side = min(images.shape[2:])
        if shift_px >= side:
            raise ValueError(f"expected a shift of 0 to {side - 1} px, got --shift-px {shift_px}")
        fields = evaluate(
            network, images, name=inputs.name,
            baselines={one.name: one.model for one in with_baselines(inputs)[1:]}, fit=fit,
            shift_px=shift_px, seeds=seeds, seed=seed, fill=fill, progress=progress,
            **training_images(inputs, fit),
        )  # fmt: skip
        return Statistics(**fields, dataset=dataset)

    def verdict(self, result) -> str:
        parts = []
        if untrained := untrained_of(result.sources):
            less = result.informed.difference[untrained]
            claim = "the pose encodes the measures better, on average, than in untrained networks"
            parts.append(shown((less.high < 0).all(), claim))
        if result.disentanglement.difference is not None:  # there are several classes
            less = result.disentanglement.difference[1]
            claim = "its axes are more disentangled than axes drawn at random"
            parts.append(shown(less.high < 0, claim))
        return " ".join([*parts, *map(sentence, result.notes)])
