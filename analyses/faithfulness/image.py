"""Faithfulness of the maps of one image."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Range, Seed

CONTROLS = ("ink", "|u| map")  # maps that know nothing of the class
TARGETS = {"read": "the predicted class", "true": "the true class"}
Target = Annotated[
    Literal["read", "true"], "Class to explain: the predicted one ('read'), or the true one."
]
Steps = Annotated[int, Range(2), "Steps of the curves, ever larger ones."]


class Result(NamedTuple):
    """One image under M maps, controls first."""

    image: np.ndarray  # (C, H, W) uint8
    names: list[str]  # (M,)
    maps: np.ndarray  # (M, H, W) float32, positions of capsules as rectangles
    shares: np.ndarray  # (S,) of the pixels that are removed, or shown
    deletion: np.ndarray  # (M, S) score of the class
    insertion: np.ndarray  # (M, S)
    deletion_area: np.ndarray  # (M,)
    insertion_area: np.ndarray  # (M,)
    infidelity: np.ndarray  # (M,) in [0, 1]
    random_maps: np.ndarray  # (M, H, W) float32, of the network with random weights
    correlation: np.ndarray  # (M,) of ranks, of the two maps; NaN: of the random order
    left_out: list[str]  # what the network has no map for, and why
    target: int  # class that is explained
    label: int | None  # true class, if it is known
    classes: list[str]
    quantity: dict[str, str] | None = None  # what the routing map shows, in words; None: c (û·v̂)


class OneImage(Analysis):
    """Maps of one image, their deletion and insertion curves, and maps of random weights."""

    Result = Result
    extras = ("captum",)
    examples = """
    capsviz faithfulness --digit 4  # 15 s
    capsviz faithfulness --n 200  # about 1 min
    """

    def measure(
        self, network, image, label, *, classes, target: Target = "read", steps: Steps = 8,
        seed: Seed = 0,
    ) -> Result:  # fmt: skip
        """Judge the maps of one image (1, C, H, W).

        The seed is that of the random order, of ties, squares and random weights.

        Raises
        ------
        ImportError  without captum.
        ValueError   for an unknown true class, or scores without a gradient.
        """
        import torch

        from capsviz.analyses.faithfulness import curves, maps, measure, randomised
        from capsviz.experiments.attacks import frozen
        from capsviz.nn.images import like_of
        from capsviz.transforms.augment import to_uint8

        image = image.cpu()
        generator = measure.generator_of(seed)
        labels = None if label is None else torch.tensor([label])
        targets = measure.explained_classes(network, image, labels, target)
        like, shares = image.to(like_of(network)), curves.grid_of(steps)
        with frozen(network):
            methods, left_out = maps.methods(network, like[:1], seed)
            own = [method.maps(like, targets.to(like.device)) for method in methods]
            drawn, errors = measure.judged(network, image, targets, own, shares, generator)
            stages = randomised.stages(network, like[:1])
            weights = [weight for stage in stages for weight in stage.weights]
            with randomised.randomised(weights, generator):
                again = like.clone()
                later = [method.maps(again, targets.to(like.device)).own for method in methods]
        names = [method.name for method in methods]
        areas = curves.area(drawn[:, :, 0], shares).numpy()
        ranks = randomised.centred_ranks
        correlation = torch.stack(
            [
                (ranks(a.own) * ranks(b).nan_to_num(0.0)).sum()
                for a, b in zip(own, later, strict=True)
            ]
        )
        correlation[names.index(maps.RANDOM)] = torch.nan
        return Result(
            image=to_uint8(image[0]),
            names=names,
            maps=measure.enlarged([one.own[0] for one in own], image).float().numpy(),
            shares=shares.numpy(),
            deletion=drawn[0, :, 0].numpy(),
            insertion=drawn[1, :, 0].numpy(),
            deletion_area=areas[0],
            insertion_area=areas[1],
            infidelity=errors[:, 0].numpy(),
            random_maps=measure.enlarged([one[0] for one in later], image).float().numpy(),
            correlation=correlation.numpy(),
            left_out=left_out,
            target=int(targets[0]),
            label=label,
            classes=list(classes),
            quantity=maps.own_quantity(network, like[:1], names),
        )

    def parts(self, result) -> tuple[str, ...]:
        """Return the names of the pictures: the maps, and their curves."""
        return ("", "curves")

    def draw(self, result, *, width=7.16, part=""):
        """Draw the maps, or their "curves"."""
        from capsviz.analyses.faithfulness import draw

        if part == "curves":
            return draw.both_curves(result, (result.deletion, result.insertion), width)
        return draw.one_image(result, width)

    def verdict(self, result) -> str:
        """Name the most faithful map of this image, and what was left out."""
        best = result.names[int((result.insertion_area - result.deletion_area).argmax())]
        text = (
            f"For class {result.classes[result.target]}, the order by '{best}' has the largest "
            "area under insertion minus deletion. One image is no evidence: add --n N."
        )
        return " ".join([text, *(f"{one}." for one in result.left_out)])

    def caption(self, result, part="") -> str:
        """Return what is shown, and what the numbers below the maps are."""
        name = f"class {result.classes[result.target]}"
        if part == "curves":
            return (
                f"Score of {name} when pixels are removed, or are shown alone, in the order of a "
                "map. One image is no evidence."
            )
        return (
            f"Maps of one image for {name}, each on its own colour scale. Below: the same maps "
            "with random weights in all layers, and the rank correlation ρ of the two. Numbers: "
            f"areas under deletion and insertion, and infidelity.{shown_by(result)}"
        )


def shown_by(result) -> str:
    """Return what the routing map shows, where it is not a length along a pose."""
    if result.quantity is None:
        return ""
    return (
        f" The routing map shows {result.quantity['plain']}, which adds up to "
        f"{result.quantity['words']}."
    )
