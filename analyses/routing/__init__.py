"""Heat maps of the couplings: which capsules feed which class, and with what effect?"""

from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Iterations, Layer, Range, Seed
from capsviz.nn.quantity import words_of
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import mean, within_one
from capsviz.statistics.words import number, sentence, shown, strongest

NEAR_UNIFORM = 0.9  # at least this share of parents is effective
SELECTIVE = 0.5  # less than this share of parents is effective
SUM_TOLERANCE = 0.01  # largest deviation from 1 of the mean sum of a capsule's couplings
FEW_CHANGED = 0.01  # the verdict tests if more predictions than this share change
MOST = 6  # iterations to try; the network's own number if that is larger
NO_MAP = "There are no maps, because these capsules do not lie on a grid of several positions"


class Result(NamedTuple):
    """Hold the routing of one image over R iterations.

    Fields `uniform_…` are of the same network with uniform couplings, which are 1/J for most
    routings (`capsviz.tracing.interventions`).
    """

    couplings: np.ndarray  # (R, types, J) mean over positions; (R, I, J) without a grid
    entropy_nats: np.ndarray  # (R, I) of each capsule's couplings over classes
    agreement: np.ndarray  # (R, J) cosine of votes and pose, weighted by coupling
    maps: np.ndarray | None  # (J, rows, columns) evidence, last iteration; None without a grid
    map_sums: np.ndarray  # (J,) sum of the evidence: s_j · v̂_j, or as `quantity` says
    input_norms: np.ndarray  # (J,) |s_j| with s_j = Σ_i c_ij û_ij, without a bias
    activations: np.ndarray  # (J,) activation of each class, e.g. its capsule's length
    uniform_maps: np.ndarray | None  # (J, rows, columns)
    uniform_map_sums: np.ndarray  # (J,)
    uniform_activations: np.ndarray  # (J,)
    extent_px: list[float] | None  # left, right, bottom, top of the maps on the image
    image: np.ndarray  # (C, H, W) uint8
    classes: list[str]
    label: int | None  # true class, if it is known
    coupling_sd: np.ndarray  # (R,) s.d. of the couplings about uniform
    quantity: dict[str, str] | None  # the mapped quantity in words; None: c (û·v̂)
    type_evidence: np.ndarray | None  # (types, J) replaces the maps without a grid
    uniform_type_evidence: np.ndarray | None  # (types, J)
    layer: int | None  # a layer below the classes: parent types replace the classes
    changed: str | None = None  # the change made to the network, in words
    names: list[str] | None = None  # of the capsules in `couplings`, if the card names them

    @property
    def parent(self) -> str:
        """Return the word for a parent capsule of the layer."""
        return "class" if self.layer is None else "parent type"

    @property
    def child(self) -> str:
        """Return the word for an entry of the second axis of `couplings`."""
        single = self.couplings.shape[1] == len(self.entropy_nats[0])
        return "capsule" if single else "capsule type"


