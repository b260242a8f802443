"""One capsule type, or one position, exchanged after the other, in many pairs of images."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import numpy as np

from capsviz.analyses.transplant.pairs import with_reason
from capsviz.analysis import Analysis, Layer, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import mean
from capsviz.statistics.words import told

SAME = 1e-4  # of activations: exchanged as a whole, they are the donor's
NOUNS = {"types": "capsule type", "places": "position", "children": "group of capsules"}
WHAT = {
    "couplings": "their couplings are a donor's, and their votes are kept",
    "children": "they are a donor's, and routing runs by itself",
    "poses": "the directions of their poses are a donor's, and their lengths are kept",
}
# Types and groups of capsules are in another order in each training run; positions are not.
UNORDERED = dict.fromkeys(("types", "children"))
BY = (
    "Exchange one type and one position at a time, or couplings in one routing iteration at a "
    "time, or couplings whose deviation from uniform is multiplied by doses."
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
    kinds: list[str]  # "types" and "places", or "children": groups by number
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


class ByCapsules(Analysis):
    """What each capsule type and each position does, if it alone is a donor's."""

    Result = Parts
    needs = ("votes", "couplings", "interventions")
    examples = """
    capsviz transplant --of children  # about 10 s
    """
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

        Raises
        ------
        ValueError  for what the network cannot exchange, or images that make less than 4 couples.
        """
        import torch

        from capsviz.analyses.transplant import mixtures
        from capsviz.analyses.transplant.measure import over_pairs
        from capsviz.statistics.comparison import draw_resamples
        from capsviz.tracing.many import winners
        from capsviz.tracing.needs import reason

        images = images.cpu()
        number = mixtures.check(network, images, of, layer)
        state = mixtures.layer_of(network, images, of, number)
        generator = torch.Generator().manual_seed(seed)
        first, other = mixtures.pairs_of(state.read, generator)
        own, partner = state.read[first], state.read[other]
        nothing = torch.zeros(state.count, dtype=torch.bool)
        before = mixtures.mixed(network, state, first, other, nothing)

        def outcome(chosen):
            after = mixtures.mixed(network, state, first, other, chosen)
            return mixtures.readings(after, before, own, partner, winners(after))

        kinds, values = mixtures.members(state), {}
        steps = [(kind, k) for kind, parts in kinds.items() for k in range(-1, len(parts))]
        for kind, k in progress(steps):
            if k < 0:
                row = mixtures.at_random(outcome, state, kinds[kind], len(first), generator)
                values[kind] = [row]
            else:
                values[kind].append(outcome(kinds[kind][k]))
        values = {kind: torch.stack(rows, 1) for kind, rows in values.items()}  # (5, 1 + G, P)
        shares, some = mixtures.by_share(outcome, state, len(first), generator)
        counts = draw_resamples(len(first) // 2, seed=seed)
        fields = {
            name: {kind: over_pairs(rows[k], counts, shares=k < 3) for kind, rows in values.items()}
            for k, name in enumerate(mixtures.READINGS)
        }
        some_own, some_partner = (
            {kind: over_pairs(rows[:, k], counts, shares=True) for kind, rows in some.items()}
            for k in range(2)
        )
        ranked = {kind: mixtures.first_of(rows[4], seed) for kind, rows in values.items()}
        whole = mixtures.mixed(network, state, first, other, ~nothing)
        theirs = mixtures.mixed(network, state, other, first, nothing)
        below = number != -1
        return Parts(
            of=of,
            layer=number if below else None,
            grid=state.grid,
            kinds=list(kinds),
            sizes={kind: round(float(rows.sum(1).double().mean())) for kind, rows in kinds.items()},
            **fields,
            first={kind: one[0] for kind, one in ranked.items()},
            first_change={kind: one[1] for kind, one in ranked.items()},
            shares=shares,
            some_own=some_own,
            some_partner=some_partner,
            off=float((whole - theirs).abs().max()),
            couples=len(first) // 2,
            n=len(first),
            classes=list(classes),
            dataset=dataset,
            given=None if below or of != "couplings" else reason(network, "donor's class"),
        )

    def draw(self, result, *, width=7.16, part=""):
        """Draw positions as maps, types as points, and predictions by the share exchanged."""
        from capsviz.analyses.transplant import draw

        return draw.parts(result, width)

    def verdict(self, result) -> str:
        """Say what all parts together do, and whether one does more than random capsules."""
        where = "" if result.layer is None else f" of layer {result.layer}"
        whole = next(iter(result.some_partner.values()))[-1]
        text = (
            f"With all {result.of}{where} of a donor of another class, {whole:.1%} of the pairs "
            "are classified as the donor"
        )
        text += " (by definition: this checks the method)." if result.off < SAME else "."
        for kind in result.kinds:
            first, noun = result.first_change[kind][1], NOUNS[kind]
            name = "" if first.runs is not None else f" ({_name(result, kind)})"
            than = told(first.difference, "more than", "less than", "not measurably more than")
            text += (
                f"\nThe most effective {noun}{name} changes the activation of the donor's class "
                f"{than} as many random capsules."
            )
        return with_reason(text, result.given)

    def caption(self, result, part="") -> str:
        """Return what the picture shows, and what its bars are."""
        return (
            f"One part of the lower-level capsules after the other: {WHAT[result.of]}. Maps and "
            "points show the change of two activations, dashed lines that by as many random "
            "capsules; the last panel shows predictions by the share that is exchanged. "
            "Bars and bands: 95 % intervals over couples of images."
        )

    def stem(self, base, result) -> str:
        """Name what is exchanged, and the layer if it is not that of the classes."""
        return stem_of(base, f"{result.of}-by-capsules", result.layer)


def stem_of(base: str, what: str, layer: int | None) -> str:
    """Return the name of files with what is exchanged, and a layer, before the images."""
    head, number, images = base.rsplit("-", 2)
    where = "" if layer is None else f"-layer-{layer}"
    return f"{head}-{what}{where}-{number}-{images}"


def _name(result, kind: str) -> str:
    k = result.first[kind]
    if kind == "places":
        return f"row {k // result.grid[2]}, column {k % result.grid[2]}"
    return f"number {k}"
