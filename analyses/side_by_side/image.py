"""One image in two networks with capsules."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsviz.analyses.side_by_side.statistics import NEEDS, require_two_networks
from capsviz.analysis import Analysis
from capsviz.nn.quantity import words_of
from capsviz.statistics.words import strongest


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


class OneImage(Analysis):
    """Couplings, evidence and activations of one image in two networks."""

    Result = Result
    needs = NEEDS
    examples = """
    capsviz side-by-side --checkpoint digits --checkpoint digits-matrix --digit 2  # 10 s
    """
    figure_set = None

    def measure(self, networks, image, label=None, *, classes) -> Result:
        """Look at one image in two networks, as `routing` does in each.

        Raises
        ------
        ValueError  for other than 2 networks, or one that lacks what is drawn.
        """
        import torch

        from capsviz.analyses import routing
        from capsviz.tracing import trace
        from capsviz.tracing.many import require_all_to_all
        from capsviz.tracing.needs import routing_words

        require_two_networks(networks)
        image, looks, parents = image.cpu(), {}, []
        for name, network in networks.items():
            require_all_to_all(trace(network, image, keep=("couplings",)).couplings)
            looks[name] = routing.OneImage().measure(network, image, label, classes=classes)
            parents.append(torch.from_numpy(looks[name].entropy_nats[-1]).exp())

        def stacked(field):
            return np.stack([getattr(one, field) for one in looks.values()])

        def named(field):
            return {name: getattr(one, field) for name, one in looks.items()}

        activations = stacked("activations")
        return Result(
            image=next(iter(looks.values())).image,
            networks=list(networks),
            words=[routing_words(network) for network in networks.values()],
            couplings={name: one.couplings[-1] for name, one in looks.items()},
            effective=np.array([float(one.mean()) for one in parents]),
            effective_band=np.stack([np.quantile(one.numpy(), [0.05, 0.95]) for one in parents]),
            coupling_sd=np.array([float(one.coupling_sd[-1]) for one in looks.values()]),
            activations=activations,
            uniform_activations=stacked("uniform_activations"),
            maps=named("maps"),
            uniform_maps=named("uniform_maps"),
            type_evidence=named("type_evidence"),
            uniform_type_evidence=named("uniform_type_evidence"),
            sums=stacked("map_sums"),
            uniform_sums=stacked("uniform_map_sums"),
            quantities={name: words_of(one.quantity) for name, one in looks.items()},
            extents_px=named("extent_px"),
            shown=_two_classes(activations),
            classes=list(classes),
            label=label,
        )

    def draw(self, result, *, width=7.16, part=""):
        """Draw couplings, evidence and activations, a row for each network."""
        from capsviz.analyses.side_by_side import draw

        return draw.image(result, width)

    def verdict(self, result) -> str:
        """Say what each network predicts, and how its couplings spread."""
        J, lines = len(result.classes), []
        for k, name in enumerate(result.networks):
            own, uniform = (
                f"{strongest(result.classes, values[k])} ({float(values[k].max()):.3f})"
                for values in (result.activations, result.uniform_activations)
            )
            lines.append(
                f"'{name}' classifies the image as {own}, and with uniform couplings as {uniform}. "
                f"Its capsules have {result.effective[k]:.2f} of {J} effective parents."
            )
        return "\n".join(lines)

    def caption(self, result, part="") -> str:
        """Return what the picture shows."""
        pair = " and ".join(result.classes[j] for j in result.shown)
        return (
            "One image in two networks, each with colour scales of its own: couplings of the last "
            f"iteration, the evidence for {pair}, and activations. The evidence adds up to what is "
            "named above it (Σ)."
        )


def _two_classes(activations: np.ndarray) -> list[int]:
    """Return the class that the first of K networks predicts, and the next to it: of (K, J)."""
    first = int(activations[0].argmax())
    relative = activations / activations.max(1, keepdims=True).clip(1e-12)
    relative[:, first] = -1
    return [first, int(relative.max(0).argmax())]
