"""What routing does over many images: its statistics, with control couplings."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Iterations, Range, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import mean, within_one
from capsviz.statistics.words import number

NEAR_UNIFORM = 0.9  # of all parents effective, and more: the couplings lie near 1/J
CHOOSING = 0.5  # of all parents effective, and fewer: the couplings choose
LITTLE = 0.01  # of the predictions changed, and less: iterations hardly change them
MOST = 6  # iterations that are tried, or the network's own if there are more
NO_MAP = "There are no maps, for these capsules do not lie at several positions of a grid"


class Statistics(NamedTuple):
    """N test images, r = 1 ... M iterations, R of them the network's own; intervals are 95 %.

    Intervals of proportions are Wilson's, those of means over images by Student's t, those
    of gains normal approximations for paired images (`statistics.intervals.paired_interval`). A
    routing of one pass has M = R = 1. K controls.
    """

    accuracy: Estimate  # (M,) with r = 1 ... M iterations; difference: less that of r = 1, paired
    changed: Estimate  # (M,) share of predictions that differ from those of r = 1
    to_right: np.ndarray  # (M,) images that r = 1 gets wrong and r gets right
    to_wrong: np.ndarray  # (M,) the reverse
    true_activation: Estimate  # (M,) mean activation of the true class, as its length
    controls: list[str]  # (K,) uniform, random, shuffled, matched
    control_accuracy: Estimate  # (K,); difference: less that of r = 1, paired
    control_changed: Estimate  # (K,) against r = 1
    control_true_activation: Estimate  # (K,)
    entropy_nats: Estimate  # (R,) mean over capsules and images
    effective_parents: Estimate  # (R,) mean of exp(H_i)
    polarisation: Estimate  # (R,) mean of max_j c_ij
    agreement: Estimate  # (R, 2) with the true class, and the mean of the others
    control_effective_parents: Estimate  # (K,)
    control_polarisation: Estimate  # (K,)
    control_agreement: Estimate  # (K, 2)
    true_classes: np.ndarray  # (C,) those among the images
    images_of_class: np.ndarray  # (C,)
    coupling: Estimate  # (C, J) mean coupling of a true class's images, last iteration
    type_coupling: Estimate | None  # (C, types, J) the same for each type; None: not recorded
    child_activation: Estimate  # (I,) mean activation of each capsule, its norm where it is one
    dead_norm: float
    classes: list[str]
    n: int
    dataset: str
    coupling_sd: Estimate  # (R,) of couplings about uniform ones, mean over images
    control_sd: Estimate  # (K,)
    largest_activation: np.ndarray  # (I,) of each capsule, over the images
    dead: int  # capsules whose largest activation is below `dead_norm`
    prefix: bool  # pass r of M is the result of r iterations; else each r was run by itself
    tied: np.ndarray | None = None  # (M + K,) images in which no class is ahead of all others

    axes = dict.fromkeys(
        ("accuracy", "changed", "true_activation", "entropy_nats", "effective_parents",
         "polarisation", "coupling_sd"), ("iteration {1}",),
    ) | {"agreement": ("iteration {1}", ("true class", "other classes"))}  # fmt: skip
    formats = dict.fromkeys(
        ("accuracy", "control_accuracy", "changed", "control_changed"), ".2%"
    ) | dict.fromkeys(("coupling_sd", "control_sd"), ".4f")
    over_runs = (
        dict.fromkeys(("to_right", "to_wrong", "tied"), mean)
        | dict.fromkeys(("type_coupling", "child_activation", "largest_activation", "dead"))
        | dict.fromkeys(
            ("true_activation", "control_true_activation", "polarisation", "control_polarisation",
             "coupling"), within_one,
        )
    )  # fmt: skip


class OverImages(Analysis):
    """What routing changes over a test set, and how it couples, with control couplings."""

    Result = Statistics
    needs = ("votes", "couplings", "poses", "interventions")
    examples = """
    capsviz routing --n 1000  # about 15 s
    """
    headline = ("accuracy", "control_accuracy", "effective_parents")

    def measure(
        self,
        network,
        images,
        labels,
        *,
        classes,
        dataset,
        progress=iter,
        iterations: Iterations = None,
        dead_norm: Annotated[
            float, Range(0), "A capsule is dead if its activation is below this in all images."
        ] = 0.05,
        seed: Seed = 0,
    ) -> Statistics:
        """Route the images by r = 1 ... M iterations, and with control couplings.

        The controls are other draws for each image.

        Raises
        ------
        ValueError  for fewer than 2 images, or iterations that the network does not take.
        """
        from capsviz.analyses.routing.survey import Survey
        from capsviz.statistics.intervals import require_two
        from capsviz.tracing import CHUNK_IMAGES, INTERVENTIONS

        images, labels = images.cpu(), labels.cpu()
        n = len(images)
        require_two(n)
        survey = Survey(network, images, iterations=iterations, most=MOST, seed=seed)
        for start in progress(range(0, n, CHUNK_IMAGES)):
            part = slice(start, start + CHUNK_IMAGES)
            survey.add(images[part], labels[part])
        fields = {k: v for k, v in survey.fields().items() if k in Statistics._fields}
        return Statistics(
            **fields,
            dead_norm=dead_norm,
            dead=int((fields["largest_activation"] < dead_norm).sum()),
            classes=list(classes),
            n=n,
            dataset=dataset,
        )

    def draw(self, result, *, width=7.16, part=""):
        """Draw what routing changes and how it couples, or couplings by true class."""
        from capsviz.analyses.routing import draw

        return {"": draw.panels, "couplings": draw.couplings}[part](result, width)

    def parts(self, result) -> tuple[str, ...]:
        """Return the panels, and the couplings."""
        return ("", "couplings")

    def verdict(self, result) -> str:
        """Say whether iterations change predictions, how couplings spread, and what is dead."""
        M, R, J = len(result.accuracy), len(result.entropy_nats), len(result.classes)
        uniform = not result.coupling_sd.value[-1].any()
        little = number(LITTLE, ".0%")
        low, high = result.changed.ci95[R - 1]
        if M == 1:
            text = "The network routes in one pass, so there is no curve over iterations"
        elif R == 1:
            text = "The network routes in one iteration, with uniform couplings"
        elif high <= LITTLE:
            text = f"Routing iterations change few predictions (at most {little})"
        elif low > LITTLE:
            text = f"Routing iterations change some predictions (more than {little})"
        else:
            text = f"There are too few images to say whether iterations change more than {little}"
        effective = float(result.effective_parents.value[-1])
        text += f".\n{spread(effective, J, uniform=uniform)}"
        if result.tied is not None:
            names = ["its own", *result.controls]
            for name, count in zip(
                names, result.tied[[R - 1, *range(M, M + len(names) - 1)]], strict=True
            ):
                if count:
                    share = number(count / result.n, ".1%")
                    text += f"\nWith {name} couplings no class is ahead of all others in {share}."
        return f"{text}\n{result.dead} of {len(result.largest_activation):,} lower-level capsules are dead."

    def caption(self, result, part="") -> str:
        """Return what the picture shows, and what its bars are."""
        if part == "couplings":
            return (
                "Mean and largest activation of each lower-level capsule, and mean couplings of "
                "the images of each true class: of all capsules to every class, and of each "
                "capsule type to the true class. Couplings share one colour scale, with 1/J in "
                "its middle."
            )
        return (
            f"Routing of {result.n:,} {result.dataset} test images, by the number of iterations "
            "and with control couplings. Controls are uniform couplings, random ones, the image's "
            "own shuffled among its capsules, and random ones of equal standard deviation. "
            "Bars and bands: 95 % intervals over images."
        )


def spread(effective: float, parents: int, *, uniform=False) -> str:
    """Return a sentence on couplings by their mean number of effective parents."""
    if uniform:
        return "All couplings are uniform: no capsule favours any class."
    many, few = number(NEAR_UNIFORM, ".0%"), number(CHOOSING, ".0%")
    if effective >= NEAR_UNIFORM * parents:
        return (
            f"Couplings are close to uniform ({many} of all parents or more are effective), which "
            "does not say that they have little effect: see `capsviz transplant`."
        )
    if effective >= CHOOSING * parents:
        return f"Couplings favour some parents ({few} to {many} of all are effective)."
    return f"Couplings select few parents (fewer than {few} of all are effective)."
