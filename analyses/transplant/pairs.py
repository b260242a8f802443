"""Couplings exchanged between two images, and in many pairs of images, with controls."""

from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Default, Flag, Iterations, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import mean, within_one
from capsviz.statistics.words import number, strongest

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


class Exchange(Analysis):
    """The base of all kinds of exchange.

    Each says by `found` what it shows. The verdict adds the number of routing iterations, and
    whether images follow the donor by definition.
    """

    needs = ("votes", "couplings", "interventions")
    note = ""  # after the number of pairs, in the heading of a figure
    steps = ""  # what is exchanged one after the other, in the names of files
    any_input = True
    unit = "pairs of images"
    how = "{couples} independent couples"  # whose two pairs share their images

    def heading(self, result, part="") -> str:
        if not hasattr(result, "n"):
            return ""
        return f"{result.n:,} pairs of {result.dataset} images{self.note}; bars and bands: 95 %"

    def stem(self, base, result) -> str:
        if not self.steps:
            return base
        head, number, images = base.rsplit("-", 2)
        what, layer = getattr(result, "of", "couplings"), getattr(result, "layer", None)
        where = "" if layer is None else f"-layer-{layer}"
        return f"{head}-{what}-by-{self.steps}{where}-{number}-{images}"

    def found(self, result) -> str:
        """Return what an exchange of this kind shows."""
        raise NotImplementedError

    def verdict(self, result) -> str:
        text, iterations = self.found(result), getattr(result, "iterations", None)
        if iterations is not None:
            text = f"Images are routed in {iterations} iteration{'s' * (iterations > 1)}.\n{text}"
        sd = getattr(result, "coupling_sd", 1.0)
        if result.given is not None and np.any(getattr(sd, "value", sd)):  # uniform ones do nothing
            text += (
                "\nBy definition of the routing, images follow their couplings, whatever was "
                f"learned: {result.given}."
            )
        return text


class Result(NamedTuple):
    """Two images, each with four couplings: own, the donor's, the donor's shuffled, uniform."""

    images: np.ndarray  # (2, C, H, W) uint8
    labels: list[int | None]  # (2,) true classes, where they are known
    predicted: np.ndarray  # (2,) predicted class of each, routed by itself
    conditions: list[str]  # (4,) whose couplings
    activations: np.ndarray  # (2, 4, J) of the classes, votes x couplings
    decoded: np.ndarray | None  # (2, 4, C, H, W) uint8, of the predicted class; None: no decoder
    means: np.ndarray  # (2, J) own couplings, mean over children
    maps: np.ndarray | None  # (2, J, rows, columns) own, mean over types; None: no grid
    coupling_sd: np.ndarray  # (2,) of own couplings about uniform ones
    even: float  # a uniform coupling, mean over children
    classes: list[str]
    given: str | None = None  # why images follow by definition; None: they need not
    iterations: int | None = None  # of routing; None: the network's own
    donor_index: int = 0  # which image of its class the second one is


class OnePair(Exchange):
    """Two images, each with its own couplings, with the other's, and with controls."""

    Result = Result
    any_input = False
    how = ""
    examples = "capsviz transplant --digit 2 --donor 3  # 6 s"

    def measure(
        self,
        network,
        *,
        picture,
        inputs,
        donor: Annotated[
            int | None,
            Default("the class after the first image's"),
            Flag("--donor", metavar="CLASS"),
            "Class of the donor image.",
        ] = None,
        donor_index: Annotated[int, "Which image of that class."] = 0,
        iterations: Iterations = None,
        seed: Seed = 0,
    ):
        """Exchange the couplings of a picture and an image of the data set."""
        from capsviz.analyses.transplant.measure import exchange
        from capsviz.inputs.samples import beside, other_class

        donor = other_class(inputs.dataset.classes, donor, inputs, picture)
        expected = "another one (--donor, --donor-index)"
        images = beside(inputs, picture, donor, donor_index, expected).cpu()
        return Result(
            **exchange(network, images, iterations=iterations, seed=seed),
            labels=[picture.label, donor],
            classes=list(inputs.dataset.classes),
            donor_index=donor_index,
        )

    def found(self, result) -> str:
        names = [result.classes[k] for k in result.predicted]
        lines = []
        for k, row in enumerate(result.activations):
            _, donor, shuffled, uniform = (strongest(result.classes, one) for one in row)
            lines.append(
                f"The votes of the {names[k]} with the couplings of the {names[1 - k]} are "
                f"classified as {donor} (shuffled: {shuffled}; uniform couplings: {uniform})."
            )
        sd = " and ".join(f"{value:.4f}" for value in result.coupling_sd)
        lines.append(f"The couplings deviate from uniform by {sd} (standard deviation).")
        lines.append("This is one pair: --n N measures which share of pairs follows the donor.")
        return "\n".join(lines)

    def stem(self, base, result) -> str:
        return f"{base}-{result.labels[1]}-{result.donor_index}"


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
    tied: np.ndarray | None = None  # (K,) share in which no class is ahead of all others
    given: str | None = None  # why images follow by definition; None: they need not
    iterations: int | None = None  # of routing; None: the network's own

    axes = dict.fromkeys(
        ("as_own", "as_partner", "as_neither", "own_activation", "partner_activation",
         "coupling_sd"), ("conditions",),
    )  # fmt: skip
    titles = {"as_partner": "classified as other-class donor", "as_own": "classified as recipient"}
    formats = dict.fromkeys(("as_own", "as_partner", "as_neither"), ".1%") | {"coupling_sd": ".4f"}
    over_runs = {
        "couples": min, "n": min, "tied": mean,  # at least so many couples and pairs
        **dict.fromkeys(("as_own", "as_partner", "as_neither"), within_one),
    }  # fmt: skip


class OverPairs(Exchange):
    """The predicted classes of many images with the couplings of another image."""

    Result = Statistics
    panels = "draw:MANY"
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
        """
        from capsviz.analyses.transplant.measure import over_conditions

        fields = over_conditions(
            network, images.cpu(), iterations=iterations, seed=seed, progress=progress
        )
        return Statistics(
            **fields, conditions=list(CONDITIONS), classes=list(classes), dataset=dataset
        )

    def found(self, result) -> str:
        text = followed(result)
        for name, share in zip(result.conditions, np.atleast_1d(result.tied), strict=False):
            if share:
                text += f"\nWith couplings '{name}' no class is ahead of all others in "
                text += f"{number(share, '.1%')} of the pairs."
        return text


def followed(result) -> str:
    """Return whether most images follow the donor at dose 1, its couplings as they are."""
    if not result.coupling_sd.value[OWN]:
        return "The couplings are uniform in every image: there is nothing to exchange."
    partner, own = result.as_partner, result.as_own
    if partner[UNLIKE].low > MOST:
        known = len(result.conditions) > UNLIKE_SHUFFLED
        if known and partner[UNLIKE_SHUFFLED].low > MOST:
            why = "and also if its couplings are shuffled: the totals of each class are enough"
        elif all(own[k].low > MOST for k in (SHUFFLED, NOISE)):
            why = "but with shuffled couplings, or noise of equal size, most keep their class"
        else:
            why = "but shuffled couplings, or noise of equal size, may also change the class"
        return f"Most images follow the donor at dose 1, {why}."
    if own[UNLIKE].low > MOST:
        return "At dose 1 most images keep their class. See --by dose."
    return "It is not shown that most images follow the donor at dose 1, nor that they do not."
