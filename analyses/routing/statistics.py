"""The test-set side of `routing`: its statistics, how they are made, and what they say."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsviz.statistics.estimate import Estimate
from capsviz.statistics.words import number, tied

NEAR_UNIFORM = 0.9  # of all parents effective, and more: the couplings lie near 1/J
CHOOSING = 0.5  # of all parents effective, and fewer: the couplings choose
LITTLE = 0.01  # of the predictions changed, and less: iterations hardly change them
NO_MAP = "no maps: these capsules do not lie at several places of a grid"
SIZE = (
    "a statement of their size and not of their effect, for small shifts of many capsules add up: "
    "`capsviz transplant` measures which class they carry"
)


BY_ROUND = ("accuracy", "changed", "true_activation", "entropy_nats", "effective_parents",
            "polarisation", "coupling_sd")  # fmt: skip
AXES = dict.fromkeys(BY_ROUND, (None,))  # numbered; controls have their names


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
    coupling_sd: Estimate | None = None  # (R,) of couplings about even ones, mean over images
    control_sd: Estimate | None = None  # (K,)
    largest_activation: np.ndarray | None = None  # (I,) of each capsule, over the images
    dead: int | None = None  # capsules whose largest activation is below `dead_norm`
    tied: np.ndarray | None = None  # (M + K,) images in which no class is ahead of all others
    prefix: bool = True  # pass r of M is the result of r iterations; else each r was run by itself


def evaluate(
    model,
    images,
    labels,
    *,
    classes,
    dataset,
    iterations=None,
    most=6,
    dead_norm=0.05,
    seed=0,
    progress=iter,
) -> Statistics:
    """What routing does over N images (N, C, H, W), N at least 2, with controls.

    Parameters
    ----------
    labels      (N,).
    classes     names of the classes.
    dataset     its name, for the record.
    iterations  R, of routing, instead of the network's own.
    most        M is the larger of this and R; a routing of one pass has M = 1.
    dead_norm   a capsule is dead if its activation is below this in all images.
    seed        of the controls, which are other draws for each image.
    progress    wraps the chunks of images, for a progress bar.

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
    survey = Survey(model, images, iterations=iterations, most=most, seed=seed)
    for start in progress(range(0, n, CHUNK_IMAGES)):
        part = slice(start, start + CHUNK_IMAGES)
        survey.add(images[part], labels[part])
    means = {
        name: mean.within_one if "polarisation" in name else mean.estimate
        for name, mean in survey.means.items()
    }
    counts, of_class, controls = survey.counts, survey.of_class, len(INTERVENTIONS)
    return Statistics(
        **survey.by_rounds(),
        to_right=counts["to_right"][:-controls],
        to_wrong=counts["to_wrong"][:-controls],
        controls=list(INTERVENTIONS),
        entropy_nats=means["entropy"],
        effective_parents=means["effective"],
        polarisation=means["polarisation"],
        agreement=means["agreement"],
        control_effective_parents=means["control_effective"],
        control_polarisation=means["control_polarisation"],
        control_agreement=means["control_agreement"],
        true_classes=np.array(sorted(of_class)),
        images_of_class=np.array([of_class[k]["all"].n for k in sorted(of_class)]),
        coupling=survey.by_class("all"),
        type_coupling=survey.by_class("types"),
        child_activation=means["child"],
        dead_norm=dead_norm,
        classes=list(classes),
        n=n,
        dataset=dataset,
        coupling_sd=means["sd"],
        control_sd=means["control_sd"],
        largest_activation=survey.largest.numpy(),
        dead=int((survey.largest < dead_norm).sum()),
        tied=counts["tied"],
        prefix=survey.prefix,
    )


def findings(result: Statistics) -> str:
    """What the numbers say; the words follow the thresholds at the top, and the interval."""
    M, R = len(result.accuracy), len(result.entropy_nats)
    J = len(result.classes)
    lines = []
    if R > 1:
        right, wrong = (f"{float(of[R - 1]):.3g}" for of in (result.to_right, result.to_wrong))
        lines.append(
            f"routing (r = {R} against r = 1) changes {result.changed[R - 1]:.2%} of the "
            f"predictions on {result.n} {result.dataset} images: {right} become right, {wrong} "
            f"wrong; {_effect(*result.changed.ci95[R - 1])}"
        )
    elif M > 1:
        lines.append("with one iteration couplings are uniform, and routing does nothing")
    else:
        uniform = ", and uniform couplings" if _are_even(result.coupling_sd) else ""
        lines.append(f"routing has one pass{uniform}: there is no curve over iterations")
    first, last = result.true_activation.value[[0, R - 1]]
    goes = f"; the true class's activation goes from {first:.3f} to {last:.3f}" if R > 1 else ""
    effective = result.effective_parents[-1]
    lines.append(
        f"a capsule has {effective:.3f} of {J} effective parents"
        f"{_sd(result.coupling_sd, -1)}: "
        f"{spread(float(effective.value), J, even=_are_even(result.coupling_sd))}{goes}"
    )
    ties = np.zeros(M + len(result.controls)) if result.tied is None else result.tied / result.n
    rows = [f"r = {r} {result.accuracy[r - 1]:.2%}{tied(ties[r - 1])}" for r in sorted({1, R})]
    if M == 1:
        rows = [f"own couplings {result.accuracy[0]:.2%}{tied(ties[0])}"]
    rows += [
        f"{name} {result.control_accuracy[k]:.2%}{tied(ties[M + k])}{_sd(result.control_sd, k)}"
        for k, name in enumerate(result.controls)
    ]
    gain = f"; r = {R} less r = 1 on the same images {result.accuracy.difference[R - 1]:+.2%}"
    lines.append(f"accuracy: {', '.join(rows)}{gain if R > 1 else ''}")
    if result.dead is not None:
        lines.append(
            f"dead capsules: {result.dead} of {len(result.largest_activation)} whose largest "
            f"activation is below {result.dead_norm:g}; the smallest of the largest is "
            f"{result.largest_activation.min():.3f}"
        )
    return "\n".join(lines)


def _sd(estimate: Estimate | None, k: int) -> str:
    """A standard deviation of couplings, where it was measured."""
    return "" if estimate is None else f" (sd about uniform {float(estimate.value[k]):.4f})"


def _are_even(sd: Estimate | None) -> bool:
    """Whether no coupling was measured to be other than even in the last iteration."""
    return sd is not None and not sd.value[-1].any()


def spread(effective: float, parents: int, *, even=False) -> str:
    """What a mean number of effective parents says of couplings, in words; of `even` ones alike."""
    if even:
        return "all couplings are even: no capsule favours any class"
    many, few = number(NEAR_UNIFORM, ".0%"), number(CHOOSING, ".0%")
    if effective >= NEAR_UNIFORM * parents:
        return f"couplings lie near uniform ({many} of all or more), {SIZE}"
    if effective >= CHOOSING * parents:
        return f"couplings lean ({few} to {many} of all)"
    return f"couplings choose (fewer than {few} of all)"


def _effect(low: float, high: float) -> str:
    little = number(LITTLE, ".0%")
    if high <= LITTLE:
        return f"iterations change few predictions here (at most {little})"
    if low > LITTLE:
        return f"iterations decide some predictions (more than {little} changed)"
    return f"too few images to say whether they change more than {little}"
