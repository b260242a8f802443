"""Heat maps of the couplings: which capsules feed which class, and to what end?

`capsviz routing --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

from typing import NamedTuple

import click
import numpy as np

from capsviz.analyses.routing.statistics import Statistics, evaluate
from capsviz.analyses.routing.words import caption, findings
from capsviz.cli import options
from capsviz.cli.analysis import analysis
from capsviz.statistics.replicates import mean, within_one

EXAMPLES = """
capsviz routing --digit 4  # 6 s
capsviz routing --n 1000  # about 15 s
"""

__all__ = ["caption", "evaluate", "findings"]

NEEDS = ("votes", "couplings", "poses", "interventions")  # of a network, see tracing.needs
BY_CAPSULE = ("type_coupling", "child_activation", "largest_activation", "dead")
WITHIN = ("true_activation", "control_true_activation", "polarisation", "control_polarisation")
OVER_RUNS = (
    {"to_right": mean, "to_wrong": mean, "tied": mean}
    | dict.fromkeys(BY_CAPSULE)
    | dict.fromkeys((*WITHIN, "coupling"), within_one)
)


class Result(NamedTuple):
    """One image, R iterations; `uniform` is the same network with all couplings 1/J."""

    couplings: np.ndarray  # (R, types, J) mean over the places of a type; without a grid (R, I, J)
    entropy_nats: np.ndarray  # (R, I) of each capsule's couplings over classes
    agreement: np.ndarray  # (R, J) cosine of votes and pose, weighted by coupling
    maps: np.ndarray | None  # (J, rows, columns) of evidence, last iteration; None: no places
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
    coupling_sd: np.ndarray | None = None  # (R,) of the couplings about even ones
    quantity: dict[str, str] | None = None  # what maps show, in words; None: c (û·v̂)
    type_evidence: np.ndarray | None = None  # (types, J) in place of maps, without places
    uniform_type_evidence: np.ndarray | None = None  # (types, J)
    layer: int | None = None  # a layer below the classes: its parents' types stand for classes
    changed: str | None = None  # what was changed in the network, in words


def compute(
    model, image, label=None, *, classes, iterations=None, layer=None, changed=None
) -> Result:
    """Trace the routing of one image (1, C, H, W), and of its control with uniform couplings.

    Parameters
    ----------
    label       true class, if it is known.
    classes     names of the classes.
    iterations  of routing, instead of the network's own.
    layer       number of a routed layer, from 0; None: that of the classes.
    changed     what was changed in the network, in words, for figures.

    Raises
    ------
    ValueError  for several images, iterations that the network does not take, or a layer that it
                does not have.
    """
    from capsviz.tracing import coupling_sd, measures, trace
    from capsviz.tracing.network import below_classes
    from capsviz.transforms.augment import to_uint8

    image, layer = image.cpu(), below_classes(model, layer)
    if len(image) != 1:
        raise ValueError(f"expected one image, got {len(image)}")
    chosen = {"keep": (*measures.INSIDE, "evidence"), "iterations": iterations}
    chosen |= {} if layer is None else {"layer": layer}
    whole = trace(model, image, **chosen)
    routed, uniform = whole, trace(model, image, **chosen, couplings="uniform")
    linked = measures.with_parents(whole)
    if whole.links is not None:
        routed, uniform = (measures.by_parent_type(one) for one in (routed, uniform))
    if layer is not None:
        classes, label = [str(number) for number in range(routed.lengths.shape[1])], None
    both = [measures.evidence_of(one) for one in (routed, uniform)]
    couplings = routed.couplings[:, 0]
    return Result(
        couplings=measures.type_means(couplings, routed.grid, linked).numpy(),
        entropy_nats=measures.entropy(couplings[:, linked]).numpy(),
        agreement=measures.mean_agreement(whole)[:, 0].numpy(),
        maps=both[0].maps,
        map_sums=both[0].sums,
        input_norms=measures.input_norms(whole)[0].numpy(),
        activations=routed.lengths[0].numpy(),
        uniform_maps=both[1].maps,
        uniform_map_sums=both[1].sums,
        uniform_activations=uniform.lengths[0].numpy(),
        extent_px=None if both[0].maps is None else list(routed.extent),
        image=to_uint8(image[0]),
        classes=list(classes),
        label=label,
        coupling_sd=coupling_sd(couplings[:, linked]).numpy(),
        quantity=None if whole.evidence is None else both[0].quantity,
        type_evidence=both[0].types,
        uniform_type_evidence=both[1].types,
        layer=layer,
        changed=changed,
    )


def parts(result: Result | Statistics) -> tuple[str, ...]:
    """Names of its pictures; maps where the capsules have places, else their evidence by type."""
    if isinstance(result, Statistics):
        return ("", "couplings")
    if result.maps is not None:
        return ("", "maps")
    return ("",) if result.type_evidence is None else ("", "evidence")


def plot(result: Result | Statistics, *, width=7.16, part=""):
    """Couplings and measures of one image, or its "maps"; the statistics, or their "couplings"."""
    from capsviz.analyses.routing import draw, evidence, panels

    of_one = {"": draw.one_image, "maps": evidence.maps, "evidence": evidence.evidence}
    of_many = {"": panels.panels, "couplings": panels.couplings}
    return (of_many if isinstance(result, Statistics) else of_one)[part](result, width)


@analysis(__doc__, picture=True)
@click.option(
    "--iterations",
    type=click.IntRange(1, 100),
    help="Routing iterations. [default: the network's own]",
)
@click.option(
    "--layer", type=int, help="A routed layer, from 0, where there are several. [default: the last]"
)
@options.number("Over N test images instead of one.", "--evaluate")
@click.option(
    "--dead-norm", default=0.05, show_default=True, help="A dead capsule's activation is below it."
)
@options.seed
def command(run, iterations, layer, n, dead_norm, seed):
    """Write the figure and its numbers; say what routing does."""
    options.refuse_with_evaluate(n, "digit", "index", "image", "layer")
    options.refuse_without_evaluate(n, "dead_norm", "seed")
    if dead_norm <= 0:
        raise ValueError(f"expected --dead-norm above 0, got {dead_norm:g}")
    chosen = {"classes": run.classes, "iterations": iterations}
    if n is None:
        picture = run.picture
        result = compute(run.model, picture.image, picture.label, **chosen, layer=layer)
        layer = "" if result.layer is None else f"-layer-{result.layer}"
        yield f"routing-{picture.name}{layer}", result
        return
    result = evaluate(
        run.model,
        *run.images(n),
        dataset=run.dataset,
        **chosen,
        dead_norm=dead_norm,
        seed=seed,
        progress=run.progress("images"),
    )
    yield f"routing-{run.dataset}-{n}-images", result


def paper(inputs, settings):
    """For `capsviz figures`: one image, and the test set."""
    from capsviz.inputs.opening import open_picture

    classes, name = inputs.dataset.classes, inputs.dataset.name
    picture = open_picture(inputs, digit=settings.digit, index=settings.index)
    result = compute(inputs.model, picture.image, picture.label, classes=classes)
    yield f"routing-{picture.name}", result
    progress = settings.progress("routing")
    result = evaluate(
        inputs.model,
        *inputs.images(settings.n),
        dataset=name,
        classes=classes,
        seed=settings.seed,
        progress=progress,
    )
    yield f"routing-{name}-{settings.n}-images", result
