"""The routing of one image, and of its control with uniform couplings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsviz.analyses.routing.statistics import NO_MAP, spread
from capsviz.analysis import Analysis, Iterations, Layer
from capsviz.nn.quantity import words_of
from capsviz.statistics.words import number, strongest


class Result(NamedTuple):
    """One image, R iterations; `uniform` is the same network with all couplings 1/J."""

    couplings: np.ndarray  # (R, types, J) mean over a type's positions; without a grid (R, I, J)
    entropy_nats: np.ndarray  # (R, I) of each capsule's couplings over classes
    agreement: np.ndarray  # (R, J) cosine of votes and pose, weighted by coupling
    maps: np.ndarray | None  # (J, rows, columns) evidence, last iteration; None: no positions
    map_sums: np.ndarray  # (J,) s_j · v̂_j, or what else the evidence adds up to
    input_norms: np.ndarray  # (J,) |s_j|, of s_j = Σ_i c_ij û_ij without any bias
    activations: np.ndarray  # (J,) of the classes, as their lengths
    uniform_maps: np.ndarray | None  # (J, rows, columns)
    uniform_map_sums: np.ndarray  # (J,)
    uniform_activations: np.ndarray  # (J,)
    extent_px: list[float] | None  # left, right, bottom, top of the maps on the image
    image: np.ndarray  # (C, H, W) uint8
    classes: list[str]
    label: int | None  # true class, if it is known
    coupling_sd: np.ndarray | None = None  # (R,) of the couplings about uniform ones
    quantity: dict[str, str] | None = None  # what maps show, in words; None: c (û·v̂)
    type_evidence: np.ndarray | None = None  # (types, J) in place of maps, without positions
    uniform_type_evidence: np.ndarray | None = None  # (types, J)
    layer: int | None = None  # a layer below the classes: its parents' types stand for classes
    changed: str | None = None  # what was changed in the network, in words

    @property
    def parent(self) -> str:
        """What a parent of the layer is called."""
        return "class" if self.layer is None else "parent type"

    @property
    def child(self) -> str:
        """What the couplings of one column are of."""
        single = self.couplings.shape[1] == len(self.entropy_nats[0])
        return "capsule" if single else "capsule type"


class OneImage(Analysis):
    """Couplings, vote agreement and evidence maps of one image."""

    Result = Result
    needs = ("votes", "couplings", "poses", "interventions")
    examples = """
    capsviz routing --digit 4  # 6 s
    """

    def measure(
        self,
        network,
        image,
        label=None,
        *,
        classes,
        iterations: Iterations = None,
        layer: Layer = None,
    ) -> Result:
        """Trace the routing of one image, and of its control with uniform couplings.

        Raises
        ------
        ValueError  for several images, iterations that the network does not take, or a layer that
                    it does not have.
        """
        from capsviz.tracing import coupling_sd, measures, trace
        from capsviz.tracing.network import below_classes
        from capsviz.transforms.augment import to_uint8

        image, layer = image.cpu(), below_classes(network, layer)
        if len(image) != 1:
            raise ValueError(f"expected one image, got {len(image)}")
        chosen = {"keep": (*measures.INSIDE, "evidence"), "iterations": iterations}
        chosen |= {} if layer is None else {"layer": layer}
        whole = trace(network, image, **chosen)
        routed, uniform = whole, trace(network, image, **chosen, couplings="uniform")
        linked = measures.with_parents(whole)
        if whole.links is not None:
            routed, uniform = (measures.by_parent_type(one) for one in (routed, uniform))
        if layer is not None:
            classes, label = [str(k) for k in range(routed.lengths.shape[1])], None
        own, control = (measures.evidence_of(one) for one in (routed, uniform))
        couplings = routed.couplings[:, 0]
        return Result(
            couplings=measures.type_means(couplings, routed.grid, linked).numpy(),
            entropy_nats=measures.entropy(couplings[:, linked]).numpy(),
            agreement=measures.mean_agreement(whole)[:, 0].numpy(),
            maps=own.maps,
            map_sums=own.sums,
            input_norms=measures.input_norms(whole)[0].numpy(),
            activations=routed.lengths[0].numpy(),
            uniform_maps=control.maps,
            uniform_map_sums=control.sums,
            uniform_activations=uniform.lengths[0].numpy(),
            extent_px=None if own.maps is None else list(routed.extent),
            image=to_uint8(image[0]),
            classes=list(classes),
            label=label,
            coupling_sd=coupling_sd(couplings[:, linked]).numpy(),
            quantity=None if whole.evidence is None else own.quantity,
            type_evidence=own.types,
            uniform_type_evidence=control.types,
            layer=layer,
        )

    def draw(self, result, *, width=7.16, part=""):
        """Draw couplings and measures, or the evidence: as maps, or by capsule."""
        from capsviz.analyses.routing import draw

        return {"": draw.sheet, "maps": draw.maps, "evidence": draw.evidence}[part](result, width)

    def parts(self, result) -> tuple[str, ...]:
        """Return maps where the capsules have positions, else their evidence by type."""
        if result.maps is not None:
            return ("", "maps")
        return ("",) if result.type_evidence is None else ("", "evidence")

    def verdict(self, result) -> str:
        """Compare the prediction, the couplings and the maps with those of uniform couplings."""
        J = len(result.classes)
        effective = float(np.exp(result.entropy_nats[-1]).mean())
        name, control = (
            f"{strongest(result.classes, values)} ({float(values.max()):.3f})"
            for values in (result.activations, result.uniform_activations)
        )
        if result.layer is None:
            text = f"The image is classified as {name}, and with uniform couplings as {control}."
        else:
            text = (
                f"The most active parent type of routed layer {result.layer} is {name}, and with "
                f"uniform couplings {control}."
            )
        uniform = result.coupling_sd is not None and not result.coupling_sd[-1].any()
        text += (
            f"\nA lower-level capsule has {effective:.3f} of {J} effective parents. "
            f"{spread(effective, J, uniform=uniform)}"
        )
        if result.maps is None:
            return f"{text}\n{NO_MAP}."
        difference = np.linalg.norm(result.maps - result.uniform_maps)
        difference /= np.linalg.norm(result.uniform_maps)
        return (
            f"{text}\nThe evidence maps differ from those of uniform couplings by "
            f"{number(difference, '.1%')}."
        )

    def caption(self, result, part="") -> str:
        """Return what the picture shows, and what its bands are."""
        changed = f"{result.changed[:1].upper()}{result.changed[1:]}. " if result.changed else ""
        what = f"{words_of(result.quantity)['plain']}, with routing and with uniform couplings"
        where = "" if result.layer is None else f", in routed layer {result.layer}"
        whole = "" if result.layer is None else " of the parents at all positions"
        if result.quantity is not None:
            whole = f" All together they add up to {result.quantity['words']}{whole}."
        else:
            whole = ""
        if part == "maps":
            text = (
                f"Evidence for each {result.parent} by position, summed over capsule types: {what}."
                f"{whole} The outline is that of the image."
            )
        elif part == "evidence":
            text = f"Evidence of each {result.child} for each {result.parent}: {what}.{whole}"
        else:
            text = (
                "Routing of one image: couplings by iteration, averaged over the positions of a "
                f"capsule type{where}; effective parents, agreement of the votes, and activations "
                "with routing and with uniform couplings. Band: 5 to 95 % of the capsules."
            )
        return f"{changed}{text}"

    def stem(self, base, result) -> str:
        """Add the layer, if it is not that of the classes."""
        return base if result.layer is None else f"{base}-layer-{result.layer}"
