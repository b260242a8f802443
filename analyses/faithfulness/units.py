"""Faithfulness where a map lives: positions and primary capsules are removed in its order."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import numpy as np

from capsviz.analyses.faithfulness.pixels import Statistics, Steps, compared
from capsviz.analysis import Analysis, Default, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import within, within_one

WHAT = {"positions": "positions", "capsules": "primary capsules", "pixels": "pixels"}


class Units(NamedTuple):
    """N images under M maps, controls first; differences are to the constant map."""

    names: list[str]  # (M,)
    shares: np.ndarray  # (S,) of the units that are removed, or there alone
    curves: Estimate  # (2, M, S) mean activation of the class: deletion, insertion
    accuracy: Estimate  # (2, M, S)
    deletion: Estimate  # (M,) area
    insertion: Estimate  # (M,) area
    gap: Estimate  # (M,) insertion minus deletion
    routed_less: Estimate | None  # (M,) gap of the routing map minus each one's
    accuracy_gap: Estimate  # (M,) insertion minus deletion of the accuracy
    apart: Estimate | None  # (M,) AUROC: positions of the object against others; None: one object
    over: str  # "positions", "capsules" or "pixels"
    scene: str  # "clean", "cluttered" or "two-digits"
    left_out: list[str]  # what the network has no map for, and why
    n: int
    classes: list[str]
    dataset: str

    axes = {k: v for k, v in Statistics.axes.items() if k not in ("infidelity", "sanity")} | {
        "accuracy": Statistics.axes["curves"],
        **dict.fromkeys(("accuracy_gap", "apart"), ("names",)),
    }
    formats = dict.fromkeys(axes, ".3f")
    titles = {k: v for k, v in Statistics.titles.items() if k != "sanity"} | {
        "accuracy_gap": "insertion minus deletion of the accuracy",
        "apart": "AUROC of the object's positions",
    }
    over_runs = dict.fromkeys(
        ("curves", "accuracy", "deletion", "insertion", "apart"), within_one
    ) | dict.fromkeys(("gap", "accuracy_gap"), within(-1, 1))


class OverUnits(Analysis):
    """Deletion and insertion of positions, primary capsules or pixels by maps of routing."""

    Result = Units
    panels = "draw:UNITS"
    needs = ("votes", "couplings", "interventions", "from_children")
    examples = "capsviz faithfulness --over positions  # about 1 min"
    usual_n = 100
    figure_set = None  # it takes too long
    headline = ("gap", "apart")

    def measure(
        self,
        inputs,
        n,
        *,
        progress=iter,
        over: Annotated[
            Literal["positions", "capsules", "pixels"] | None,
            "What is removed in the order of maps of routing.",
            Default("pixels, by all maps"),
        ] = None,
        scene: Annotated[
            Literal["clean", "cluttered", "two-digits"],
            "Images as they are, among pieces of others, or two in one; with --over.",
        ] = "clean",
        steps: Steps = 8,
        seed: Seed = 0,
    ):
        """Remove units of n images in the order of maps of their true class, and add them."""
        from capsviz.analyses.faithfulness import measures
        from capsviz.statistics.intervals import require_two

        require_two(n)
        over, part, shares = over or "positions", inputs.dataset.sample(n), measures.grid_of(steps)
        names, drawn, apart, left_out = measures.measured(
            inputs.model, measures.make(part, scene, seed), over, shares, seed, progress
        )
        activation, accuracy = (measures.areas(names, one, shares, seed) for one in drawn)
        return Units(
            **activation,
            accuracy=accuracy["curves"],
            accuracy_gap=accuracy["gap"],
            apart=None if apart is None else measures.means(apart, seed).undrawn(),
            over=over,
            scene=scene,
            left_out=left_out,
            classes=list(part.classes),
            dataset=part.name,
        )

    def verdict(self, result) -> str:
        own = ("routing map", "routing map, evenly")
        return compared(result, [name for name in result.names if name not in own])

    def caption(self, result, part="") -> str:
        what, images = WHAT[result.over], f"{result.n:,} {result.dataset} images"
        images += "" if result.scene == "clean" else f" ({result.scene} scenes)"
        if part == "curves":
            return (
                f"Mean activation of the true class, and accuracy, when {what} are removed, or are "
                "there alone, in the order of a map. Grey and black: controls. "
                f"Bands: 95 % intervals over {images}."
            )
        also = "; and AUROC of a map for the object's positions" * (result.apart is not None)
        return (
            "Area under insertion minus deletion of the true class's activation when "
            f"{what} are removed in the order of a map, or of the accuracy{also}. "
            f"Bars: 95 % intervals over {images}."
        )

    def stem(self, base, result) -> str:
        kind = result.over if result.scene == "clean" else f"{result.over}-{result.scene}"
        return base.replace(f"-{result.n}-images", f"-{kind}-{result.n}-images")
