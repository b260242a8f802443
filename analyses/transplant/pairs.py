"""Couplings exchanged in many pairs of images, with controls."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Iterations, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import mean
from capsviz.statistics.words import number

MOST = 0.5  # of the pairs
CONDITIONS = (  # whose couplings
    "own",
    "other-class donor",
    "same-class donor",
    "mean of the data",
    "own, shuffled",
    "noise, equal s.d.",
    "uniform",
    "other-class donor, shuffled",  # some shipped results are without
)
OWN, UNLIKE, LIKE, MEAN, SHUFFLED, NOISE, EVEN, UNLIKE_SHUFFLED = range(len(CONDITIONS))


class Statistics(NamedTuple):
    """N pairs under K conditions; intervals are 95 %, as `explain.md` says.

    Shares of pairs, and means over pairs; a difference is less that with its own couplings.
    """

    conditions: list[str]  # (K,) whose couplings
    as_own: Estimate  # (K,) share classified as the recipient
    as_partner: Estimate  # (K,) share classified as the other-class donor
    as_neither: Estimate  # (K,) share classified as a third class, or as none
    own_activation: Estimate  # (K,) mean, of the recipient's class
    partner_activation: Estimate  # (K,) mean, of the donor's class
    coupling_sd: Estimate  # (K,) of the couplings about uniform ones, mean over pairs
    couples: int
    n: int  # pairs
    classes: list[str]
    dataset: str
    shares: None = None  # this and the next three are no longer measured: see `Parts`
    parts: None = None
    part_as_own: None = None
    part_as_partner: None = None
    tied: np.ndarray | None = None  # (K,) share in which no class is ahead of all others
    given: str | None = None  # why images follow by definition; None: they need not
    iterations: int | None = None  # of routing; None: the network's own

    axes = dict.fromkeys(
        ("as_own", "as_partner", "as_neither", "own_activation", "partner_activation",
         "coupling_sd"), ("names",),
    )  # fmt: skip
    titles = {"as_partner": "classified as other-class donor", "as_own": "classified as recipient"}
    formats = dict.fromkeys(("as_own", "as_partner", "as_neither"), ".1%") | {"coupling_sd": ".4f"}
    over_runs = {"couples": min, "n": min, "tied": mean}  # at least so many couples and pairs

    @property
    def names(self) -> tuple[str, ...]:
        """Of the conditions, in the words of today."""
        return CONDITIONS[: len(self.conditions)]


class OverPairs(Analysis):
    """What many images are classified as with the couplings of another image."""

    Result = Statistics
    needs = ("votes", "couplings", "interventions")
    examples = """
    capsviz transplant --n 1000  # about 10 s
    capsviz transplant --n 1000 --iterations 2  # about 10 s
    """
    slow = True
    headline = ("as_partner", "as_own")

    def measure(
        self,
        network,
        images,
        *,
        classes,
        dataset,
        progress=iter,
        iterations: Iterations = None,
        seed: Seed = 0,
    ) -> Statistics:
        """Exchange the couplings of the images, couple by couple, with controls.

        The seed is of the couples, the shuffles, the noise and the bootstrap.

        Raises
        ------
        ValueError  for images that make less than 2 couples of different classes, or a network
                    whose couplings cannot be replaced.
        """
        from capsviz.analyses.transplant.measure import over_pairs, transplant
        from capsviz.statistics.comparison import draw_resamples
        from capsviz.tracing.needs import reason

        images = images.cpu()
        found = transplant(network, images, iterations=iterations, seed=seed, progress=progress)
        pairs = found.own.shape[1]
        counts = draw_resamples(pairs // 2, seed=seed)

        def estimate(values, shares=False):
            return over_pairs(values, counts, shares=shares)

        return Statistics(
            conditions=list(CONDITIONS),
            as_own=estimate(found.own, True),
            as_partner=estimate(found.partner, True),
            as_neither=estimate(~found.own & ~found.partner, True),
            own_activation=estimate(found.own_activation),
            partner_activation=estimate(found.partner_activation),
            coupling_sd=estimate(found.coupling_sd),
            couples=pairs // 2,
            n=pairs,
            classes=list(classes),
            dataset=dataset,
            tied=found.tied.double().mean(1).numpy(),
            given=reason(network, "donor's class"),
            iterations=iterations,
        )

    def draw(self, result, *, width=7.16, part=""):
        """Draw the shares of pairs by predicted class, and activations."""
        from capsviz.analyses.transplant import draw

        return draw.shares(result, width)

    def verdict(self, result) -> str:
        """Say whether images follow the donor, and where no class is ahead."""
        text = f"{routed(result)}{followed(result)}"
        for name, share in zip(result.names, np.atleast_1d(result.tied), strict=False):
            if share:
                text += f"\nWith couplings '{name}' no class is ahead of all others in "
                text += f"{number(share, '.1%')} of the pairs."
        return text

    def caption(self, result, part="") -> str:
        """Return what the picture shows, and what its bars are."""
        return (
            "Predicted classes of images whose couplings are replaced in every iteration, while "
            "their votes are kept: the recipient's class, that of the donor, or neither; and the "
            "activations of both classes. Bars: 95 % intervals over couples of images."
        )


def routed(result) -> str:
    """Return how often images are routed, if not as often as by the network itself."""
    if result.iterations is None:
        return ""
    return f"Images are routed in {result.iterations} iteration{'s' * (result.iterations > 1)}.\n"


def with_reason(text: str, given: str | None) -> str:
    """Return a text, and that images follow the donor by definition of a routing, if so."""
    if given is None:
        return text
    return (
        f"{text}\nBy definition of the routing, images follow their couplings, whatever was "
        f"learned: {given}."
    )


def followed(result) -> str:
    """Return whether most images follow the donor at dose 1, its couplings as they are."""
    if not result.coupling_sd.value[OWN]:
        return "The couplings are uniform in every image: there is nothing to exchange."
    if result.given is not None:
        return with_reason("", result.given).strip()
    partner, own = result.as_partner[UNLIKE], result.as_own[UNLIKE]
    if partner.low > MOST and by_class(result):
        return (
            "Most images follow the donor at dose 1, and also if its couplings are shuffled among "
            "the capsules: how much all capsules together give each class is enough."
        )
    if partner.low > MOST:
        if min(float(result.as_own[k].low) for k in (SHUFFLED, NOISE)) > MOST:
            return (
                "Most images follow the donor at dose 1. Shuffled couplings, and noise of equal "
                "standard deviation, do not change the class."
            )
        return (
            "Most images follow the donor at dose 1, but other couplings of equal standard "
            "deviation may change the class, too: see the controls."
        )
    if own.low > MOST:
        return (
            "Too small a deviation at dose 1: with the couplings of a donor of another class, most "
            "images keep their class. Larger doses are measured by --by dose."
        )
    if max(float(partner.high), float(own.high)) <= MOST:
        return "At dose 1, most mixtures have neither the class of the donor nor that of the image."
    return "There are too few pairs to say whether most images follow the donor at dose 1."


def by_class(result) -> bool:
    """Return whether most images follow a donor whose couplings are shuffled, too."""
    known = len(result.conditions) > UNLIKE_SHUFFLED
    return known and float(result.as_partner[UNLIKE_SHUFFLED].low) > MOST
