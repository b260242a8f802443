"""Couplings whose deviation from uniform is scaled: how large must it be to move the class?"""

from typing import Annotated, Literal, NamedTuple

import numpy as np

from capsviz.analyses.transplant.pairs import Exchange
from capsviz.analyses.transplant.parts import BY
from capsviz.analysis import Default, Flag, Iterations, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import mean_interval
from capsviz.statistics.replicates import within_one

CONDITIONS = (DONOR, SHUFFLED, MEAN, STEEPEST, NOISE) = (
    "donor",
    "donor, shuffled",
    "mean of the donor's class",
    "worst direction",
    "noise",
)
DOSES = (-1.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


def _over_runs(parts):
    """Geometric mean over training runs, with its interval; NaN where one does not reach half."""
    values = np.stack([one.value for one in parts])
    mean, ends = mean_interval(np.log(values))
    return Estimate(np.exp(mean), np.exp(ends), parts[0].n, runs=values)


def _dose(result, value: float) -> str:
    """Return a dose at which half follow, in words beyond those that were measured."""
    most, least = result.doses.max(), result.doses[result.doses > 0].min()
    if np.isnan(value):
        return f"> {most:g}"
    return f"≤ {least:g}" if value <= least else f"{value:.2f}"


class Doses(NamedTuple):
    """N pairs under K conditions and D doses; intervals are 95 %, as `explain.md` says.

    At dose d, couplings are uniform ones plus d times a deviation, in every iteration. They may be
    below 0 or above 1.
    """

    conditions: list[str]  # (K,) whose deviation
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
    clipped: bool = False  # couplings below 0 are set to 0, each capsule's total kept

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
    formats = {"follow": ".1%", "keep": ".1%", "half": _dose, "deviation_sd": ".4f"}
    some = {"follow": "dose 1"}
    over_runs = {
        "couples": min, "n": min, "half": _over_runs, "follow": within_one, "keep": within_one
    }  # fmt: skip

    @property
    def dose_names(self) -> list[str]:
        """Names of the doses."""
        return [f"dose {dose:g}" for dose in self.doses]

    def at(self, condition: str, dose: float) -> Estimate | None:
        """Return the share that follows the donor; None if it was not measured."""
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
    usual_n = 1000
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
        """Scale the deviation of donors' couplings, and of controls, pair by pair.

        The seed is of the couples, the shuffles, the noise and the bootstrap.
        """
        from capsviz.analyses.transplant.measure import over_doses

        self.check(doses=doses)
        fields = over_doses(
            network, images.cpu(), np.unique(np.array(doses, float)), iterations=iterations,
            seed=seed, progress=progress,
        )  # fmt: skip
        steep = len(fields["half"]) == len(CONDITIONS)  # the worst direction is known
        conditions = [one for one in CONDITIONS if steep or one != STEEPEST]
        return Doses(**fields, conditions=conditions, classes=list(classes), dataset=dataset)

    def check(self, *, doses=DOSES, **_) -> None:
        """Refuse doses that are not finite, or of which none is above 0."""
        if not np.isfinite(doses).all() or not any(one > 0 for one in doses):
            given = ", ".join(f"{one:g}" for one in doses) or "none"
            raise ValueError(f"expected finite doses, one above 0 (--dose), got {given}")

    def found(self, result) -> str:
        shares = {dose: result.at(DONOR, dose) for dose in (1, -1)}
        known = ((dose, share) for dose, share in shares.items() if share is not None)
        texts = [f"At dose {d}, {one:.1%} of the pairs follow the donor." for d, one in known]
        clipped = "Couplings below 0 are set to 0: with them this routing is not finite."
        return " ".join([*texts, *[clipped] * result.clipped])
