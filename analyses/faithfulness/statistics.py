"""Faithfulness of maps over many images."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsviz.analyses.faithfulness.image import (
    CONTROLS,
    TARGETS,
    Steps,
    Target,
    shown_by,
)
from capsviz.analysis import Analysis, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import within, within_one
from capsviz.statistics.words import told

SHARES = ("curves", "deletion", "insertion", "infidelity")
RIVALS = {
    "routing map, uniform": "uniform couplings",
    "ink": "the order by brightness",
    "|u| map": "the |u| map",
}


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
    extras = ("captum",)
    figure_set = None  # it takes too long
    headline = ("gap",)

    def measure(
        self, network, images, labels, *, classes, dataset, progress=iter,
        target: Target = "read", steps: Steps = 8, seed: Seed = 0,
    ) -> Statistics:  # fmt: skip
        """Judge the maps of N images (N, C, H, W) with labels (N,).

        The seed is that of the random order, of ties, squares, random weights and the bootstrap.

        Raises
        ------
        ImportError  without captum.
        ValueError   for fewer than 2 images, or scores without a gradient.
        """
        import torch

        from capsviz.analyses.faithfulness import curves, maps, measure, randomised
        from capsviz.experiments.attacks import frozen
        from capsviz.nn.images import like_of
        from capsviz.statistics.comparison import compare_means, draw_resamples
        from capsviz.statistics.intervals import mean_interval, require_two

        images, labels = images.cpu(), labels.cpu()
        require_two(len(images))
        generator = measure.generator_of(seed)
        targets = measure.explained_classes(network, images, labels, target)
        like, shares = like_of(network), curves.grid_of(steps)
        first = images[:1].to(like)
        drawn, errors = [], []
        with frozen(network):
            methods, left_out = maps.methods(network, first, seed)
            for rows in progress(torch.arange(len(images)).split(measure.AT_A_TIME)):
                batch, chosen = images[rows].to(like), targets[rows]
                own = [method.maps(batch, chosen.to(batch.device)) for method in methods]
                pair = measure.judged(network, images[rows], chosen, own, shares, generator)
                drawn.append(pair[0])
                errors.append(pair[1])
            stages = randomised.stages(network, first)
            correlations = measure.under_draws(network, methods, images, targets, stages, generator)
        names = [method.name for method in methods]
        drawn, errors = torch.cat(drawn, 2), torch.cat(errors, 1)
        counts = draw_resamples(len(images), seed=seed)

        def mean(values):
            return compare_means(values.numpy(), counts, shares=False)

        deletion, insertion = curves.area(drawn, shares)
        gap = insertion - deletion
        changed = ~errors.isnan().any(0)
        return Statistics(
            names=names,
            shares=shares.numpy(),
            curves=Estimate(*mean_interval(drawn.movedim(2, 0).numpy()), len(images)),
            deletion=mean(deletion),
            insertion=mean(insertion),
            gap=mean(gap),
            infidelity=measure.of_some(errors[:, changed].numpy(), seed),
            routed_less=mean(gap[names.index(maps.ROUTED)] - gap) if maps.ROUTED in names else None,
            stages=[stage.name for stage in stages],
            sanity=Estimate(*mean_interval(correlations.numpy()), len(correlations)),
            left_out=left_out,
            target=target,
            n=len(images),
            classes=list(classes),
            dataset=dataset,
            quantity=maps.own_quantity(network, first, names),
        )

    def parts(self, result) -> tuple[str, ...]:
        """Return the names of the pictures: the measures, and the curves."""
        return ("", "curves")

    def draw(self, result, *, width=7.16, part=""):
        """Draw the measures of each map, or the "curves"."""
        from capsviz.analyses.faithfulness import draw

        if part == "curves":
            bands, title = result.curves.ci95, f"{result.n:,} images, bands: 95 %"
            return draw.both_curves(result, result.curves.value, width, bands, title)
        return draw.judgements(result, TARGETS[result.target], width)

    def verdict(self, result) -> str:
        """Say whether the routing map is more faithful than its controls."""
        if result.routed_less is None:
            return " ".join(f"{one}." for one in result.left_out)
        less = dict(zip(result.names, result.routed_less, strict=True))
        known = {name: less[name] for name in RIVALS if name in less}
        clauses = [
            f"{told(one, 'more', 'less', 'not clearly more')} faithful than {RIVALS[name]}"
            for name, one in known.items()
        ]
        text = f"By insertion minus deletion, the routing map is {', '.join(clauses)}."
        controls = [known[name] for name in CONTROLS if name in known]
        if any(one.high <= 0 for one in controls):
            text += " Its order of pixels is no better than one that knows nothing of the class."
        elif any(one.low <= 0 for one in controls):
            text += " It is not shown to be better than an order that knows nothing of the class."
        return " ".join([text, *(f"{one}." for one in result.left_out)])

    def caption(self, result, part="") -> str:
        """Return what is shown, and what the bars or bands are."""
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
