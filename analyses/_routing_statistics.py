"""The test-set side of `routing`: its statistics, how they are made, and what they say."""

from __future__ import annotations

from math import inf, log
from typing import NamedTuple

import numpy as np

from analyses._words import number, with_interval

NEARLY_UNIFORM = 0.9  # of all parents effective, and more: the couplings hardly choose
CHOOSING = 0.5  # of all parents effective, and fewer: the couplings choose
LITTLE = 0.01  # of the predictions changed, and less: routing hardly matters


class Statistics(NamedTuple):
    """N test images, r = 1 ... M iterations, R of them the network's own; intervals are 95 %.

    Intervals of proportions are Wilson's, those of means over images normal approximations, those
    of gains normal approximations for paired images (`capsviz.intervals.paired_interval`).
    """

    accuracy: np.ndarray  # (M,) with r = 1 ... M iterations
    accuracy_ci95: np.ndarray  # (M, 2)
    gain: np.ndarray  # (M,) accuracy less that of r = 1, on the same images
    gain_ci95: np.ndarray  # (M, 2)
    changed: np.ndarray  # (M,) share of predictions that differ from those of r = 1
    changed_ci95: np.ndarray  # (M, 2)
    to_right: np.ndarray  # (M,) images that r = 1 gets wrong and r gets right
    to_wrong: np.ndarray  # (M,) the reverse
    controls: list[str]  # uniform, random
    control_accuracy: np.ndarray  # (2,)
    control_accuracy_ci95: np.ndarray  # (2, 2)
    control_gain: np.ndarray  # (2,) against r = 1
    control_gain_ci95: np.ndarray  # (2, 2)
    control_changed: np.ndarray  # (2,) against r = 1
    control_changed_ci95: np.ndarray  # (2, 2)
    true_length: np.ndarray  # (M,) mean length of the true class
    true_length_ci95: np.ndarray  # (M, 2)
    control_true_length: np.ndarray  # (2,)
    control_true_length_ci95: np.ndarray  # (2, 2)
    entropy_nats: np.ndarray  # (R,) mean over capsules and images
    entropy_nats_ci95: np.ndarray  # (R, 2)
    effective_parents: np.ndarray  # (R,) mean of exp(H_i)
    effective_parents_ci95: np.ndarray  # (R, 2)
    random_effective_parents: np.ndarray  # (1,) of the random control
    random_effective_parents_ci95: np.ndarray  # (1, 2)
    polarisation: np.ndarray  # (R,) mean of max_j c_ij
    polarisation_ci95: np.ndarray  # (R, 2)
    random_polarisation: np.ndarray  # (1,)
    random_polarisation_ci95: np.ndarray  # (1, 2)
    agreement: np.ndarray  # (R, 2) with the true class, and the mean of the others
    agreement_ci95: np.ndarray  # (R, 2, 2)
    random_agreement: np.ndarray  # (1, 2)
    random_agreement_ci95: np.ndarray  # (1, 2, 2)
    true_classes: np.ndarray  # (K,) those among the images
    images_of_class: np.ndarray  # (K,)
    coupling: np.ndarray  # (K, J) mean coupling of a true class's images, last iteration
    coupling_ci95: np.ndarray  # (K, J, 2)
    type_coupling: np.ndarray  # (K, types, J) the same for each capsule type
    type_coupling_ci95: np.ndarray  # (K, types, J, 2)
    norm: np.ndarray  # (I,) mean |u_i| over images
    norm_ci95: np.ndarray  # (I, 2)
    variance: np.ndarray  # (I,) of u_i over images, summed over its dimensions
    dead: int  # capsules with norm and variance below the thresholds
    dead_range: list[int]  # their number if every norm were at the high, at the low end of its
    # interval; this is no 95 % interval of the number
    dead_norm: float
    dead_variance: float
    classes: list[str]
    n: int
    dataset: str


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
    dead_variance=0.001,
    seed=0,
    progress=iter,
) -> Statistics:
    """What routing does over N images (N, C, H, W), N at least 2, with controls.

    Parameters
    ----------
    labels         (N,).
    classes        names of the classes.
    dataset        its name, for the record.
    iterations     R, of routing, instead of the network's own.
    most           M is the larger of this and R.
    dead_norm      a capsule is dead if its mean norm over the images is below this, and
    dead_variance  its variance, summed over its dimensions, is below this.
    seed           of the random control, which is another draw for each image.
    progress       wraps the chunks of images, for a progress bar.

    Raises
    ------
    ValueError  for fewer than 2 images, or iterations below 1.
    """
    from analyses._routing_measures import Survey
    from capsviz.intervals import require_two
    from capsviz.tracing import CHUNK_IMAGES, trace

    images, labels = images.cpu(), labels.cpu()
    n, J = len(images), len(classes)
    require_two(n)
    R = len(trace(model, images[:1], keep=("poses",), iterations=iterations).poses)
    survey = Survey(R, max(most, R), seed)
    for start in progress(range(0, n, CHUNK_IMAGES)):
        part = slice(start, start + CHUNK_IMAGES)
        survey.add(model, images[part], labels[part])
    means, counts, of_class = survey.means, survey.counts, survey.of_class
    controls = len(survey.CONTROLS)
    norm, variance = means["norm"], means["primary"].variance.sum(1)
    bounds = norm.ci95(0, inf)
    below = np.stack([norm.mean, bounds[:, 1], bounds[:, 0]]) < dead_norm
    dead, *dead_range = (below & (variance < dead_variance)).sum(1).tolist()
    return Statistics(
        **survey.by_rounds(),
        to_right=counts["to_right"][:-controls],
        to_wrong=counts["to_wrong"][:-controls],
        controls=list(survey.CONTROLS),
        **means["entropy"].named("entropy_nats", 0, log(J)),
        **means["effective"].named("effective_parents", 1, J),
        **means["random_effective"].named("random_effective_parents", 1, J),
        **means["polarisation"].named("polarisation", 1 / J, 1),
        **means["random_polarisation"].named("random_polarisation", 1 / J, 1),
        **means["agreement"].named("agreement", -1, 1),
        **means["random_agreement"].named("random_agreement", -1, 1),
        true_classes=np.array(sorted(of_class)),
        images_of_class=np.array([of_class[k]["all"].n for k in sorted(of_class)]),
        **survey.by_class("all", "coupling"),
        **survey.by_class("types", "type_coupling"),
        norm=norm.mean,
        norm_ci95=bounds,
        variance=variance,
        dead=dead,
        dead_range=dead_range,
        dead_norm=dead_norm,
        dead_variance=dead_variance,
        classes=list(classes),
        n=n,
        dataset=dataset,
    )


