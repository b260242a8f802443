"""Two networks on one image: how do couplings, evidence and predictions differ?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Seed
from capsviz.nn.quantity import words_of
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.words import strongest, word_for

NEEDS = ("votes", "couplings", "poses", "interventions")
SHARES = ("accuracy", "uniform_accuracy", "cost", "agreement")


class Result(NamedTuple):
    """One image in K networks; what differs in shape is by the network's name."""

    image: np.ndarray  # (C, H, W) uint8
    networks: list[str]  # (K,)
    words: list[str]  # (K,) how each routes, in a line
    couplings: dict[str, np.ndarray]  # (types, J) last iteration, mean over a type's positions
    effective: np.ndarray  # (K,) parents of a capsule, mean over capsules
    effective_band: np.ndarray  # (K, 2) 5 and 95 % of its capsules
    coupling_sd: np.ndarray  # (K,) about uniform couplings
    activations: np.ndarray  # (K, J)
    uniform_activations: np.ndarray  # (K, J)
    maps: dict[str, np.ndarray | None]  # (J, rows, columns); None: capsules at one position
    uniform_maps: dict[str, np.ndarray | None]  # (J, rows, columns)
    type_evidence: dict[str, np.ndarray | None]  # (types, J) in place of maps
    uniform_type_evidence: dict[str, np.ndarray | None]  # (types, J)
    sums: np.ndarray  # (K, J) evidence of all capsules
    uniform_sums: np.ndarray  # (K, J)
    quantities: dict[str, dict[str, str]]  # what the evidence is, in words
    extents_px: dict[str, list[float] | None]  # left, right, bottom, top of the maps on the image
    shown: list[int]  # classes whose maps are drawn
    classes: list[str]
    label: int | None  # true class, if it is known


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

    axes = dict.fromkeys((*SHARES, "effective_parents"), ("networks",))
    formats = {**dict.fromkeys(SHARES, ".1%"), "effective_parents": ".2f"}
    titles = {"cost": "cost of uniform couplings", "agreement": "classified as by the first"}


class OneImage(Analysis):
    """Couplings, evidence and activations of one image in two networks."""

    Result = Result
    needs = NEEDS
    examples = """
    capsviz side-by-side --checkpoint digits --checkpoint digits-matrix --digit 2  # 10 s
    """
    figure_set = None

    def measure(self, networks, image, label=None, *, classes) -> Result:
        """Look at one image in two networks, routed and with uniform couplings."""
        from capsviz.tracing import coupling_sd, measures, trace
        from capsviz.tracing.many import require_all_to_all
        from capsviz.tracing.needs import routing_words
        from capsviz.transforms.augment import to_uint8

        require_two_networks(networks)
        image, keep, looks = image.cpu(), (*measures.INSIDE, "evidence"), {}
        for name, network in networks.items():
            routed = trace(network, image, keep=keep)
            require_all_to_all(routed.require("couplings"))
            uniform = trace(network, image, keep=keep, couplings="uniform")
            own, control = measures.evidence_of(routed), measures.evidence_of(uniform)
            couplings = routed.require("couplings")[-1, 0]
            parents = measures.entropy(couplings).exp()
            looks[name] = {
                "couplings": measures.by_type(couplings, routed.grid).numpy(),
                "effective": float(parents.mean()),
                "effective_band": np.quantile(parents.numpy(), [0.05, 0.95]),
                "coupling_sd": float(coupling_sd(couplings)),
                "activations": routed.require("lengths")[0].float().numpy(),
                "uniform_activations": uniform.require("lengths")[0].float().numpy(),
                "maps": own.maps,
                "uniform_maps": control.maps,
                "type_evidence": own.types,
                "uniform_type_evidence": control.types,
                "sums": own.sums,
                "uniform_sums": control.sums,
                "quantities": words_of(own.quantity),
                "extents_px": None if own.maps is None else list(routed.extent or ()),
            }
        named = ("couplings", "maps", "uniform_maps", "type_evidence", "uniform_type_evidence",
                 "quantities", "extents_px")  # fmt: skip
        fields: dict = {}
        for field in next(iter(looks.values())):
            each = {name: look[field] for name, look in looks.items()}
            fields[field] = each if field in named else np.stack(list(each.values()))
        return Result(
            image=to_uint8(image[0]),
            networks=list(networks),
            words=[routing_words(network) for network in networks.values()],
            **fields,
            shown=_two_classes(fields["activations"]),
            classes=list(classes),
            label=label,
        )

    def verdict(self, result) -> str:
        lines = [
            f"'{name}' classifies the image as {strongest(result.classes, routed)}, and with "
            f"uniform couplings as {strongest(result.classes, uniform)}. Its capsules have "
            f"{parents:.2f} of {len(result.classes)} effective parents."
            for name, routed, uniform, parents in zip(
                result.networks, result.activations, result.uniform_activations, result.effective,
                strict=True,
            )
        ]  # fmt: skip
        return "\n".join(lines)

    def caption(self, result, part="") -> str:
        true = "" if result.label is None else f" of class {result.classes[result.label]}"
        pair = " and ".join(result.classes[j] for j in result.shown)
        sums = " and ".join(
            f"{result.quantities[one]['words']} in {one}" for one in result.networks
        )
        return (
            f"One image{true} in two networks, each with its own colour scales: couplings of the "
            f"last iteration, the evidence for {pair}, and activations. The evidence of a class "
            f"adds up to Σ, which is {sums}."
        )


class OverImages(Analysis):
    """Accuracy, cost of uniform couplings and effective parents of two networks."""

    Result = Statistics
    panels = "draw:MANY"
    needs = NEEDS
    examples = """
    capsviz side-by-side --checkpoint digits --checkpoint digits-matrix --n 360  # 15 s
    """
    figure_set = None

    def measure(
        self, networks, images, labels, *, classes, dataset, progress=iter, seed: Seed = 0
    ) -> Statistics:
        """Compare two networks over the same images; the seed is of the bootstrap."""
        from capsviz.statistics.comparison import compare_changes, compare_means, draw_resamples
        from capsviz.tracing.needs import routing_words

        require_two_networks(networks)
        counts, images = draw_resamples(len(images), seed=seed), images.cpu()
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

    def verdict(self, result) -> str:
        first, second = (f"'{name}' is higher" for name in result.networks)
        accuracy, cost = (
            word_for(one.difference[1], second, first, "no measurable difference")
            for one in (result.accuracy, result.cost)
        )
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


def _two_classes(activations: np.ndarray) -> list[int]:
    """Return the class that the first of K networks predicts, and the next to it: of (K, J)."""
    first = int(activations[0].argmax())
    relative = activations / activations.max(1, keepdims=True).clip(1e-12)
    relative[:, first] = -1
    return [first, int(relative.max(0).argmax())]


def _predictions(network, images) -> tuple[np.ndarray, ...]:
    """Return the classes (N,) predicted, routed and with uniform couplings, and mean parents."""
    import torch

    from capsviz.tracing import CHUNK_IMAGES, measures, trace
    from capsviz.tracing.many import require_all_to_all, winners

    parts = []
    for some in images.split(CHUNK_IMAGES):
        uniform = trace(network, some, keep=("lengths",), couplings="uniform")
        routed = trace(network, some, keep=("couplings", "lengths"))
        couplings = routed.require("couplings")
        require_all_to_all(couplings)
        parents = measures.entropy(couplings[-1]).exp().mean(1)
        own, control = (winners(one.require("lengths")) for one in (routed, uniform))
        parts.append((own, control, parents))
    return tuple(torch.cat(one).numpy() for one in zip(*parts, strict=True))
