"""Your own pictures: their classes, and whether the network knows their kind.

Method: a picture is brought to what the network was trained on (for grey images of 28 x 28 pixels
its ink is found, scaled and centred as MNIST's was, see `capsviz.centring`; for others it is
resized), and goes through the network once. The classes are those of the longest capsules. SSE is
the sum of squared pixel differences to the winning capsule's reconstruction, pixels in [0, 1]; the
picture is called unlike the training data if its root is above the 95th percentile of the
validation images (Frosst, Sabour & Hinton 2018, arXiv:1811.06969; `capsviz detect` says how far
that can be trusted).

A reader should see, in the steps, the ink alone, upright and whole, before a class is believed: a
shadow, a ruled line or a neighbour's stroke in what the network sees makes the class worthless.

Do not conclude from a long capsule that the answer is right, nor from "like the training data" that
the picture shows one of the classes: one validation image in twenty is called unlike, and foreign
pictures that are easy to draw are called like.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from capsviz import options

SIDE = 112  # pixels of a drawn step: four times those of MNIST
SHOWN = 8  # files in the figure, at most


class Result(NamedTuple):
    """P pictures on their way through the network, in S steps."""

    files: list[str]  # P names
    steps: list[str]  # S names
    pictures: np.ndarray  # (P, S, C, SIDE, SIDE) uint8, each step fitted in, white around it
    predicted: list[str]  # P names of classes
    lengths: list[float]  # P, of the winning capsules, or probabilities
    sse: list[float | None]  # P, to the reconstruction; None without a decoder
    unlike: list[bool | None]  # P, the training data; None: not known
    limit: float | None  # L2 distance to the reconstruction above which they are
    network: str
    score: str = "length"  # what `lengths` are: "length" or "probability"


def compute(seen: Sequence, *, limit: float | None, network: str, score="length") -> Result:
    """The steps of pictures, at one size.

    Parameters
    ----------
    seen     of `capsviz.prediction`, of one network, at least one.
    limit    L2 distance above which a picture is unlike the training data; None: not known.
    network  its name, for the record.
    score    what it gives to a class: "length" of a capsule, or "probability".

    Raises
    ------
    ValueError  for no pictures.
    """
    if not seen:
        raise ValueError("no picture could be read, so there are no steps to draw")
    names = list(seen[0].steps)
    return Result(
        files=[one.path.name for one in seen],
        steps=names,
        pictures=np.stack([np.stack([_fit(one.steps[name]) for name in names]) for one in seen]),
        predicted=[one.prediction.classes[0] for one in seen],
        lengths=[one.prediction.lengths[0] for one in seen],
        sse=[one.prediction.sse for one in seen],
        unlike=[one.prediction.unlike for one in seen],
        limit=limit,
        network=network,
        score=score,
    )


def _fit(step: np.ndarray) -> np.ndarray:
    """(h, w) or (h, w, 3) in [0, 1] -> (C, SIDE, SIDE) uint8, keeping its shape, on white."""
    from PIL import Image

    picture = Image.fromarray((np.asarray(step) * 255).round().astype(np.uint8))
    factor = SIDE / max(picture.size)
    size = [max(1, round(side * factor)) for side in picture.size]
    how = Image.Resampling.NEAREST if factor >= 1 else Image.Resampling.BOX
    sheet = Image.new(picture.mode, (SIDE, SIDE), "white")
    sheet.paste(picture.resize(size, how), [(SIDE - side) // 2 for side in size])
    return np.moveaxis(np.atleast_3d(np.asarray(sheet)), 2, 0)


def plot(result: Result, *, width=7.16):
    """A row for each picture, a column for each step."""
    from analyses._predict_drawing import sheet

    return sheet(result, width)


@click.command(
    help=__doc__.split("\n")[0]
    + "\n\nA FILE is a picture in any common format, a folder (all pictures in and below it) or a "
    'quoted pattern ("scans/*.png"). Drawings, scans and photographs of dark ink on light paper '
    "are fine, one digit each. Files that cannot be read are named on stderr, and the exit status "
    "is then 1."
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--checkpoint", default="mnist", show_default=True, metavar="NAME|FILE",
    help="Shipped weights, a .safetensors file, or a folder that holds one.",
)  # fmt: skip
@click.option(
    "--topk", "top", type=click.IntRange(1), metavar="K", default=3, show_default=True,
    help="Classes to name for each picture, at most all.",
)  # fmt: skip
@click.option(
    "--invert", type=click.Choice(["auto", "yes", "no"]), default="auto", show_default=True,
    help="Grey pictures: ink darker than its ground is inverted.",
)  # fmt: skip
@click.option(
    "--centre/--no-centre", default=None,
    help="Find, scale and centre the ink as MNIST's. [default: for grey images of 28 x 28]",
)  # fmt: skip
@click.option(
    "--save-figure", "figure", type=click.Path(path_type=Path), metavar="PATH",
    help=f"Draw each step for the first {SHOWN} pictures: NAME.png, .pdf or .svg, or a name "
    "without an ending for PDF and PNG. The numbers are written beside it.",
)  # fmt: skip
@options.device
@click.option("--csv", "as_csv", is_flag=True, help="Print a table: a header, a row per picture.")
@options.as_json
def command(files, checkpoint, figure, device, as_csv, as_json, **given):
    """Predict each file; name those that could not be read."""
    from analyses._predict_command import run

    if as_csv and as_json:
        raise ValueError("--csv and --json: expected one of them")
    unread = run(files, checkpoint, figure, device, "csv" * as_csv or "json" * as_json, given)
    if unread:
        raise click.ClickException(f"{unread} of what was named could not be read, see above")


def findings(result: Result) -> str:
    """A line for each picture."""
    lines = []
    for name, predicted, length, sse, unlike in zip(
        result.files, result.predicted, result.lengths, result.sse, result.unlike, strict=True
    ):
        error = "" if sse is None else f", SSE {sse:.1f}"
        kind = {None: "", True: ", unlike the training data", False: ""}[unlike]
        lines.append(f"{name}: {predicted} ({result.score} {length:.2f}){error}{kind}")
    return "\n".join(lines)


def paper(subject, settings):
    """For `capsviz figures`: nothing, for the set is of test images."""
    yield from ()


def caption(result: Result) -> str:
    """What the figure shows, with its numbers."""
    lines = findings(result).replace("\n", "; ")
    return f"Pictures on their way to the network '{result.network}', step by step. {lines}."
