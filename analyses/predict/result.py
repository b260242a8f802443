"""Pictures on their way through a network, step by step, and what is odd about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from capsviz.analyses.predict.remarks import remarks
from capsviz.analysis import Analysis

SIDE = 112  # pixels of a drawn step: four times those of MNIST


class Result(NamedTuple):
    """P pictures on their way through the network, in S steps."""

    files: list[str]  # P names
    steps: list[str]  # S names
    pictures: np.ndarray  # (P, S, C, SIDE, SIDE) uint8, each step fitted in, white around it
    predicted: list[str]  # P predicted classes
    lengths: list[float]  # P, of the winning capsules, or probabilities
    sse: list[float | None]  # P, to the reconstruction; None without a decoder
    unlike: list[bool | None]  # P, the training data; None: not known
    distance_limit: float | None  # L2 distance to the reconstruction above which they are
    network: str
    score: str = "length"  # what `lengths` are: "length", "activation" or "probability"
    length_limit: float | None = None  # length of the winning capsule below which they are
    reasons: list[list[str]] | None = None  # P, by which limits they are: "length", "distance"
    pieces: list[int | None] | None = None  # P, of strokes; None where none are sought


class Predict(Analysis):
    """The steps of pictures through a network; measured by a command of its own, of files."""

    Result = Result
    examples = """
    capsviz predict drawing.png scans/  # 5 s
    """

    def draw(self, result, *, width=7.16, part=""):
        from capsviz.analyses.predict.draw import sheet

        return sheet(result, width)

    def verdict(self, result) -> str:
        lines, none = [], [None] * len(result.files)
        for name, predicted, length, sse, *odd in zip(
            result.files, result.predicted, result.lengths, result.sse, result.unlike,
            result.reasons or none, result.pieces or none, strict=True,
        ):  # fmt: skip
            error = "" if sse is None else f", SSE {sse:.1f}"
            head = f"{name}: {predicted} ({result.score} {length:.2f}){error}"
            lines.append(", ".join([head, *remarks(*odd, result.score)]))
        return "\n".join(lines)

    def caption(self, result, part="") -> str:
        text = (
            f"Pictures on their way to the network '{result.network}', step by step, with the "
            f"predicted class, its {result.score} and the squared error of the reconstruction."
        )
        limits = [
            name
            for name, limit in (
                (f"the {result.score} is low", result.length_limit),
                ("the reconstruction error is large", result.distance_limit),
            )
            if limit is not None
        ]
        if limits:
            text += (
                f" A picture is called unlike the training data if {' or '.join(limits)}, which is "
                "so for 5 % of the validation images."
            )
        return text


def compute(readings: Sequence, *, limits, network: str, score="length") -> Result:
    """The steps of pictures, at one size.

    Parameters
    ----------
    readings  of `capsviz.pictures.prediction`, of one network, at least one.
    limits    `detection.Limits` beyond which a picture is unlike the training data, or None.
    network   its name, for the record.
    score     what it gives to a class: "length" of a capsule, "activation" or "probability".

    Raises
    ------
    ValueError  for no pictures.
    """
    if not readings:
        raise ValueError("no picture could be read, so there are no steps to draw")
    names = list(readings[0].steps)
    predictions = [reading.prediction for reading in readings]
    steps = [np.stack([square(reading.steps[name]) for name in names]) for reading in readings]
    return Result(
        files=[reading.path.name for reading in readings],
        steps=names,
        pictures=np.stack(steps),
        predicted=[one.classes[0] for one in predictions],
        lengths=[one.lengths[0] for one in predictions],
        sse=[one.sse for one in predictions],
        unlike=[one.unlike for one in predictions],
        distance_limit=None if limits is None else limits.distance,
        network=network,
        score=score,
        length_limit=None if limits is None else limits.length,
        reasons=[one.reasons for one in predictions],
        pieces=[reading.pieces for reading in readings],
    )


def square(step: np.ndarray) -> np.ndarray:
    """(h, w) or (h, w, 3) in [0, 1] -> (C, SIDE, SIDE) uint8, keeping its shape, on white."""
    from PIL import Image

    picture = Image.fromarray((np.asarray(step) * 255).round().astype(np.uint8))
    factor = SIDE / max(picture.size)
    size = [max(1, round(side * factor)) for side in picture.size]
    how = Image.Resampling.NEAREST if factor >= 1 else Image.Resampling.BOX
    sheet = Image.new(picture.mode, (SIDE, SIDE), "white")
    sheet.paste(picture.resize(size, how), [(SIDE - side) // 2 for side in size])
    return np.moveaxis(np.atleast_3d(np.asarray(sheet)), 2, 0)