class OneImage(Analysis):
    """Couplings, vote agreement and evidence maps of one image."""

    Result = Result
    needs = ("votes", "couplings", "poses", "interventions")
    any_input = True
    examples = "capsviz routing --digit 4  # 6 s"

    def measure(
        self,
        network,
        image,
        label=None,
        *,
        classes,
        iterations: Iterations = None,
        layer: Layer = None,
    ):
        """Trace the routing of one image, with its own couplings and with uniform ones."""
        from capsviz.tracing import coupling_sd, measures, trace
        from capsviz.tracing.network import abilities, below_classes
        from capsviz.transforms.augment import to_uint8

        image, layer = image.cpu(), below_classes(network, layer)
        if len(image) != 1:
            raise ValueError(f"expected one image, got {len(image)}")
        keep, number = (*measures.INSIDE, "evidence"), -1 if layer is None else layer
        whole, uniform = (
            trace(network, image, keep=keep, iterations=iterations, layer=number, couplings=one)
            for one in (None, "uniform")
        )
        routed, linked = whole, measures.with_parents(whole)
        if whole.links is not None:
            routed, uniform = (measures.by_parent_type(one) for one in (routed, uniform))
        activations = routed.require("lengths")[0].numpy()
        if layer is not None:
            classes, label = [str(k) for k in range(len(activations))], None
        own, control = (measures.evidence_of(one) for one in (routed, uniform))
        couplings = routed.require("couplings")[:, 0]
        means = measures.type_means(couplings, routed.grid, linked).numpy()
        names = [str(one) for one in abilities(network).card.get("children", ())]
        return Result(
            couplings=means,
            entropy_nats=measures.entropy(couplings[:, linked]).numpy(),
            agreement=measures.mean_agreement(whole)[:, 0].numpy(),
            maps=own.maps,
            map_sums=own.sums,
            input_norms=measures.input_norms(whole)[0].numpy(),
            activations=activations,
            uniform_maps=control.maps,
            uniform_map_sums=control.sums,
            uniform_activations=uniform.require("lengths")[0].numpy(),
            extent_px=None if own.maps is None else list(routed.extent or ()),
            image=to_uint8(image[0]),
            classes=list(classes),
            label=label,
            coupling_sd=coupling_sd(couplings[:, linked]).numpy(),
            quantity=None if whole.evidence is None else own.quantity,
            type_evidence=own.types,
            uniform_type_evidence=control.types,
            layer=layer,
            names=names if len(names) == means.shape[1] else None,
        )

    def caption_of(self, result, panels) -> str:
        layer = "" if result.layer is None else f"routed layer {result.layer}"
        own = super().caption_of(result, panels)
        return " ".join(filter(None, [sentence(result.changed or ""), sentence(layer), own]))

    def verdict(self, result) -> str:
        J = len(result.classes)
        effective = float(np.exp(result.entropy_nats[-1]).mean())
        name, control = (
            f"{strongest(result.classes, values)} ({float(values.max()):.3f})"
            for values in (result.activations, result.uniform_activations)
        )
        which = "The image is classified as"
        if result.layer is not None:
            which = f"The most active parent type of routed layer {result.layer} is"
        maps = f"{NO_MAP}."
        if result.maps is not None:
            off = np.linalg.norm(result.maps - result.uniform_maps)
            share = number(float(off / np.linalg.norm(result.uniform_maps)), ".1%")
            maps = f"The evidence maps differ from those of uniform couplings by {share}."
        return (
            f"{which} {name}, and with uniform couplings {control}.\n"
            f"A lower-level capsule has {effective:.3f} of {J} effective parents. "
            f"{spread(effective, result.couplings[-1], result.coupling_sd[-1])}\n{maps}"
        )

    def heading(self, result, part="") -> str:
        changed = [result.changed] if result.changed else []
        if not part:
            return "; ".join(changed)
        quantity, one = words_of(result.quantity), "position" if part == "maps" else "capsule"
        evidence = f"evidence for each {result.parent} by {one}: {quantity['plain']}"
        return "; ".join([*changed, evidence, f"Σ: {quantity['words']}"])

    def stem(self, base, result) -> str:
        return base if result.layer is None else f"{base}-layer-{result.layer}"


class Statistics(NamedTuple):
    """Hold the effect of routing on N test images, for r = 1 ... M iterations and K controls.

    R is the number of iterations of the network, or as `--iterations` sets it. A routing of one
    pass has M = R = 1.

    All intervals are 95 %: Wilson's for proportions, Student's t for means over images, and a
    normal approximation for paired differences (`statistics.intervals.paired_interval`).
    """

    accuracy: Estimate  # (M,) for r = 1 ... M; difference: from r = 1, paired
    changed: Estimate  # (M,) share of predictions that differ from those of r = 1
    to_right: np.ndarray  # (M,) images misclassified by r = 1 and correct with r
    to_wrong: np.ndarray  # (M,) the reverse
    true_activation: Estimate  # (M,) mean activation of the true class
    controls: list[str]  # (K,) uniform, random, shuffled, matched
    control_accuracy: Estimate  # (K,); difference: from r = 1, paired
    control_changed: Estimate  # (K,) against r = 1
    control_true_activation: Estimate  # (K,)
    entropy_nats: Estimate  # (R,) mean over capsules and images
    effective_parents: Estimate  # (R,) mean of exp(H_i)
    polarisation: Estimate  # (R,) mean of max_j c_ij
    agreement: Estimate  # (R, 2) with the true class, and the mean of the others
    control_effective_parents: Estimate  # (K,)
    control_polarisation: Estimate  # (K,)
    control_agreement: Estimate  # (K, 2)
    true_classes: np.ndarray  # (C,) classes of the images
    images_of_class: np.ndarray  # (C,)
    coupling: Estimate  # (C, J) mean coupling of a true class's images, last iteration
    type_coupling: Estimate | None  # (C, types, J) the same by type; None: not recorded
    child_activation: Estimate  # (I,) mean activation, or norm, of each lower-level capsule
    dead_norm: float
    classes: list[str]
    n: int
    dataset: str
    coupling_sd: Estimate  # (R,) s.d. of couplings about uniform, mean over images
    control_sd: Estimate  # (K,)
    largest_activation: np.ndarray  # (I,) of each lower-level capsule, over all images
    dead: int  # capsules whose largest activation is below `dead_norm`
    prefix: bool  # True: pass r of M is the result of r iterations; else each r was run alone

    axes = dict.fromkeys(
        ("accuracy", "changed", "true_activation", "entropy_nats", "effective_parents",
         "polarisation", "coupling_sd"), ("iteration {1}",),
    ) | dict.fromkeys(
        ("control_accuracy", "control_changed", "control_true_activation",
         "control_effective_parents", "control_polarisation", "control_sd"), ("controls",),
    ) | {"agreement": ("iteration {1}", ("true class", "other classes")),
         "control_agreement": ("controls", ("true class", "other classes")),
         "coupling": ("of_class", "classes"),
         "type_coupling": ("of_class", "type {}", "classes")}  # fmt: skip
    of_class = property(lambda self: [f"images of {self.classes[k]}" for k in self.true_classes])
    references = dict.fromkeys(("accuracy", "control_accuracy"), "1 iteration")
    formats = dict.fromkeys(
        ("accuracy", "control_accuracy", "changed", "control_changed"), ".2%"
    ) | dict.fromkeys(("coupling_sd", "control_sd"), ".4f")
    over_runs = (
        dict.fromkeys(("to_right", "to_wrong"), mean)
        | dict.fromkeys(("type_coupling", "child_activation", "largest_activation", "dead"))
        | dict.fromkeys(
            ("accuracy", "control_accuracy", "changed", "control_changed", "true_activation",
             "control_true_activation", "polarisation", "control_polarisation", "coupling"),
            within_one,
        )
    )  # fmt: skip


