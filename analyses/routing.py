"""Heat maps of the couplings: which capsules feed which class, and to what end?

Method: routing (dynamic: Sabour, Frosst & Hinton 2017, arXiv:1710.09829) is traced iteration by
iteration, numbered from 1; in iteration 1 all couplings are 1/J, so it is its own control. For one
image: couplings c_ij as capsule type x class, their entropy H_i (nats) and the effective number of
parents exp(H_i), the agreement of votes with the pose, and for each class the map
Σ over types of c_ij (û_ij · v̂_j) over the places of the grid, with the pose of the last iteration.
This additive form, unlike |u| c |v|, sums exactly to s_j · v̂_j, where s_j = Σ_i c_ij û_ij. That is
|s_j| unless a bias is added to s_j inside routing (preset "authors"): a bias belongs to no place,
so it is in v̂_j, but in no map. The same network with uniform couplings, and the poses that they
give, stands beside it.

Over a test set (`--evaluate N`): the same measures, polarisation (mean_i max_j c_ij), dead
capsules, and how often r iterations change what one iteration predicts (Paik, Kwak & Kim 2019,
arXiv:1907.13327), with uniform and random couplings as controls. Plain dynamic routing with one
iteration has uniform couplings, so there the two predict the same. Both controls, and every r but
its own, are new to a network that was trained with R iterations, which alone can make them worse.

A reader should see how far couplings move from 1/J, and compare every map with its control: where
the two look alike, the map shows the votes and not the routing. Couplings that stay near 1/J can
still lengthen a class capsule, for the small shifts of many capsules add up. Do not conclude that
routing selects the bright places, nor from one image that routing matters; and the maps of two
classes compare only because they share one colour scale.
"""

from __future__ import annotations

from typing import NamedTuple

import click
import numpy as np

from analyses._routing_statistics import Statistics, evaluate, said, spread
from analyses._words import number
from capsviz import options


class Result(NamedTuple):
    """One image, R iterations; `uniform` is the same network with all couplings 1/J."""

    couplings: np.ndarray  # (R, types, J) mean over the places of a type
    entropy_nats: np.ndarray  # (R, I) of each capsule's couplings over classes
    agreement: np.ndarray  # (R, J) cosine of votes and pose, weighted by coupling
    maps: np.ndarray  # (J, rows, columns) additive, last iteration
    map_sums: np.ndarray  # (J,) s_j · v̂_j
    input_norms: np.ndarray  # (J,) |s_j|, of s_j = Σ_i c_ij û_ij without any bias
    lengths: np.ndarray  # (J,)
    uniform_maps: np.ndarray  # (J, rows, columns)
    uniform_map_sums: np.ndarray  # (J,)
    uniform_lengths: np.ndarray  # (J,)
    extent_px: list[float]  # left, right, bottom, top of the maps on the image
    image: np.ndarray  # (C, H, W) uint8
    classes: list[str]
    label: int | None  # true class, if it is known


def compute(model, image, label=None, *, classes, iterations=None) -> Result:
    """Trace the routing of one image (1, C, H, W), and of its control with uniform couplings.

    Parameters
    ----------
    label       true class, if it is known.
    classes     names of the classes.
    iterations  of routing, instead of the network's own.

    Raises
    ------
    ValueError  for iterations below 1.
    """
    from analyses import _routing_measures as measure
    from capsviz.augment import to_uint8
    from capsviz.tracing import trace

    image = image.cpu()
    asked = {"keep": measure.INSIDE, "iterations": iterations}
    routed = trace(model, image, **asked)
    uniform = trace(model, image, **asked, couplings="uniform")
    maps, uniform_maps = (
        measure.additive_map(seen.votes, seen.couplings[-1], seen.poses[-1], seen.grid)[0].numpy()
        for seen in (routed, uniform)
    )
    return Result(
        couplings=measure.by_type(routed.couplings[:, 0], routed.grid).numpy(),
        entropy_nats=measure.entropy(routed.couplings[:, 0]).numpy(),
        agreement=measure.agreement(routed.votes, routed.couplings, routed.poses)[:, 0].numpy(),
        maps=maps,
        map_sums=maps.sum((1, 2)),
        input_norms=measure.total_input(routed.votes, routed.couplings[-1])[0].norm(dim=1).numpy(),
        lengths=routed.lengths[0].numpy(),
        uniform_maps=uniform_maps,
        uniform_map_sums=uniform_maps.sum((1, 2)),
        uniform_lengths=uniform.lengths[0].numpy(),
        extent_px=measure.extent(model),
        image=to_uint8(image[0]),
        classes=list(classes),
        label=label,
    )


