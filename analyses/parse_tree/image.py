"""The parse trees of two images, beside one of an untrained network."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Default, Flag, Seed


class Result(NamedTuple):
    """Trees of one image, of another, and of the first by an untrained network, if any."""

    images: np.ndarray  # (S, C, H, W) uint8
    read: np.ndarray  # (S,) predicted classes
    labels: list[int | None]  # (S,) true ones, where they are known
    networks: list[str]  # (S,) "trained", "this network" or "freshly initialised"
    favourites: np.ndarray  # (S, I) parent with each child's largest coupling; -1: all the same
    margins: np.ndarray  # (S, I) that coupling less the mean of the child's
    grid: tuple[int, int, int] | None  # types, rows, columns; None: no positions
    coupling_sd: np.ndarray  # (S,) of the couplings about uniform ones
    classes: list[str]


class Trees(Analysis):
    """The favourite class of each primary capsule, in two images."""

    Result = Result
    needs = ("couplings",)
    examples = "capsviz parse-tree --digit 4  # 10 s"

    def measure(
        self, network, *, picture, inputs, classes,
        other: Annotated[
            int | None,
            Flag("--other", metavar="CLASS"),
            Default("the one after that of the first"),
            "Class of the other image.",
        ] = None,
        seed: Seed = 0,
    ):  # fmt: skip
        from capsviz.inputs.samples import beside, next_class

        other = next_class(inputs, picture) if other is None else other
        images = beside(inputs, picture, other, 0, "another class (--other)")
        return trees(network, images, (picture.label, other), classes=classes, seed=seed)

    def stem(self, base, result):
        return f"{base}-{result.labels[1]}-0"

    def verdict(self, result) -> str:
        differ = (result.favourites[0] != result.favourites[1]).mean()
        own = (result.favourites[0] == result.read[0]).mean()
        return (
            f"{differ:.0%} of the primary capsules have another favourite class in the other "
            f"image. In the first image, {own:.0%} favour its predicted class, "
            f"{result.classes[result.read[0]]}."
        ).replace("%", " %")

    def caption(self, result, part="") -> str:
        return (
            "The class with the largest coupling of each primary capsule, for two images and for "
            "an untrained network. Left, as a tree: a line goes to the class that most capsules of "
            "a type favour. Right, at each position of each type: paler is a weaker preference."
        )


def trees(model, images, labels=(None, None), *, classes, seed=0) -> Result:
    """Compare the trees of two images (2, C, H, W), and of the first by an untrained network."""
    import torch

    from capsviz.analyses.parse_tree import measure
    from capsviz.tracing import coupling_sd
    from capsviz.transforms.augment import to_uint8

    images = images.cpu()
    fresh, _ = measure.untrained(model, images, 1, seed)
    observed = [measure.observe(model, images)]
    observed += [measure.observe(other, images[:1]) for other in fresh]
    couplings = torch.cat([one.couplings for one in observed])
    return Result(
        images=to_uint8(torch.cat([images, *(images[:1] for _ in fresh)])),
        read=torch.cat([one.read for one in observed]).numpy(),
        labels=[*labels, *(labels[0] for _ in fresh)],
        networks=[*[measure.known_as(model)] * 2, *(measure.FRESH for _ in fresh)],
        favourites=measure.favourites(couplings).numpy(),
        margins=measure.preferences(couplings).amax(-1).numpy(),
        grid=observed[0].grid,
        coupling_sd=torch.cat([coupling_sd(one.couplings) for one in observed]).numpy(),
        classes=list(classes),
    )
