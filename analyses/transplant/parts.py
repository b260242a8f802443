"""Parts exchanged one after the other in many pairs of images: capsules, or iterations."""

from typing import Annotated, Literal, NamedTuple

import numpy as np

from capsviz.analyses.transplant.pairs import MOST, Exchange
from capsviz.analysis import Layer, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import mean, within_one
from capsviz.statistics.words import part_name, word_for

DONORS = ("own, given back", "same-class donor", "other-class donor")
SAME = 1e-4  # of activations: exchanged as a whole, they are the donor's
NOUNS = {"types": "capsule type", "positions": "position", "children": "group of capsules"}
# Types and groups of capsules are in another order in each training run; positions are not.
UNORDERED = dict.fromkeys(("types", "children"))
BY = (
    "capsules: exchange one capsule type and one position at a time; iterations: couplings of one "
    "iteration at a time; dose: couplings whose deviation from uniform is multiplied by --dose."
)


class Parts(NamedTuple):
    """N pairs, in which one part after the other is the donor's, the rest the recipient's.

    Intervals are 95 %, as explain.md says. By kind of part: entry 0 is the control,
    as many children drawn at random for each pair; entry 1 + g is part g. Differences are to the
    control. Changes are of activations, less those with everything of the recipient.
    """

    of: str  # what is exchanged: couplings, children or poses
    layer: int | None  # a layer below the classes, by its number; None: that of the classes
    grid: tuple[int, int, int] | None  # types, rows, columns of its children; None: no positions
    kinds: list[str]  # "types" and "positions", or "children": groups by number
    sizes: dict[str, int]  # children of a part
    own: dict[str, Estimate]  # (1 + G,) share classified as the recipient
    partner: dict[str, Estimate]  # (1 + G,) share classified as the donor
    neither: dict[str, Estimate]  # (1 + G,) share classified as a third class, or as none
    own_change: dict[str, Estimate]  # (1 + G,) of the activation of the recipient's class
    partner_change: dict[str, Estimate]  # (1 + G,) of that of the donor's class
    first: dict[str, int]  # part that raises the latter most in one half of the couples
    first_change: dict[str, Estimate]  # (2,) in the other half: as many at random, that part
    shares: dict[str, np.ndarray]  # (S,) of types, positions or capsules drawn at random, to all
    some_own: dict[str, Estimate]  # (S,) share classified as the recipient
    some_partner: dict[str, Estimate]  # (S,) as the donor
    off: float  # largest difference of an activation to the donor's, with all exchanged
    couples: int
    n: int  # pairs
    classes: list[str]
    dataset: str
    given: str | None = None  # why images follow by definition; None: they need not

    axes = {"first_change": (("random capsules", "most effective part"),)}
    titles = {"first_change": "change of the donor's class"}
    formats = {"first_change": ".4f"}
    over_runs = {
        "couples": min, "n": min, "off": mean, "first": None,
        **dict.fromkeys(("own_change", "partner_change", "neither", "own", "partner"), UNORDERED),
    }  # fmt: skip