def said(result: Statistics) -> str:
    """Findings; the words follow the thresholds at the top, and the interval."""
    R, J = len(result.entropy_nats), len(result.classes)
    effective, bounds = result.effective_parents[-1], result.effective_parents_ci95[-1]
    changes = (
        f"routing (r = {R} against r = 1) changes "
        f"{with_interval(result.changed[R - 1], result.changed_ci95[R - 1], '.2%')} "
        f"of the predictions on {result.n} {result.dataset} images: "
        f"{result.to_right[R - 1]} become right, {result.to_wrong[R - 1]} wrong; "
    )
    text = (
        f"{changes if R > 1 else ''}{_effect(R, *result.changed_ci95[R - 1])}\n"
        f"a capsule has {with_interval(effective, bounds, '.3f')} of {J} effective "
        f"parents: {spread(effective, J)}; the true class's length goes from "
        f"{result.true_length[0]:.3f} to {result.true_length[R - 1]:.3f}\n"
    )
    rows = [
        (f"r = {r}", result.accuracy[r - 1], result.accuracy_ci95[r - 1]) for r in sorted({1, R})
    ]
    rows += zip(result.controls, result.control_accuracy, result.control_accuracy_ci95, strict=True)
    rows = [f"{name} {with_interval(value, ends, '.2%')}" for name, value, ends in rows]
    gain = with_interval(result.gain[R - 1], result.gain_ci95[R - 1], "+.2%")
    gained = f"; r = {R} less r = 1 on the same images {gain}" if R > 1 else ""
    fewest, most = result.dead_range
    return (
        f"{text}accuracy: {', '.join(rows)}{gained}\n"
        f"dead capsules: {result.dead} of {len(result.norm)} ({fewest} to {most} if every norm "
        "were at the high or the low end of its interval)"
    )


def spread(effective: float, parents: int) -> str:
    """What a mean number of effective parents says of couplings, in words."""
    many, few = number(NEARLY_UNIFORM, ".0%"), number(CHOOSING, ".0%")
    if effective >= NEARLY_UNIFORM * parents:
        return f"couplings stay nearly uniform ({many} of all or more)"
    if effective >= CHOOSING * parents:
        return f"couplings lean a little ({few} to {many} of all)"
    return f"couplings choose (fewer than {few} of all)"


def _effect(iterations: int, low: float, high: float) -> str:
    little = number(LITTLE, ".0%")
    if iterations == 1:
        return "with one iteration couplings are uniform, and routing does nothing"
    if high <= LITTLE:
        return f"routing does little to predictions here (at most {little} changed)"
    if low > LITTLE:
        return f"routing decides some predictions (more than {little} changed)"
    return f"too few images to say whether it changes more than {little}"
