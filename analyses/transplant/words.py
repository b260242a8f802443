"""Words of `transplant`: its conditions, what its numbers say, and the captions of its figures."""

from __future__ import annotations

import numpy as np

from capsviz.analyses.transplant import part_words
from capsviz.analyses.transplant.part_words import GIVEN
from capsviz.analyses.transplant.results import Parts, Rounds
from capsviz.statistics.words import number, sentences, strongest, tied

MOST = 0.5  # of the pairs: what the couplings, or the votes, decide
CONDITIONS = (  # whose couplings
    "its own",
    "of an unlike image",
    "of a like image",
    "mean of the data",
    "own, shuffled",
    "noise, equal sd",
    "even",
    "unlike's, shuffled",  # earlier results are without
)
OWN, UNLIKE, LIKE, MEAN, SHUFFLED, NOISE, EVEN, UNLIKE_SHUFFLED = range(len(CONDITIONS))


def caption(result) -> str:
    """What the figure shows, with its numbers."""
    if isinstance(result, Parts | Rounds):
        return part_words.caption(result)
    if hasattr(result, "couples"):
        return (
            "Transplanted couplings: what images are read as when their couplings are replaced in "
            "every iteration and their votes kept. Bars: 95 % intervals, of shares Wilson's of "
            "the effective number of pairs, of activations by bootstrap of couples of images. "
            f"{sentences(findings(result))}"
        )
    return (
        "Two images with each other's couplings. From the left: the image; its couplings to the "
        "two classes by place, mean over capsule types; what its votes are read as, and decode to, "
        "with the couplings named above, used in every iteration. "
        f"{sentences(findings(result))}"
    )


def findings(result) -> str:
    """What the numbers say, in a line or two."""
    if isinstance(result, Parts | Rounds):
        return part_words.findings(result)
    if hasattr(result, "couples"):
        return _of_pairs(result)
    names = [result.classes[k] for k in result.read]
    read = [[strongest(result.classes, one) for one in row] for row in result.activations]
    parts = [
        f"votes of the {names[k]} with the couplings of the {names[1 - k]} are read as "
        f"{read[k][1]} (with those shuffled {read[k][2]}, with even ones {read[k][3]})"
        for k in range(2)
    ]
    sd = ", ".join(f"{value:.4f}" for value in result.coupling_sd)
    text = f"{routed(result)}{'; '.join(parts)}\n"
    text += f"standard deviation of the couplings about even ones: {sd}"
    if result.given is None or not result.coupling_sd.any():  # even ones decide nothing
        return text
    return f"{text}\n{GIVEN}: {result.given}"


def _of_pairs(result) -> str:
    ties = np.zeros(len(result.conditions)) if result.tied is None else result.tied
    shares = [
        f"{name} {own:.1%} as their own class, {number(float(partner.value), '.1%')} as the "
        f"unlike one's{tied(tie)} (sd {float(sd.value):.4f})"
        for name, own, partner, sd, tie in zip(
            result.conditions[LIKE:], result.as_own[LIKE:], result.as_partner[LIKE:],
            result.coupling_sd[LIKE:], ties[LIKE:], strict=True,
        )
    ]  # fmt: skip
    text = routed(result) + (
        f"of {result.n:,} pairs of {result.dataset} images, with the couplings of an image of "
        f"another class, {result.as_partner[UNLIKE]:.1%} are read as that image's class, "
        f"{result.as_own[UNLIKE]:.1%} as their own; these couplings have a standard deviation of "
        f"{float(result.coupling_sd.value[UNLIKE]):.4f} about uniform\n{verdict(result)}\n"
        f"controls, couplings: {'; '.join(shares)}"
    )
    if result.parts is None:
        return text
    half = int(np.abs(result.shares - 0.5).argmin())
    halves = ", ".join(
        f"{name} {result.part_as_partner[k, half]:.1%}" for k, name in enumerate(result.parts)
    )
    return f"{text}\nread as the unlike class with half of its couplings, by {halves}"


def routed(result) -> str:
    """How often, where that is not how often the network routes by itself."""
    if result.iterations is None:
        return ""
    return f"routed {result.iterations} time{'s' * (result.iterations > 1)}, "


def verdict(result) -> str:
    """What decides the class of a mixture, and whether any couplings of that spread would."""
    if not result.coupling_sd.value[OWN]:
        return "the couplings are even in every image: there is nothing to exchange"
    if result.given is not None:
        return f"{GIVEN}: {result.given}"
    partner, own = result.as_partner[UNLIKE], result.as_own[UNLIKE]
    if partner.low > MOST and by_class(result):
        return (
            "the couplings decide the class by how much all children together give each: shuffled "
            "among them those of the unlike image decide it, too"
        )
    spread = [result.as_own[k] for k in (SHUFFLED, NOISE)]
    if partner.low > MOST:
        if min(float(one.low) for one in spread) > MOST:
            return (
                "in this network the couplings carry the class, however near uniform: those of "
                "equal spread that "
                "are shuffled or noise leave most images their own"
            )
        return "the couplings decide the class; but so may others of equal spread: see the controls"
    if own.low > MOST:
        return "the votes decide the class: with another's couplings most images stay their own"
    if max(float(partner.high), float(own.high)) <= MOST:
        return "neither couplings nor votes decide the class of most mixtures"
    return "too few pairs to say whether couplings or votes decide the class of most mixtures"


def by_class(result) -> bool:
    """Whether another's couplings decide most classes when shuffled among children, too."""
    known = len(result.conditions) > UNLIKE_SHUFFLED
    return known and float(result.as_partner[UNLIKE_SHUFFLED].low) > MOST
