"""Faithfulness of maps in pixels, over many images."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsviz.analyses.faithfulness.image import TARGETS, Steps, Target, shown_by
from capsviz.analysis import Analysis, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import within, within_one
from capsviz.statistics.words import told

SHARES = ("curves", "deletion", "insertion", "infidelity")
CONTROLS = {"ink": "the order by brightness", "|u| map": "the |u| map"}  # know nothing of a class


class Statistics(NamedTuple):
    """N images under M maps, controls first; differences are to pixels in random order."""

    names: list[str]  # (M,)
    shares: np.ndarray  # (S,) of the pixels that are removed, or shown
    curves: Estimate  # (2, M, S) mean score of the class: deletion, insertion
    deletion: Estimate  # (M,) area
    insertion: Estimate  # (M,) area
    gap: Estimate  # (M,) insertion minus deletion
    infidelity: Estimate  # (M,) in [0, 1]; its n: images of which some square changes the score
    routed_less: Estimate | None  # (M,) gap of the routing map minus each one's; None: no such map
    stages: list[str]  # (L,) lowest layer with random weights; all above it have them too
    sanity: Estimate  # (M, L) correlation with the map before; its n: draws; NaN: none
    left_out: list[str]  # what the network has no map for, and why
    target: str  # "read" (the predicted class) or "true": the class that is explained
    n: int
    classes: list[str]
    dataset: str
    quantity: dict[str, str] | None = None  # what the routing map shows, in words; None: c (û·v̂)

    axes = {
        "curves": (("deletion", "insertion"), "names", "shares"),
        **dict.fromkeys(("deletion", "insertion", "gap", "infidelity", "routed_less"), ("names",)),
        "sanity": ("names", "stages"),
    }
    formats = dict.fromkeys((*SHARES, "gap", "routed_less", "sanity"), ".3f")
    titles = {
        "deletion": "area under deletion",
        "insertion": "area under insertion",
        "gap": "insertion minus deletion",
        "routed_less": "routing map's minus that of",
        "sanity": "rank correlation with the map before randomisation",
    }
    over_runs = dict.fromkeys(SHARES, within_one) | dict.fromkeys(("gap", "sanity"), within(-1, 1))


class OverImages(Analysis):
    """Deletion, insertion, infidelity and sanity of maps over many images."""

    Result = Statistics
    figure_set = None  # it takes too long
    headline = ("gap",)

    def measure(
        self, network, images, labels, *, classes, dataset, progress=iter,
        target: Target = "read", steps: Steps = 8, seed: Seed = 0,
    ):  # fmt: skip
        """Judge the maps of N images (N, C, H, W) with labels (N,).

        The seed is that of the random order, of ties, squares, random weights and the bootstrap.

        Raises
        ------
        ValueError  for fewer than 2 images, or scores without a gradient.
        """
        import torch

        from capsviz.analyses.faithfulness import maps, measures
        from capsviz.experiments.attacks import frozen
        from capsviz.nn.images import like_of
        from capsviz.statistics.intervals import mean_interval, require_two

        images, labels = images.cpu(), labels.cpu()
        require_two(len(images))
        generator = torch.Generator().manual_seed(seed)
        targets = measures.explained_classes(network, images, labels, target)
        first, shares, judged = images[:1].to(like_of(network)), measures.grid_of(steps), []
        with frozen(network):
            methods, left_out = maps.methods(network, first, seed)
            for rows in progress(torch.arange(len(images)).split(measures.AT_A_TIME)):
                some, chosen = images[rows], targets[rows]
                batch = some.to(first), chosen.to(first.device)
                own = [method(*batch) for method in methods.values()]
                judged.append(measures.judged(network, some, chosen, own, shares, generator))
            stages = measures.stages(network, first)
            correlations = measures.under_draws(
                network, methods, images, targets, stages, generator
            )
        names = list(methods)
        drawn = torch.cat([one for one, _ in judged], 2)
        errors = torch.cat([one for _, one in judged], 1)
        changed = ~errors.isnan().any(0)
        return Statistics(
            **measures.areas(names, drawn, shares, seed),
            infidelity=measures.means(errors[:, changed], seed).undrawn(),
            stages=[stage.name for stage in stages],
            sanity=Estimate(*mean_interval(correlations.numpy()), len(correlations)),
            left_out=left_out,
            target=target,
            classes=list(classes),
            dataset=dataset,
            quantity=maps.own_quantity(network, first, names),
        )

    def parts(self, result) -> tuple[str, ...]:
        return ("", "curves")

    def draw(self, result, *, width=7.16, part=""):
        from capsviz.analyses.faithfulness import draw

        if part == "curves":
            rows = [("score of the class", result.curves.value, result.curves.ci95)]
            return draw.curves(result, rows, width, title=f"{result.n:,} images, bands: 95 %")
        return draw.judgements(result, TARGETS[result.target], width)

    def verdict(self, result) -> str:
        rivals = {"routing map, uniform": "uniform couplings", **CONTROLS}
        return compared(result, rivals, "insertion minus deletion")

    def caption(self, result, part="") -> str:
        score, images = TARGETS[result.target], f"{result.n:,} {result.dataset} images"
        if part == "curves":
            return (
                f"Mean score of {score} when pixels are removed, or are shown alone, in the order "
                f"of a map. Bands: 95 % intervals over {images}."
            )
        return (
            f"Faithfulness of maps: area under insertion minus deletion of the score of {score}; "
            "infidelity, the share of squared losses by black squares that a map leaves "
            "unexplained; and rank correlation of a map with itself after layers get random "
            f"weights ({result.sanity.n} draws). Bars: 95 % intervals over {images}."
            f"{shown_by(result)}"
        )


def compared(result, rivals: dict[str, str], measure: str) -> str:
    """Say whether the routing map is more faithful than other maps, and what was left out."""
    clauses, apart = [], result.routed_less
    for name in () if apart is None else (name for name in rivals if name in result.names):
        less = apart[result.names.index(name)]
        more = told(less, "more", "less", "not clearly more")
        clauses.append(f"{more} faithful than {rivals[name]}")
    text = f"By {measure}, the routing map is {', '.join(clauses)}." if clauses else ""
    return " ".join(filter(None, [text, *(f"{one}." for one in result.left_out)]))
