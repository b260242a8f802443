"""Two images, each with the couplings of the other."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analyses.transplant.pairs import routed, with_reason
from capsviz.analysis import Analysis, Default, Flag, Iterations, Seed
from capsviz.statistics.words import strongest


class Result(NamedTuple):
    """Two images, each with four couplings: own, the donor's, the donor's shuffled, uniform."""

    images: np.ndarray  # (2, C, H, W) uint8
    labels: list[int | None]  # (2,) true classes, where they are known
    read: np.ndarray  # (2,) predicted class of each, routed by itself
    conditions: list[str]  # (4,) whose couplings
    activations: np.ndarray  # (2, 4, J) of the classes, votes x couplings
    decoded: np.ndarray | None  # (2, 4, C, H, W) uint8, of the predicted class; None: no decoder
    means: np.ndarray  # (2, J) own couplings, mean over children
    maps: np.ndarray | None  # (2, J, rows, columns) own, mean over types; None: no grid
    coupling_sd: np.ndarray  # (2,) of own couplings about uniform ones
    even: float  # a uniform coupling, mean over children
    classes: list[str]
    given: str | None = None  # why images follow by definition; None: they need not
    iterations: int | None = None  # of routing; None: the network's own
    donor_index: int = 0  # which image of its class the second one is


class OnePair(Analysis):
    """Two images, each with its own couplings, with the other's, and with controls."""

    Result = Result
    needs = ("votes", "couplings", "interventions")
    examples = """
    capsviz transplant --digit 2 --donor 3  # 6 s
    """

    def measure(
        self,
        network,
        *,
        picture,
        inputs,
        donor: Annotated[
            int | None,
            Default("the one after that of the first"),
            Flag("--donor", metavar="CLASS"),
            "Class of the donor image.",
        ] = None,
        donor_index: Annotated[int, "Which image of that class."] = 0,
        iterations: Iterations = None,
        seed: Seed = 0,
    ) -> Result:
        """Exchange the couplings of a picture and an image of the data set.

        Raises
        ------
        ValueError  for an image that is not there, or the picture itself, and for a network whose
                    couplings cannot be replaced.
        """
        from capsviz.inputs.samples import beside, next_class

        donor = next_class(inputs, picture) if donor is None else donor
        expected = "another one (--donor, --donor-index)"
        images = beside(inputs, picture, donor, donor_index, expected)
        labels, classes = (picture.label, donor), inputs.dataset.classes
        result = exchange(
            network, images, labels, classes=classes, iterations=iterations, seed=seed
        )
        return result._replace(donor_index=donor_index)

    def draw(self, result, *, width=7.16, part=""):
        """Draw both images, their couplings, and what they are classified as."""
        from capsviz.analyses.transplant import draw

        return draw.pair(result, width)

    def verdict(self, result) -> str:
        """Say what the votes of each image are classified as, by couplings."""
        names = [result.classes[k] for k in result.read]
        lines = []
        for k, row in enumerate(result.activations):
            _, donor, shuffled, uniform = (strongest(result.classes, one) for one in row)
            lines.append(
                f"The votes of the {names[k]} with the couplings of the {names[1 - k]} are "
                f"classified as {donor} (shuffled: {shuffled}; uniform couplings: {uniform})."
            )
        sd = " and ".join(f"{value:.4f}" for value in result.coupling_sd)
        lines.append(f"The couplings deviate from uniform by {sd} (standard deviation).")
        given = result.given if result.coupling_sd.any() else None  # uniform ones do nothing
        return with_reason(routed(result) + "\n".join(lines), given)

    def caption(self, result, part="") -> str:
        """Return what the picture shows."""
        return (
            "Two images with each other's couplings: each image, its couplings to the two classes "
            "by position, averaged over capsule types, and its predicted class and reconstruction "
            "with the couplings that are named above. Those are used in every iteration."
        )

    def stem(self, base, result) -> str:
        """Add class and number of the donor."""
        return f"{base}-{result.labels[1]}-{result.donor_index}"


def exchange(network, images, labels=(None, None), *, classes, iterations=None, seed=0) -> Result:
    """Exchange the couplings of two images (2, C, H, W).

    Parameters
    ----------
    labels      true classes, where they are known.
    classes     names of the classes.
    iterations  of routing, instead of the network's own.
    seed        of the shuffle.

    Raises
    ------
    ValueError  for another number of images, or a network whose couplings cannot be replaced.
    """
    from capsviz import tracing
    from capsviz.tracing import many, needs
    from capsviz.transforms.augment import to_uint8

    images = images.cpu()
    if len(images) != 2:
        raise ValueError(f"expected two images whose couplings are exchanged, got {len(images)}")
    traced = tracing.trace(network, images, keep=("couplings", "lengths"), iterations=iterations)
    many.require_all_to_all(traced.couplings)
    own, uniform = traced.couplings[-1], tracing.even_couplings(traced.couplings)
    shuffled = tracing.control_couplings("shuffled", own[None], _generator(seed))[-1]
    decodes = tracing.reconstructs(network)
    keep = ("lengths", "reconstruction") if decodes else ("lengths",)
    mixed = [
        tracing.trace(network, images, keep=keep, couplings=one, iterations=iterations)
        for one in (own, own.flip(0), shuffled.flip(0), uniform)
    ]
    maps = None
    if traced.grid is not None:
        maps = own.unflatten(1, traced.grid).mean(1).movedim(-1, 1).numpy()
    return Result(
        images=to_uint8(images),
        labels=list(labels),
        read=traced.lengths.argmax(1).numpy(),
        conditions=["own", "the donor's", "the donor's, shuffled", "uniform"],
        activations=np.stack([one.lengths for one in mixed], 1),
        decoded=np.stack([to_uint8(one.reconstruction) for one in mixed], 1) if decodes else None,
        means=own.mean(1).numpy(),
        maps=maps,
        coupling_sd=tracing.coupling_sd(own).numpy(),
        even=float(uniform.mean()),
        classes=list(classes),
        given=needs.reason(network, "donor's class"),
        iterations=iterations,
    )


def _generator(seed: int):
    import torch

    return torch.Generator().manual_seed(seed)