class OverImages(Analysis):
    """The effect of routing over a test set, and its couplings, with control couplings."""

    Result = Statistics
    panels = "draw:MANY"
    needs = ("votes", "couplings", "poses", "interventions")
    any_input = True
    examples = "capsviz routing --n 1000  # about 15 s"
    headline = ("accuracy", "control_accuracy", "effective_parents")

    def measure(
        self,
        network,
        images,
        labels,
        *,
        classes,
        dataset,
        progress=iter,
        iterations: Iterations = None,
        dead_norm: Annotated[
            float, Range(0), "A capsule is dead if its activation is below this in all images."
        ] = 0.05,
        seed: Seed = 0,
    ) -> Statistics:
        """Route by 1 ... M iterations and with control couplings, drawn anew for each image."""
        from capsviz.analyses.routing.survey import survey

        images = images.cpu()
        fields = survey(
            network, images, labels.cpu(), iterations=iterations, most=MOST, seed=seed,
            progress=progress,
        )  # fmt: skip
        return Statistics(
            **{name: one for name, one in fields.items() if name in Statistics._fields},
            dead_norm=dead_norm,
            dead=int((fields["largest_activation"] < dead_norm).sum()),
            classes=list(classes),
            n=len(images),
            dataset=dataset,
        )

    def verdict(self, result) -> str:
        M, R = len(result.accuracy), len(result.entropy_nats)
        claim = f"iterations change more than {number(FEW_CHANGED, '.0%')} of the predictions"
        text = shown(result.changed.low[R - 1] > FEW_CHANGED, claim)
        if R == 1:
            what = "pass" if M == 1 else "iteration, with uniform couplings"
            text = f"The network routes in one {what}."
        effective, sd = (one.value[-1] for one in (result.effective_parents, result.coupling_sd))
        every = len(result.largest_activation)
        dead = f"{result.dead} of {every:,} lower-level capsules are dead."
        return "\n".join([text, spread(float(effective), result.coupling.value, sd), dead])

    def heading(self, result, part="") -> str:
        if part:
            return super().heading(result, part)
        names = ["own", *(f"{name[0].upper()} {name}" for name in result.controls)]
        sd = [float(result.coupling_sd.value[-1]), *result.control_sd.value]
        each = [f"{name} {value:.4f}" for name, value in zip(names, sd, strict=True)]
        return f"{super().heading(result)}; s.d. of couplings about uniform: {', '.join(each)}"


def spread(effective: float, couplings: np.ndarray, sd: float) -> str:
    """Return a sentence that says how far mean couplings (..., J) are from uniform.

    It depends on the mean number of effective parents.
    """
    many, few, parents = number(NEAR_UNIFORM, ".0%"), number(SELECTIVE, ".0%"), couplings.shape[-1]
    near, total = effective >= NEAR_UNIFORM * parents, float(couplings.sum(-1).mean())
    if near and abs(total - 1) > SUM_TOLERANCE:
        return (
            f"Couplings of a capsule sum to {total:.3g} over parents on average, not to 1, and all "
            "parents get about the same."
        )
    if not sd:
        return "All couplings are uniform: no capsule favours any parent."
    if near:
        return (
            f"Couplings are close to uniform ({many} of all parents or more are effective), which "
            "does not say that they have little effect: see `capsviz transplant`."
        )
    if effective >= SELECTIVE * parents:
        return f"Couplings favour some parents ({few} to {many} of all are effective)."
    return f"Couplings select few parents (fewer than {few} of all are effective)."
