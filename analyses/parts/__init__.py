"""Is a digit with exchanged parts still read? Intact against broken, by every score.

`capsviz parts --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsviz.analyses.parts.words import OF, caption, findings
from capsviz.cli import options
from capsviz.cli.analysis import analysis
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import within_one

EXAMPLES = """
capsviz parts --n 200  # about 10 s
"""

NEEDS = ()  # scores are enough
OVER_RUNS = dict.fromkeys(("auroc", "perturbed", "selected"), within_one)
LEAST = 60  # images of `paper`

__all__ = ["caption", "findings"]


# What the axes of estimates are: fields with their names, or the names; None: numbered from 1.
MASS = "on the stroke", "in one half of that", "overlap"
AXES = {
    "auroc": ("scores", "kinds"),
    "beyond": ("scores", tuple(OF)),
    "perturbed": (("random directions", "units"), MASS),
    "selected": (("another image's stroke", "its own"), MASS[:2]),
}


class Result(NamedTuple):
    """N images in B forms, under S scores."""

    scores: list[str]  # (S,) the first network's largest score first
    kinds: list[str]  # (B,) of breaking, and controls
    auroc: Estimate  # (S, B); differences are to the first score
    examples: np.ndarray  # (1 + B, C, H, W) uint8, the first image intact and in each form
    networks: list[str]
    n: int
    dataset: str
    perturbed: Estimate | None = None  # (2, 3) random directions, units: see `relevance.Relevance`
    selected: Estimate | None = None  # (2, 2) another image's stroke, the image's own
    chosen: list[int] | None = None  # selected types of the first network's `below`
    explained: float = float("nan")  # share of their layer's variance that they explain
    beyond: Estimate | None = None  # (S, 2) AUROC less its control's, as in `words.OF`
    below: str = "primary capsules"  # what the children of the classes are called


def compute(models, names, images, labels, *, dataset, seed=0) -> Result:
    """How well scores tell images (N, C, H, W) from the same images broken.

    Parameters
    ----------
    models   networks, with capsules or without; the first one is spoken of.
    names    of the networks.
    labels   (N,) true classes.
    dataset  its name, for the record.
    seed     of partners, directions and the bootstrap.

    Raises
    ------
    ValueError  for fewer than 2 images of each of 2 classes.
    """
    from capsviz.analyses.parts import measure, relevance
    from capsviz.tracing.network import children_words
    from capsviz.transforms.augment import to_uint8

    images, labels = images.cpu(), labels.cpu()
    forms = measure.broken(images, labels, seed=seed)
    scores, areas, beyond = measure.compare(models, names, images, forms, seed=seed)
    examples = [images[0], *(changed[0] for changed, _ in forms.values())]
    return Result(
        scores=scores,
        kinds=list(forms),
        auroc=areas,
        beyond=beyond,
        examples=np.stack([to_uint8(one) for one in examples]),
        networks=list(names),
        n=len(images),
        dataset=dataset,
        below=children_words(models[0]),
        **relevance.relevance(models[0], images, seed=seed)._asdict(),
    )


def parts(result: Result) -> tuple[str, ...]:
    """Names of its pictures."""
    return ("",) if result.perturbed is None and result.selected is None else ("", "relevance")


def plot(result: Result, *, width=7.16, part=""):
    """An image in each form, and the areas; or "relevance"."""
    from capsviz.analyses.parts import draw

    return (draw.relevance if part == "relevance" else draw.forms)(result, width)


@analysis(__doc__, networks=True)
@options.n
@options.seed
def command(run, n, seed):
    """Write the figure and its numbers; say what tells broken images."""
    from capsviz.inputs.networks import together

    n = options.usual(n, run.inputs)
    result = compute(**together(run.networks, n), seed=seed)
    yield f"parts-{run.dataset}-{n}-images", result


def paper(inputs, settings):
    """For `capsviz figures`: the network beside the shipped ones without capsules."""
    from capsviz.inputs.networks import together, with_baselines

    n = max(settings.few, LEAST)  # of fewer, a class may have one image alone
    result = compute(**together(with_baselines(inputs), n), seed=settings.seed)
    yield f"parts-{inputs.dataset.name}-{n}-images", result