class ByCapsules(Exchange):
    """The effect of each capsule type and each position, if it alone is a donor's."""

    Result = Parts
    panels = "draw:PARTS"
    note = ", one part exchanged"
    steps = "capsules"
    examples = "capsviz transplant --of children  # about 10 s"
    usual_n = 200
    figure_set = None
    headline = ("first_change",)

    def measure(
        self,
        network,
        images,
        *,
        classes,
        dataset,
        progress=iter,
        of: Annotated[
            Literal["couplings", "children", "poses"],
            "What is exchanged, one capsule type and one position at a time.",
        ] = "couplings",
        by: Annotated[Literal["capsules"] | None, BY] = None,
        layer: Layer = None,
        seed: Seed = 0,
    ) -> Parts:
        """Exchange children, poses or couplings of one part after the other, pair by pair.

        The seed is of the couples, what is drawn at random, and the bootstrap.
        """
        from capsviz.analyses.transplant.measure import by_part

        fields = by_part(network, images.cpu(), of, layer, seed, progress)
        return Parts(**fields, of=of, classes=list(classes), dataset=dataset)

    def found(self, result) -> str:
        where = "" if result.layer is None else f" of layer {result.layer}"
        whole = next(iter(result.some_partner.values()))[-1]
        ending = " (by definition: this checks the method)." if result.off < SAME else "."
        text = (
            f"With all {result.of}{where} of a donor of another class, {whole:.1%} of the pairs "
            f"are classified as the donor{ending}"
        )
        for kind in result.kinds:
            first, noun = result.first_change[kind][1], NOUNS[kind]
            name = f" ({part_name(kind, result.first[kind], result.grid)})"
            name = "" if first.runs is not None else name
            than = word_for(first.difference, "more than", "less than", "not measurably more than")
            text += (
                f"\nThe most effective {noun}{name} changes the activation of the donor's class "
                f"{than} as many random capsules."
            )
        return text


class Rounds(NamedTuple):
    """N pairs with other couplings in some iterations; intervals as of `Parts`.

    Keys say which of the R iterations have them: iteration r "alone", or from it "onward". In the
    others the votes are routed by themselves. Differences are to the image's own, given back.
    """

    layer: int | None  # a layer below the classes, by its number; None: that of the classes
    donors: list[str]  # (3,) whose couplings, those of its last iteration
    own: dict[str, Estimate]  # (3, R) share classified as the recipient
    partner: dict[str, Estimate]  # (3, R) share classified as the other-class donor
    neither: dict[str, Estimate]  # (3, R) share classified as a third class, or as none
    own_change: dict[str, Estimate]  # (3, R) of the activation of the recipient's class
    partner_change: dict[str, Estimate]  # (3, R) of that of the donor's class
    couples: int
    n: int  # pairs
    classes: list[str]
    dataset: str
    given: str | None = None  # why images follow by definition; None: they need not

    axes = dict.fromkeys(
        ("own", "partner", "neither", "own_change", "partner_change"), (DONORS, "iteration {1}")
    )
    titles = {"partner": "classified as donor", "own": "classified as recipient"}
    formats = dict.fromkeys(("own", "partner", "neither"), ".1%")
    over_runs = {
        "couples": min, "n": min, **dict.fromkeys(("own", "partner", "neither"), within_one)
    }  # fmt: skip


class ByIterations(Exchange):
    """The effect of another image's couplings in single routing iterations."""

    Result = Rounds
    panels = "draw:ITERATIONS"
    note = ", classified as recipient (solid) or other-class donor (dashed)"
    steps = "iterations"
    examples = "capsviz transplant --by iterations  # about 10 s"
    usual_n = 200
    figure_set = None
    headline = ("partner",)

    def measure(
        self,
        network,
        images,
        *,
        classes,
        dataset,
        progress=iter,
        of: Annotated[Literal["couplings"], "What is exchanged."] = "couplings",
        by: Annotated[Literal["iterations"] | None, BY] = None,
        layer: Layer = None,
        seed: Seed = 0,
    ) -> Rounds:
        """Give a donor's last couplings in some of the iterations; in the others, votes route."""
        from capsviz.analyses.transplant.measure import by_iteration

        fields = by_iteration(network, images.cpu(), layer, seed, progress)
        return Rounds(**fields, donors=list(DONORS), classes=list(classes), dataset=dataset)

    def found(self, result) -> str:
        whole, alone = result.partner["onward"][2, 0], result.partner["alone"][2, :-1]
        if float(whole.low) <= MOST:
            return "Even in all iterations, most pairs are not shown to follow the donor at dose 1."
        if float(alone.high.max()) < float(whole.low):
            return "The iterations that follow undo the exchange in one iteration for some pairs."
        if float(alone.low.min()) > MOST:
            return "The iterations that follow mostly do not undo the exchange in one iteration."
        return "How much the iterations that follow undo depends on the iteration."
