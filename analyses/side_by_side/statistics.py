"""Many images in two networks with capsules, routed and with uniform couplings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Seed
from capsviz.statistics.estimate import Estimate

NEEDS = ("votes", "couplings", "poses", "interventions")


class Statistics(NamedTuple):
    """N test images in K networks; every difference is to the first network, on the same images."""

    networks: list[str]  # (K,)
    words: list[str]  # (K,) how each routes, in a line
    accuracy: Estimate  # (K,)
    uniform_accuracy: Estimate  # (K,) with uniform couplings
    cost: Estimate  # (K,) of uniform couplings: accuracy less that, paired
    effective_parents: Estimate  # (K,) mean over capsules and images
    agreement: Estimate  # (K,) images that are classified as by the first network
    classes: list[str]
    n: int
    dataset: str

    axes = dict.fromkeys(
        ("accuracy", "uniform_accuracy", "cost", "effective_parents", "agreement"), ("networks",)
    )
    formats = dict.fromkeys(("accuracy", "uniform_accuracy", "cost", "agreement"), ".1%") | {
        "effective_parents": ".2f"
    }
    titles = {"cost": "cost of uniform couplings", "agreement": "classified as by the first"}


class OverImages(Analysis):
    """Accuracy, cost of uniform couplings and effective parents of two networks."""

    Result = Statistics
    needs = NEEDS
    examples = """
    capsviz side-by-side --checkpoint digits --checkpoint digits-matrix --n 360  # 15 s
    """
    figure_set = None

    def measure(
        self, networks, images, labels, *, classes, dataset, progress=iter, seed: Seed = 0
    ) -> Statistics:
        """Compare two networks over the same images; the seed is of the bootstrap.

        Raises
        ------
        ValueError  for fewer than 2 images, other than 2 networks, or one that lacks what is
                    measured.
        """
        from capsviz.statistics.comparison import compare_changes, compare_means, draw_resamples
        from capsviz.tracing import trace
        from capsviz.tracing.many import require_all_to_all
        from capsviz.tracing.needs import routing_words

        require_two_networks(networks)
        counts, images = draw_resamples(len(images), seed=seed), images.cpu()
        for network in networks.values():  # refuses what cannot be measured before all is
            require_all_to_all(trace(network, images[:1], keep=("couplings",)).couplings)
            trace(network, images[:1], keep=("lengths",), couplings="uniform")
        found = [_predictions(network, images) for network in progress(list(networks.values()))]
        predicted, uniform, effective = (np.stack(one) for one in zip(*found, strict=True))
        truth = labels.cpu().numpy()
        right, right_uniform = ((one == truth).astype(float) for one in (predicted, uniform))
        return Statistics(
            networks=list(networks),
            words=[routing_words(network) for network in networks.values()],
            accuracy=compare_means(right, counts),
            uniform_accuracy=compare_means(right_uniform, counts),
            cost=compare_changes(right_uniform, right, counts),
            effective_parents=compare_means(effective, counts, shares=False),
            agreement=compare_means((predicted == predicted[0]).astype(float), counts),
            classes=list(classes),
            n=len(images),
            dataset=dataset,
        )

    def draw(self, result, *, width=7.16, part=""):
        from capsviz.analyses.side_by_side import draw

        return draw.statistics(result, width)

    def verdict(self, result) -> str:
        from capsviz.statistics.words import told

        first, second = result.networks
        accuracy, cost = (
            told(one.difference[1], f"'{second}' is higher", f"'{first}' is higher",
                 "no measurable difference")
            for one in (result.accuracy, result.cost)
        )  # fmt: skip
        return f"Accuracy: {accuracy}. Cost of uniform couplings: {cost}."

    def caption(self, result, part="") -> str:
        return (
            f"The networks {' and '.join(result.networks)} over {result.n:,} {result.dataset} test "
            "images: accuracy with routing and with uniform couplings, the accuracy that uniform "
            "couplings cost, and effective parents. Bars: 95 % intervals over images."
        )


def require_two_networks(networks: Mapping) -> None:
    """ValueError for other than two networks, or one without what is compared."""
    from capsviz.tracing import needs

    if len(networks) != 2:
        raise ValueError(
            f"expected two networks with capsules, got {len(networks)}: name them, as by "
            "--checkpoint digits --checkpoint digits-matrix"
        )
    for name, network in networks.items():
        needs.require(network, NEEDS, f"'{name}' cannot be set beside another: side-by-side")


def _predictions(network, images) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the classes (N,) predicted, routed and with uniform couplings, and mean parents."""
    import torch

    from capsviz.tracing import CHUNK_IMAGES, measures, trace
    from capsviz.tracing.many import winners

    parts = []
    for some in images.split(CHUNK_IMAGES):
        routed = trace(network, some, keep=("couplings", "lengths"))
        uniform = trace(network, some, keep=("lengths",), couplings="uniform")
        parents = measures.entropy(routed.couplings[-1]).exp().mean(1)
        parts.append((winners(routed.lengths), winners(uniform.lengths), parents))
    predicted, uniform, parents = (torch.cat(one).numpy() for one in zip(*parts, strict=True))
    return predicted, uniform, parents
