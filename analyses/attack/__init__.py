"""Attack networks by APGD, Square, votes and transfer, and past a detector."""

from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Default, Flag, Range, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import mean, within, within_one

ATTACKS = ("apgd-ce", "apgd-dlr", "apgd-margin", "vote", "square", "transfer", "adaptive")
EPS = {  # default bounds, by norm and whether images are grey
    ("linf", True): (0.1, 0.2, 0.3), ("linf", False): (2 / 255, 4 / 255, 8 / 255),
    ("l2", True): (1.0, 2.0, 3.0), ("l2", False): (0.25, 0.5, 1.0),
}  # fmt: skip


class Result(NamedTuple):
    """K networks on N images under A attacks at E bounds; intervals are 95 %.

    Differences are to the first network, paired over the images. NaN: the attack does not apply.
    For the adaptive attack, accuracy is the share of images that are correct or flagged.
    """

    networks: list[str]
    attacks: list[str]  # A of ATTACKS
    eps: list[float]  # E bounds, ascending
    clean: Estimate  # (K,) accuracy on the original images; Wilson
    accuracy: Estimate  # (K, A, E) under each attack; Wilson
    worst: Estimate  # (K, E) share correct under every attack except the adaptive one; Wilson
    flagged: Estimate  # (K,) share of original images that the detector flags; Wilson
    unbounded: np.ndarray  # (K,) accuracy with an unbounded perturbation; 0 if attacks work
    square_alone: Estimate  # (K, E) share fooled by Square but no APGD, minus the reverse
    zero: np.ndarray  # (K, A) share of correct original images whose gradient is exactly zero
    stuck: np.ndarray  # (K, A) share of attacked images that never had a gradient
    curve: np.ndarray  # (K, A, E, T) accuracy after each share of the steps of all starts
    margin: np.ndarray  # (K, A, E, T) largest margin of another class so far, mean over attacked
    # images; `curve` and `margin` are NaN for transfer, whose steps are those of another network
    fooled: np.ndarray  # (K, A, N) index of the first bound that fools; E: none, -1: misclassified
    # without attack (for the adaptive attack: and not flagged)
    warnings: list[str]  # signs that an attack is too weak
    missing: list[str]  # attacks that do not apply, and why
    parameters: list[int]  # number of each network
    weights: list[str]  # SHA-256 of each network's weights
    source: str | None  # network that `transfer` attacks
    norm: str
    steps: int
    restarts: int
    queries: int
    seed: int
    n: int
    dataset: str
    version: str  # of capsviz

    axes = {
        "clean": ("networks",), "flagged": ("networks",),
        "accuracy": ("networks", "attacks", "eps"),
        "worst": ("networks", "eps"), "square_alone": ("networks", "eps"),
    }  # fmt: skip
    formats = dict.fromkeys(("clean", "accuracy", "worst", "flagged", "square_alone"), ".1%")
    titles = {
        "clean": "accuracy on original images",
        "worst": "accuracy, worst of all attacks",
        "flagged": "original images flagged by the detector",
        "square_alone": "fooled by Square alone, less by APGD alone",
    }
    over_runs = {
        **dict.fromkeys(("unbounded", "zero", "stuck", "curve", "margin"), mean),
        **dict.fromkeys(("clean", "accuracy", "worst", "flagged"), within_one),
        "square_alone": within(-1, 1),
        "warnings": lambda runs: [*dict.fromkeys(text for one in runs for text in one)],
    }


class Attack(Analysis):
    """Accuracy of networks against the bound of several attacks, with checks of the attacks."""

    Result = Result
    examples = """
    capsviz attack --n 200 --only apgd-ce  # about 2 min for the two networks it takes
    capsviz attack --network mine.py:build --n 200  # about 20 min for a CapsNet
    """
    usual_n = 200
    figure_set = None
    headline = ("clean", "worst")

    def measure(
        self,
        networks,
        images,
        labels,
        *,
        dataset,
        inputs=None,
        progress=iter,
        only: Annotated[
            tuple[str, ...],
            f"An attack: {', '.join(ATTACKS)}; may be given several times.",
            Flag("--only", metavar="ATTACK"),
            Default("all that apply"),
        ] = (),
        eps: Annotated[
            tuple[float, ...],
            "Bound of the change, pixels in [0, 1]; may be given several times.",
            Default(
                "0.1, 0.2, 0.3, colour images 2/255, 4/255, 8/255; with --norm l2 1, 2, 3, colour "
                "images 0.25, 0.5, 1"
            ),
        ] = (),
        norm: Annotated[Literal["linf", "l2"], "Norm of the change."] = "linf",
        steps: Annotated[int, Range(1), "Steps of APGD."] = 50,
        restarts: Annotated[int, Range(1), "Random starts of APGD."] = 1,
        queries: Annotated[int, Range(1), "Queries of Square."] = 500,
        seed: Seed = 0,
    ) -> Result:
        """Attack N images (N, C, H, W) in [0, 1] on K networks at growing bounds."""
        from capsviz import __version__
        from capsviz.analyses.attack import measure as by

        images, labels = images.cpu(), labels.cpu()
        bounds = sorted(eps) or list(EPS[norm, images.shape[1] == 1])
        plan = by.Plan(bounds, norm, steps, restarts, queries, seed)
        names = [name for name in ATTACKS if not only or name in only]
        work = by.Work(networks, images, labels, names, plan, inputs, strict=bool(only))
        return Result(
            networks=list(networks),
            attacks=work.names,
            **plan._asdict(),
            **by.statistics(work, work.run(progress)),
            missing=work.missing,
            parameters=[sum(p.numel() for p in one.parameters()) for one in networks.values()],
            weights=list(work.digests.values()),
            source=work.source if "transfer" in work.names else None,
            n=len(images),
            dataset=dataset,
            version=__version__,
        )

    def check(self, *, only, eps, norm, queries, **_) -> None:
        from capsviz.discovery import require_known
        from capsviz.experiments import attacks

        for name in only:
            require_known("attack", name, ATTACKS)
        if "square" not in (only or ATTACKS) and queries != 500:
            raise ValueError("--queries is for Square: drop it, or add --only square")
        if eps:
            attacks.check(eps, norm=norm)

    def verdict(self, result) -> str:
        texts = [f"Warning: {one}." for one in result.warnings]
        texts = texts or ["No check of the attacks fails."]
        return " ".join([*texts, *(f"{one}." for one in result.missing)])

    def table(self, result) -> Any:
        from capsviz.analyses.attack import draw

        return draw.HEADER, draw.rows(result), draw.about(result)
