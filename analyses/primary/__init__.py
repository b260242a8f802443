"""What do single primary capsules hold, and does reconstruction need the couplings?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analyses.primary import measure as by
from capsviz.analyses.primary.measure import RETRAINED, Statistics, evaluate
from capsviz.analysis import Analysis, Default, Range, Seed

__all__ = ["Couplings", "Result", "Single", "Statistics", "decode_single", "evaluate"]
Decoder = Annotated[
    Path | None,
    Default("beside the weights, or runs/NAME-primary"),
    "Decoders of `capsviz primary train`.",
]
Capsules = Annotated[int, Range(1), "Capsules to show, at most."]
MARGIN = 0.01  # of the SSE: a difference inside it counts as none


class Result(NamedTuple):
    """One image, K capsules of it, each at L shares of its coupling."""

    image: np.ndarray  # (C, H, W) uint8
    types: np.ndarray  # (K,) capsule type, without a grid its number; the most coupled first
    places: np.ndarray | None  # (K, 2) row and column in the grid; None: no grid
    fields: np.ndarray | None  # (K, 4) receptive field: first and end row, column, px
    couplings: np.ndarray  # (K,) to the predicted class
    shares: np.ndarray  # (L,) of that coupling, 0 to 1
    pictures: np.ndarray  # (K, L, C, H, W) uint8, from one capsule
    sse: np.ndarray  # (K, L) sum of squared differences from the image, pixels in [0, 1]
    whole: np.ndarray  # (C, H, W) uint8, from all capsules
    whole_sse: float
    children: int  # I
    predicted: int
    classes: list[str]
    label: int | None  # true class, if it is known


class Single(Analysis):
    """One image decoded from single primary capsules, and from all of them."""

    Result = Result
    needs = ("primary", "couplings")
    examples = """
    capsviz primary --digit 4  # 10 s
    capsviz primary --n 1000  # 20 s
    """

    def measure(
        self, network, image, label=None, *, classes, inputs, decoder: Decoder = None,
        capsules: Capsules = 6,
        levels: Annotated[int, Range(2, 12), "Number of fractions of the coupling to show."] = 5,
    ) -> Result:  # fmt: skip
        """Decode the most coupled capsules of one image, each alone."""
        return decode_single(
            network, by.open_decoders(inputs, decoder), image, label, classes=classes,
            capsules=capsules, levels=levels,
        )  # fmt: skip

    def commands(self):
        from capsviz.analyses.primary.train import train

        return [train]

    def verdict(self, result) -> str:
        return (
            f"Predicted as {result.classes[result.predicted]}. The SSE is {result.whole_sse:.2f} "
            f"from all {result.children:,} capsules, and at least {result.sse[:, -1].min():.2f} "
            "from a single one."
        )


class Couplings(Analysis):
    """N images decoded from primary capsules, with and without the couplings of routing."""

    Result = Statistics
    how = "of the mean, Student's t"
    panels = "draw:MANY"
    needs = ("primary", "couplings")
    headline = ("sse",)

    def measure(
        self, network, images, *, dataset, inputs, progress=iter, decoder: Decoder = None,
        capsules: Capsules = 6, seed: Seed = 0,
    ) -> Statistics:  # fmt: skip
        """Measure N images (N, C, H, W), with the decoders of a file."""
        return evaluate(
            network, by.open_decoders(inputs, decoder), images, dataset=dataset, capsules=capsules,
            seed=seed, progress=progress,
        )  # fmt: skip

    def verdict(self, result) -> str:
        added = result.sse.difference[result.conditions.index(RETRAINED)]
        text = "A decoder trained with uniform couplings draws the images"
        if np.abs(added.ci95).max() <= MARGIN * result.sse.value[0]:
            return (
                f"{text} as well, within {100 * MARGIN:.0f} % of the SSE: the decoder needs "
                "nothing from the couplings that the capsules do not hold."
            )
        if added.low > 0:
            return f"{text} worse: the couplings help, or training differed by chance."
        if added.high < 0:
            return f"{text} better: the couplings do not help, or training differed by chance."
        return f"{text} neither clearly worse nor clearly as well."


def decode_single(model, decoders, image, label=None, *, classes, capsules=6, levels=5) -> Result:
    """Decode single capsules of one image (1, C, H, W), at shares of their coupling, and all.

    `decoders` are those of `capsviz.experiments.primary_decoder.load`.
    """
    import torch

    from capsviz.experiments.primary_decoder import decode, look
    from capsviz.nn.functional import reconstruction_loss
    from capsviz.transforms.augment import to_uint8

    image = image.cpu()
    traced = look(model, image)
    scaled = traced.scaled()
    chosen = by.strongest(traced.couplings, model.grid, capsules)[0]
    shares = torch.linspace(0, 1, levels)
    single = torch.zeros(len(chosen), levels, *scaled.shape[1:])
    for k, i in enumerate(chosen):
        single[k, :, i] = shares[:, None] * scaled[0, i]
    decoded = decode(decoders["routed"], single.flatten(0, 1))
    sse = reconstruction_loss(image.expand_as(decoded), decoded)
    whole = decode(decoders["routed"], scaled)
    types, where, fields = positions(model, chosen.numpy())
    return Result(
        image=to_uint8(image[0]),
        types=types,
        places=where,
        fields=fields,
        couplings=traced.couplings[0, chosen].numpy(),
        shares=shares.numpy(),
        pictures=to_uint8(decoded).reshape(len(chosen), levels, *image.shape[1:]),
        sse=sse.numpy().reshape(len(chosen), levels),
        whole=to_uint8(whole[0]),
        whole_sse=float(reconstruction_loss(image, whole)),
        children=scaled.shape[1],
        predicted=int(traced.predicted),
        classes=list(classes),
        label=label,
    )


def positions(model, chosen):
    """Return types, positions and receptive fields of capsules; without a grid their numbers."""
    if model.grid is None:
        return chosen, None, None
    _, rows, columns = model.grid
    where = np.stack([chosen // columns % rows, chosen % columns], 1)
    pairs = [model.receptive_field(int(row), int(column)) for row, column in where]
    fields = [[end for part in pair for end in (part.start, part.stop)] for pair in pairs]
    return chosen // (rows * columns), where, np.array(fields)
