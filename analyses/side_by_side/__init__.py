"""Two routings on one digit: how do couplings, evidence and answers differ?

`capsviz side-by-side --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsviz.analyses.side_by_side.words import caption, findings
from capsviz.cli import options
from capsviz.cli.analysis import analysis
from capsviz.statistics.estimate import Estimate

EXAMPLES = """
capsviz side-by-side --checkpoint digits --checkpoint digits-matrix --digit 2  # 10 s
capsviz side-by-side --checkpoint digits --checkpoint digits-matrix --n 360  # 15 s
"""

NEEDS = ("votes", "couplings", "poses", "interventions")  # of each network

__all__ = ["caption", "findings"]


# What the axes of estimates are: fields with their names, or the names; None: numbered from 1.
AXES = dict.fromkeys(
    ("accuracy", "uniform_accuracy", "cost", "effective_parents", "agreement"), ("networks",)
)


class Result(NamedTuple):
    """One image in K networks; what differs in shape is by the network's name."""

    image: np.ndarray  # (C, H, W) uint8
    networks: list[str]  # (K,)
    words: list[str]  # (K,) how each routes, in a line
    couplings: dict[str, np.ndarray]  # (types, J) last iteration, mean over the places of a type
    effective: np.ndarray  # (K,) parents of a capsule, mean over capsules
    effective_band: np.ndarray  # (K, 2) 5 and 95 % of its capsules
    coupling_sd: np.ndarray  # (K,) about even couplings
    activations: np.ndarray  # (K, J)
    uniform_activations: np.ndarray  # (K, J)
    maps: dict[str, np.ndarray | None]  # (J, rows, columns); None: capsules at one place
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
    agreement: Estimate  # (K,) images that are read as the first network reads them
    classes: list[str]
    n: int
    dataset: str


def compute(models, names, image, label=None, *, classes) -> Result:
    """Look at one image (1, C, H, W) in K networks.

    Parameters
    ----------
    names    (K,) of the networks.
    label    true class, if it is known.
    classes  names of the classes.

    Raises
    ------
    ValueError  for other than 2 networks, or one that lacks what is drawn.
    """
    from capsviz.analyses.side_by_side import measure
    from capsviz.transforms.augment import to_uint8

    measure.require(models, names, NEEDS)
    looks = [measure.look(model, image.cpu()) for model in models]

    def stacked(field):
        return np.stack([getattr(one, field) for one in looks])

    def named(field):
        return {name: getattr(one, field) for name, one in zip(names, looks, strict=True)}

    return Result(
        image=to_uint8(image[0].cpu()),
        networks=list(names),
        words=[one.words for one in looks],
        couplings=named("couplings"),
        effective=stacked("effective"),
        effective_band=stacked("effective_band"),
        coupling_sd=stacked("coupling_sd"),
        activations=stacked("activations"),
        uniform_activations=stacked("uniform_activations"),
        maps=named("maps"),
        uniform_maps=named("uniform_maps"),
        type_evidence=named("type_evidence"),
        uniform_type_evidence=named("uniform_type_evidence"),
        sums=stacked("sums"),
        uniform_sums=stacked("uniform_sums"),
        quantities=named("quantity"),
        extents_px=named("extent_px"),
        shown=measure.two_classes(stacked("activations")),
        classes=list(classes),
        label=label,
    )


def evaluate(
    models, names, images, labels, *, classes, dataset, seed=0, progress=iter
) -> Statistics:
    """Compare K networks over N images (N, C, H, W) with labels (N,).

    Parameters
    ----------
    names     (K,) of the networks.
    classes   names of the classes.
    dataset   its name, for the record.
    seed      of the bootstrap.
    progress  wraps the networks, for a progress bar.

    Raises
    ------
    ValueError  for fewer than 2 images, other than 2 networks, or one that lacks what is measured.
    """
    from capsviz.analyses.side_by_side import measure
    from capsviz.statistics.comparison import compare_changes, compare_means, draw_resamples

    measure.require(models, names, NEEDS)
    counts = draw_resamples(len(images), seed=seed)
    for model in models:
        measure.look(model, images[:1].cpu())  # refuses what cannot be had before all is computed
    many = [measure.survey(model, images.cpu()) for model in progress(models)]
    labels = labels.cpu().numpy()
    read, even = (np.stack([getattr(one, name) for one in many]) for name in ("read", "uniform"))
    right, even_right = (read == labels).astype(float), (even == labels).astype(float)
    return Statistics(
        networks=list(names),
        words=[measure.routing_words(model) for model in models],
        accuracy=compare_means(right, counts),
        uniform_accuracy=compare_means(even_right, counts),
        cost=compare_changes(even_right, right, counts),
        effective_parents=compare_means(
            np.stack([one.effective for one in many]), counts, shares=False
        ),
        agreement=compare_means((read == read[0]).astype(float), counts),
        classes=list(classes),
        n=len(images),
        dataset=dataset,
    )


def plot(result: Result | Statistics, *, width=7.16):
    """Couplings, evidence and activations, a row for each network; or what was counted."""
    from capsviz.analyses.side_by_side import counts, draw

    return (counts.draw if isinstance(result, Statistics) else draw.draw)(result, width)


@analysis(__doc__, networks=True, picture=True)
@options.number("Over N test images instead of one.", "--evaluate")
@options.seed
def command(run, n, seed):
    """Write the figure and its numbers; say what each network reads."""
    options.refuse_with_evaluate(n, "digit", "index", "image")
    options.refuse_without_evaluate(n, "seed")
    models, names = [one.model for one in run.networks], [one.name for one in run.networks]
    if n is None:
        picture = run.picture
        result = compute(models, names, picture.image, picture.label, classes=run.classes)
        yield f"side-by-side-{picture.name}", result
        return
    result = evaluate(
        models, names, *run.images(n), classes=run.classes, dataset=run.dataset, seed=seed,
        progress=run.progress("networks"),
    )  # fmt: skip
    yield f"side-by-side-{run.dataset}-{n}-images", result


def paper(inputs, settings):
    """For `capsviz figures`, which is of one network: nothing."""
    yield from ()
