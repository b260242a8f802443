"""Which class do couplings carry? One image's votes, another image's couplings."""

from typing import Annotated, Literal, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Default, Flag, Iterations, Layer, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import mean_interval
from capsviz.statistics.replicates import mean, within_one
from capsviz.statistics.words import part_name, shown, strongest, word_for

MOST = 0.5  # share of pairs above which a verdict says "most"
CONDITIONS = (  # source of the couplings
    "own",
    "other-class donor",
    "same-class donor",
    "mean of the data",
    "own, shuffled",
    "noise, equal s.d.",
    "uniform",
    "other-class donor, shuffled",  # missing in some shipped results
)
OWN, UNLIKE, LIKE, MEAN, SHUFFLED, NOISE, EVEN, UNLIKE_SHUFFLED = range(len(CONDITIONS))
DEVIATIONS = (DONOR, DONOR_SHUFFLED, CLASS_MEAN, STEEPEST, EQUAL_NOISE) = (  # of `Doses`
    "donor",
    "donor, shuffled",
    "mean of the donor's class",
    "worst direction",
    "noise",
)
DOSES = (-1.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
DONORS = ("own, given back", "same-class donor", "other-class donor")
SAME = 1e-4  # activations that differ by less are equal
NOUNS = {"types": "capsule type", "positions": "position", "children": "group of capsules"}
# Types and groups of capsules are in another order in each training run; positions are not.
UNORDERED = dict.fromkeys(("types", "children"))
BY = (
    "capsules: exchange one capsule type and one position at a time; iterations: couplings of one "
    "iteration at a time; dose: couplings whose deviation from uniform is multiplied by --dose."
)


class Exchange(Analysis):
    """The base class of all kinds of exchange.

    A subclass describes its result by `found`. The verdict adds the number of routing iterations,
    and whether images follow the donor by definition.
    """

    needs = ("votes", "couplings", "interventions")
    note = ""  # follows the number of pairs in the heading of a figure
    steps = ""  # parts that are exchanged one at a time, for file names
    any_input = True
    unit = "pairs of images"
    how = "{couples} independent couples"  # the two pairs of a couple share their images

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
        """Return the finding of this kind of exchange in words."""
        raise NotImplementedError

    def verdict(self, result) -> str:
        text, iterations = self.found(result), getattr(result, "iterations", None)
        if iterations is not None:
            text = f"Images are routed in {iterations} iteration{'s' * (iterations > 1)}.\n{text}"
        if hasattr(result, "couples"):
            text = f"{result.n:,} pairs of images, {result.couples:,} independent couples.\n{text}"
        sd = getattr(result, "coupling_sd", 1.0)
        own = np.ravel(getattr(sd, "value", sd))[OWN]  # 0: all couplings are uniform
        if result.given is not None and own:
            text += (
                "\nBy definition of the routing, images follow their couplings, whatever was "
                f"learned: {result.given}."
            )
        return text


class Result(NamedTuple):
    """Two images, each with four couplings: own, the donor's, the donor's shuffled, uniform."""

    images: np.ndarray  # (2, C, H, W) uint8
    labels: list[int | None]  # (2,) true classes; None: unknown
    predicted: np.ndarray  # (2,) predicted classes with normal routing
    conditions: list[str]  # (4,) source of the couplings
    activations: np.ndarray  # (2, 4, J) of the classes, by image and condition
    decoded: np.ndarray | None  # (2, 4, C, H, W) uint8, predicted class; None: no decoder
    means: np.ndarray  # (2, J) own couplings, mean over lower-level capsules
    maps: np.ndarray | None  # (2, J, rows, columns) own couplings, mean over types; None: no grid
    coupling_sd: np.ndarray  # (2,) s.d. of own couplings about uniform ones
    even: float  # uniform coupling, mean over lower-level capsules
    classes: list[str]
    given: str | None = None  # why images follow by definition; None: they need not
    iterations: int | None = None  # of routing; None: the network's own
    donor_index: int = 0  # index of the second image in its class


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
        """Exchange the couplings of the given image and a donor image of the data set."""
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
    """N pairs under K conditions; intervals are 95 %, as described in `explain.md`.

    Differences are to the first condition, the image's own couplings.
    """

    conditions: list[str]  # (K,) source of the couplings
    as_own: Estimate  # (K,) share classified as the recipient
    as_partner: Estimate  # (K,) share classified as the other-class donor
    as_neither: Estimate  # (K,) share classified as a third class, or tied
    own_activation: Estimate  # (K,) mean activation of the recipient's class
    partner_activation: Estimate  # (K,) mean activation of the donor's class
    coupling_sd: Estimate  # (K,) s.d. of the couplings about uniform ones, mean over pairs
    couples: int
    n: int  # pairs
    classes: list[str]
    dataset: str
    given: str | None = None  # why images follow by definition; None: they need not
    iterations: int | None = None  # of routing; None: the network's own

    axes = dict.fromkeys(
        ("as_own", "as_partner", "as_neither", "own_activation", "partner_activation",
         "coupling_sd"), ("conditions",),
    )  # fmt: skip
    titles = {"as_partner": "classified as other-class donor", "as_own": "classified as recipient"}
    formats = dict.fromkeys(("as_own", "as_partner", "as_neither"), ".1%") | {"coupling_sd": ".4f"}
    over_runs = {
        "couples": min, "n": min,  # every run has at least this number
        **dict.fromkeys(("as_own", "as_partner", "as_neither"), within_one),
    }  # fmt: skip


class OverPairs(Exchange):
    """The predicted classes of many images, each with the couplings of another image."""

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
        """Exchange the couplings of the images, couple by couple, with controls."""
        from capsviz.analyses.transplant.measure import over_conditions

        fields = over_conditions(
            network, images.cpu(), iterations=iterations, seed=seed, progress=progress
        )
        return Statistics(
            **fields, conditions=list(CONDITIONS), classes=list(classes), dataset=dataset
        )

    def found(self, result) -> str:
        if not result.coupling_sd.value[OWN]:
            return "The couplings are uniform in every image: there is nothing to exchange."
        partner, own = result.as_partner[UNLIKE], result.as_own
        if own[UNLIKE].low > MOST:
            return "At dose 1 most images keep their class. See --by dose."
        claims = [shown(partner.low > MOST, "most images follow the donor at dose 1")]
        if len(result.conditions) > UNLIKE_SHUFFLED:
            alike = result.as_partner[UNLIKE_SHUFFLED].low > MOST
            claims.append(shown(alike, "most also follow if the donor's couplings are shuffled"))
        kept = shown(own[NOISE].low > MOST, "most keep their class with noise of equal size")
        return " ".join([*claims, kept])


def _geometric_mean(parts):
    """Return the geometric mean over training runs with its interval; NaN if a run has a NaN."""
    values = np.stack([one.value for one in parts])
    mean, ends = mean_interval(np.log(values))
    return Estimate(np.exp(mean), np.exp(ends), parts[0].n, runs=values)


def _dose_text(result, value: float) -> str:
    """Return a dose at which half follow as text; > or ≤ marks the ends of the measured range."""
    most, least = result.doses.max(), result.doses[result.doses > 0].min()
    if np.isnan(value):
        return f"> {most:g}"
    return f"≤ {least:g}" if value <= least else f"{value:.2f}"


class Doses(NamedTuple):
    """N pairs under K conditions and D doses; intervals are 95 %, as described in `explain.md`.

    At dose d, couplings are uniform ones plus d times a deviation, in every iteration. They may be
    below 0 or above 1.
    """

    conditions: list[str]  # (K,) source of the deviation
    doses: np.ndarray  # (D,) ascending
    follow: Estimate  # (K, D) share classified as the donor
    keep: Estimate  # (K, D) share classified as the recipient
    half: Estimate  # (K,) lowest dose at which half of the pairs follow; NaN: not reached
    deviation_sd: Estimate  # (K,) root mean square deviation from uniform at dose 1
    couples: int
    n: int  # pairs
    classes: list[str]
    dataset: str
    given: str | None = None  # why images follow by definition; None: they need not
    iterations: int | None = None  # of routing; None: the network's own
    clipped: bool = False  # couplings below 0 are set to 0, and each capsule keeps its total

    axes = {
        **dict.fromkeys(("follow", "keep"), ("conditions", "dose_names")),
        **dict.fromkeys(("half", "deviation_sd"), ("conditions",)),
    }
    titles = {
        "half": "dose at which 50 % follow",
        "deviation_sd": "s.d. at dose 1",
        "follow": "classified as the donor's class",
        "keep": "classified as recipient",
    }
    formats = {"follow": ".1%", "keep": ".1%", "half": _dose_text, "deviation_sd": ".4f"}
    some = {"follow": "dose 1"}
    over_runs = {
        "couples": min, "n": min, "half": _geometric_mean, "follow": within_one, "keep": within_one
    }  # fmt: skip

    @property
    def dose_names(self) -> list[str]:
        """Names of the doses."""
        return [f"dose {dose:g}" for dose in self.doses]

    def at(self, condition: str, dose: float) -> Estimate | None:
        """Return the share of pairs that follow the donor; None if it was not measured."""
        found = np.flatnonzero(self.doses == dose)
        if condition not in self.conditions or not len(found):
            return None
        return self.follow[self.conditions.index(condition), int(found[0])]


class ByDose(Exchange):
    """How large a deviation from uniform couplings moves the class, with controls."""

    Result = Doses
    panels = "draw:DOSES"
    note = ", deviation of the couplings scaled"
    steps = "dose"
    examples = "capsviz transplant --by dose  # about 1 min"
    figure_set = None
    headline = ("follow", "half", "deviation_sd")

    def measure(
        self,
        network,
        images,
        *,
        classes,
        dataset,
        progress=iter,
        by: Annotated[Literal["dose"] | None, BY] = None,
        doses: Annotated[
            tuple[float, ...],
            "Factor of the deviation from uniform couplings; may be given several times.",
            Default("-1, 0.25, 0.5, 1, 2, 4, 8"),
            Flag("--dose"),
        ] = DOSES,
        iterations: Iterations = None,
        seed: Seed = 0,
    ) -> Doses:
        """Scale the deviation of donors' couplings, and of controls, pair by pair."""
        from capsviz.analyses.transplant.measure import over_doses

        self.check(doses=doses)
        fields = over_doses(
            network, images.cpu(), np.unique(np.array(doses, float)), iterations=iterations,
            seed=seed, progress=progress,
        )  # fmt: skip
        steep = len(fields["half"]) == len(DEVIATIONS)  # activations have a gradient
        conditions = [one for one in DEVIATIONS if steep or one != STEEPEST]
        return Doses(**fields, conditions=conditions, classes=list(classes), dataset=dataset)

    def check(self, *, doses=DOSES, **_) -> None:
        """Raise ValueError for doses that are not finite, or if none is above 0."""
        if not np.isfinite(doses).all() or not any(one > 0 for one in doses):
            given = ", ".join(f"{one:g}" for one in doses) or "none"
            raise ValueError(f"expected finite doses, one above 0 (--dose), got {given}")

    def found(self, result) -> str:
        shares = {dose: result.at(DONOR, dose) for dose in (1, -1)}
        known = ((dose, share) for dose, share in shares.items() if share is not None)
        texts = [f"At dose {d}, {one:.1%} of the pairs follow the donor." for d, one in known]
        clipped = "Couplings below 0 are set to 0: with them this routing is not finite."
        return " ".join([*texts, *[clipped] * result.clipped])


class Parts(NamedTuple):
    """N pairs, in which one part at a time is the donor's and the rest is the recipient's.

    Intervals are 95 %, as described in `explain.md`. Dictionaries are by kind of part. Entry 0 is
    the control: as many random children for each pair. Entry 1 + g is part g. Differences are to
    the control. Changes are of activations, relative to the recipient without an exchange.
    """

    of: str  # what is exchanged: couplings, children or poses
    layer: int | None  # a layer below the classes, by its number; None: that of the classes
    grid: tuple[int, int, int] | None  # types, rows, columns of the children; None: no positions
    kinds: list[str]  # "types" and "positions", or "children": groups by number
    sizes: dict[str, int]  # mean number of children in a part
    own: dict[str, Estimate]  # (1 + G,) share classified as the recipient
    partner: dict[str, Estimate]  # (1 + G,) share classified as the donor
    neither: dict[str, Estimate]  # (1 + G,) share classified as a third class, or tied
    own_change: dict[str, Estimate]  # (1 + G,) change of activation of the recipient's class
    partner_change: dict[str, Estimate]  # (1 + G,) the same of the donor's class
    first: dict[str, int]  # part that raises the donor's class most in one half of the couples
    first_change: dict[str, Estimate]  # (2,) change in the other half, by the control and that part
    shares: dict[str, np.ndarray]  # (S,) exchanged, up to 1, of the types, positions or capsules
    some_own: dict[str, Estimate]  # (S,) share classified as the recipient
    some_partner: dict[str, Estimate]  # (S,) share classified as the donor
    off: float  # largest deviation from the donor's activations if all parts are exchanged
    couples: int
    n: int  # pairs
    classes: list[str]
    dataset: str
    given: str | None = None  # why images follow by definition; None: they need not

    axes = {
        "first_change": (("random capsules", "most effective part"),),
        **dict.fromkeys(
            ("own", "partner", "neither", "own_change", "partner_change"), ("random capsules|{}",)
        ),
        **dict.fromkeys(("some_own", "some_partner"), ("shares",)),
    }
    titles = {"first_change": "change of the donor's class"}
    formats = {"first_change": ".4f"}
    over_runs = {
        "couples": min, "n": min, "off": mean, "first": None,
        **dict.fromkeys(("own_change", "partner_change", "neither", "own", "partner"), UNORDERED),
    }  # fmt: skip


class ByCapsules(Exchange):
    """The effect of each capsule type and each position, if only this part is a donor's."""

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
        """Exchange the children, poses or couplings of one part at a time."""
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
            than = word_for(first.difference, "more than", "less than", "not clearly more than")
            text += (
                f"\nThe most effective {noun}{name} changes the activation of the donor's class "
                f"{than} as many random capsules."
            )
        return text


class Rounds(NamedTuple):
    """N pairs with a donor's couplings in some of R iterations; intervals as in `Parts`.

    Column r of "alone" replaces couplings in iteration r. "onward" also replaces them in all later
    ones. The other iterations route normally. Differences are to the image's own couplings, given
    back.
    """

    layer: int | None  # a layer below the classes, by its number; None: that of the classes
    donors: list[str]  # (3,) source of the couplings, from its last iteration
    own: dict[str, Estimate]  # (3, R) share classified as the recipient
    partner: dict[str, Estimate]  # (3, R) share classified as the other-class donor
    neither: dict[str, Estimate]  # (3, R) share classified as a third class, or tied
    own_change: dict[str, Estimate]  # (3, R) change of activation of the recipient's class
    partner_change: dict[str, Estimate]  # (3, R) the same of the donor's class
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
        """Use a donor's last couplings in some iterations, and normal routing in the others."""
        from capsviz.analyses.transplant.measure import by_iteration

        fields = by_iteration(network, images.cpu(), layer, seed, progress)
        return Rounds(**fields, donors=list(DONORS), classes=list(classes), dataset=dataset)

    def found(self, result) -> str:
        whole, alone = result.partner["onward"][2, 0], result.partner["alone"][2, :-1]
        undone = "the iterations that follow undo an exchange in one iteration for some pairs"
        return " ".join([
            shown(whole.low > MOST, "most pairs follow the donor in all iterations at dose 1"),
            shown(alone.high.max() < whole.low, undone),
        ])  # fmt: skip