def plot(result: Result | Statistics, *, width=7.16):
    """Couplings, maps and measures of one image, or the test-set statistics."""
    if isinstance(result, Statistics):
        from analyses._routing_panels import panels as draw
    else:
        from analyses._routing_drawing import one_image as draw
    return draw(result, width)


@click.command(help=__doc__.split("\n")[0])
@options.subject
@options.picture
@click.option(
    "--iterations", type=click.IntRange(1, 100), help="Of routing. [default: the network's own]"
)
@click.option("--evaluate", "n", type=int, metavar="N", help="Over N test images instead of one.")
@click.option(
    "--dead-norm", default=0.05, show_default=True, help="A dead capsule's mean norm is below this,"
)
@click.option(
    "--dead-variance", default=0.001, show_default=True, help="and its variance below this."
)
@options.seed
@options.figure
@options.as_json
def command(iterations, n, dead_norm, dead_variance, seed, as_json, figure, picture, subject):
    """Write the figure and its numbers; say what routing does."""
    options.refuse_with_evaluate(n, "digit", "index", "image")
    options.refuse_without_evaluate(n, "dead_norm", "dead_variance", "seed")
    opened = options.open_subject(subject)
    asked = {"classes": opened.dataset.classes, "iterations": iterations}
    if n is not None:
        dead = {"dead_norm": dead_norm, "dead_variance": dead_variance}
        name, progress = opened.dataset.name, options.progress("images")
        result = evaluate(
            opened.model,
            *opened.images(n),
            dataset=name,
            **asked,
            **dead,
            seed=seed,
            progress=progress,
        )
        stem = f"routing-{name}-{n}-images"
    else:
        shown = options.open_picture(opened, picture)
        result = compute(opened.model, shown.image, shown.label, **asked)
        stem = f"routing-{shown.name}"
    paths = options.save(stem, "routing", result, opened, figure)
    options.report(result, findings(result), paths, as_json)


def paper(subject, settings):
    """For `capsviz figures`: one image, and the test set."""
    from capsviz.subject import open_picture

    classes, name = subject.dataset.classes, subject.dataset.name
    shown = open_picture(subject, digit=settings.digit, index=settings.index)
    result = compute(subject.model, shown.image, shown.label, classes=classes)
    yield f"routing-{shown.name}", result
    progress = settings.progress("routing")
    result = evaluate(
        subject.model,
        *subject.images(settings.n),
        dataset=name,
        classes=classes,
        seed=settings.seed,
        progress=progress,
    )
    yield f"routing-{name}-{settings.n}-images", result


def caption(result: Result | Statistics) -> str:
    """What the figure shows, with its numbers."""
    if isinstance(result, Statistics):
        return f"Routing over a test set. {findings(result)}."
    return (
        "Routing of one image. Top: couplings by iteration, mean over the places of a capsule "
        "type; middle: where the evidence for each class comes from, as c (û·v̂) summed over "
        "types, with routing and with uniform couplings; bottom: effective parents, agreement of "
        f"the votes, and lengths. {findings(result)}."
    )


def findings(result: Result | Statistics) -> str:
    """What the numbers say, in a line or two."""
    if isinstance(result, Statistics):
        return said(result)
    J = len(result.classes)
    effective = float(np.exp(result.entropy_nats[-1]).mean())
    name, control = (result.classes[v.argmax()] for v in (result.lengths, result.uniform_lengths))
    lengths = [float(v.max()) for v in (result.lengths, result.uniform_lengths)]
    difference = np.linalg.norm(result.maps - result.uniform_maps)
    return (
        f"predicted {name} (length {lengths[0]:.3f}), with uniform couplings {control} "
        f"({lengths[1]:.3f})\nafter {len(result.couplings)} iterations a capsule has "
        f"{effective:.3f} of {J} effective parents: {spread(effective, J)}; the maps differ from "
        "those of uniform couplings by "
        f"{number(difference / np.linalg.norm(result.uniform_maps), '.1%')}"
    )
