"""Couplings exchanged in single routing iterations: in one alone, and from one on."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from capsviz.analyses.transplant.pairs import MOST, with_reason
from capsviz.analyses.transplant.pairs_by_capsules import BY, stem_of
from capsviz.analysis import Analysis, Layer, Seed
from capsviz.statistics.estimate import Estimate

DONORS = ("own, given back", "same-class donor", "other-class donor")
ALONE, ONWARD = "alone", "onward"


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
    over_runs = {"couples": min, "n": min}


class ByIterations(Analysis):
    """What couplings of another image do in single routing iterations."""

    Result = Rounds
    needs = ("votes", "couplings", "interventions")
    examples = """
    capsviz transplant --by iterations  # about 10 s
    """
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
        """Give a donor's last couplings in some of the iterations, pair by pair; the others route.

        Raises
        ------
        ValueError  for a network whose couplings cannot be replaced in single iterations, a routing
                    of one pass, or images that make less than 4 couples.
        """
        import torch

        from capsviz.analyses.transplant import mixtures
        from capsviz.analyses.transplant.measure import over_pairs
        from capsviz.statistics.comparison import draw_resamples
        from capsviz.statistics.estimate import stack
        from capsviz.tracing.many import of_like_class, winners
        from capsviz.tracing.needs import reason, require

        images = images.cpu()
        number = mixtures.check(network, images, mixtures.COUPLINGS, layer)
        require(network, ("from_children",), "exchanging couplings of single iterations")
        count = len(mixtures.rounds(network, images, number))
        if count < 2:
            raise ValueError(
                "this network routes in one pass: expected a routing with iterations for --by "
                "iterations; use --by capsules, or --n N alone"
            )
        one = mixtures.layer_of(network, images[:1], mixtures.COUPLINGS, number)
        mixtures.under(network, one, torch.tensor([0]), [None] * count)  # refuses if it cannot
        state = mixtures.layer_of(network, images, mixtures.COUPLINGS, number)
        several = (state.read.bincount()[state.read] > 1).nonzero().flatten()  # same-class donors
        generator = torch.Generator().manual_seed(seed)
        first, other = (several[one] for one in mixtures.pairs_of(state.read[several], generator))
        own, partner = state.read[first], state.read[other]
        before = mixtures.under(network, state, first, None)

        def readings(donor, replaced: list[bool]):
            couplings = [state.couplings[donor] if one else None for one in replaced]
            after = mixtures.under(network, state, first, couplings)
            return mixtures.readings(after, before, own, partner, winners(after))

        donors = (first, of_like_class(state.read)[first], other)
        values = {mode: [] for mode in (ALONE, ONWARD)}
        for r in progress(range(count)):
            for mode, rows in values.items():
                replaced = listed(mode, r, count)
                rows.append(torch.stack([readings(donor, replaced) for donor in donors], 1))
        counts = draw_resamples(len(first) // 2, seed=seed)
        fields = {
            name: {
                mode: stack((over_pairs(one[k], counts, shares=k < 3) for one in rows), 1)
                for mode, rows in values.items()
            }
            for k, name in enumerate(mixtures.READINGS)
        }
        below = number != -1
        return Rounds(
            layer=number if below else None,
            donors=list(DONORS),
            **fields,
            couples=len(first) // 2,
            n=len(first),
            classes=list(classes),
            dataset=dataset,
            given=None if below else reason(network, "donor's class"),
        )

    def draw(self, result, *, width=7.16, part=""):
        """Draw predictions by the iterations that have other couplings."""
        from capsviz.analyses.transplant import draw

        return draw.iterations(result, width)

    def verdict(self, result) -> str:
        """Say whether the iterations that follow undo what was exchanged."""
        whole, alone = result.partner[ONWARD][2, 0], result.partner[ALONE][2, :-1]
        if float(whole.low) <= MOST:
            text = "Even in all iterations, most pairs do not follow the donor at dose 1."
        elif float(alone.high.max()) < float(whole.low):
            text = (
                "The iterations that follow undo the exchange: fewer pairs follow the donor if one "
                "iteration has its couplings than if all have."
            )
        elif float(alone.low.min()) > MOST:
            text = (
                "The iterations that follow do not undo the exchange: most pairs are classified as "
                "the donor even if only the first iteration has its couplings."
            )
        else:
            text = "How much the iterations that follow undo depends on the iteration."
        return with_reason(text, result.given)

    def caption(self, result, part="") -> str:
        """Return what the picture shows, and what its bars are."""
        return (
            "Predicted classes if the couplings of one routing iteration, or of all from it on, "
            "are those that another image, or the image itself, has in its last iteration. The "
            "other iterations route the votes by themselves. "
            "Bars: 95 % intervals over couples of images."
        )

    def stem(self, base, result) -> str:
        """Name what is exchanged, and the layer if it is not that of the classes."""
        return stem_of(base, "couplings-by-iterations", result.layer)


def listed(mode: str, r: int, count: int) -> list[bool]:
    """Return which of the iterations, from 0, have other couplings."""
    return [k == r or (mode == ONWARD and k > r) for k in range(count)]
