"""Test whether networks notice exchanged parts: intact images against broken ones."""

from typing import NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import within_one
from capsviz.statistics.words import sentence, word_for

CONTROLS = {  # way of breaking -> its control, which keeps the digit whole
    "halves of two classes": "halves of one class",
    "lower half shifted": "whole shifted",
}
MASS = ("on the stroke", "in one half of that", "overlap of two units")  # of relevance


class Result(NamedTuple):
    """N images in B forms, under S scores."""

    scores: list[str]  # (S,) the first network's largest score first
    kinds: list[str]  # (B,) ways of breaking, and controls
    auroc: Estimate  # (S, B); differences are to the first score
    beyond: Estimate  # (S, 2) AUROC minus its control's, by `CONTROLS`
    examples: np.ndarray | None  # (1 + B, C, H, W) uint8: the first image intact, in each form
    networks: list[str]
    n: int
    dataset: str
    perturbed: Estimate | None = None  # (2, 3) random directions, units: see `relevance`
    selected: Estimate | None = None  # (2, 2) another image's stroke, the image's own
    chosen: list[int] | None = None  # selected types of the first network's lower-level capsules
    explained: float = float("nan")  # share of their layer's variance that they explain
    below: str = "primary capsules"  # name of the lower-level capsules

    controls = tuple(CONTROLS.values())
    axes = {
        "auroc": ("scores", "kinds"),
        "beyond": ("scores", tuple(CONTROLS)),
        "perturbed": (("random directions", "units"), MASS),
        "selected": (("another image's stroke", "its own"), MASS[:2]),
    }
    formats = dict.fromkeys(("auroc", "beyond", "perturbed", "selected"), ".3f")
    titles = {
        "beyond": "AUROC minus control's",
        "perturbed": "relevance mass",
        "selected": "relevance mass of selected types",
    }
    over_runs = dict.fromkeys(("auroc", "perturbed", "selected"), within_one)


class Parts(Analysis):
    """AUROC of intact against broken images, by scores of networks and of pixels."""

    Result = Result
    examples = "capsviz parts --n 200  # about 10 s"
    slow = True
    headline = ("beyond", "perturbed", "selected")

    def measure(self, networks, images, labels, *, dataset, seed: Seed = 0) -> Result:
        """Measure how well scores separate images (N, C, H, W) from the same images broken.

        Relevance is measured for the units of the first network.
        """
        from capsviz.analyses.parts import measure
        from capsviz.tracing.network import children_words
        from capsviz.transforms.augment import to_uint8

        images, labels = images.cpu(), labels.cpu()
        forms = measure.broken(images, labels, seed=seed)
        scores, areas, beyond = measure.compare(networks, images, forms, CONTROLS, seed=seed)
        examples = [images[0], *(changed[0] for changed, _ in forms.values())]
        first = next(iter(networks.values()))
        return Result(
            scores=scores,
            kinds=list(forms),
            auroc=areas,
            beyond=beyond,
            examples=np.stack([to_uint8(one) for one in examples]),
            networks=list(networks),
            n=len(images),
            dataset=dataset,
            below=children_words(first),
            **measure.relevance(first, images, seed=seed),
        )

    def in_figure_set(self, n, inputs, digit):
        """Return at least 60: with fewer images, a class may have only one."""
        return min(max(n, 60), len(inputs.dataset))

    def verdict(self, result) -> str:
        texts = [
            f"the score '{result.scores[0]}' detects {kind} "
            f"{word_for(gain, 'better', 'less well', 'not clearly better')} than {control}"
            for (kind, control), gain in zip(CONTROLS.items(), result.beyond[0], strict=True)
        ]
        if result.perturbed is not None:
            tied = word_for(result.perturbed[1].difference[1], "more", "less", "not clearly more")
            texts.append(
                f"units of the class capsule are {tied} tied to one half of a stroke than random "
                "directions are"
            )
        return " ".join(map(sentence, texts))
