"""Predict the classes of your own pictures, and warn if they are unlike the training data."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from capsviz.analysis import Analysis
from capsviz.cli import options, writing
from capsviz.statistics.detection import remarks

PICTURES = 16  # files in the figure, at most
SIDE = 112  # side of a drawn step in pixels: four times that of MNIST


class Result(NamedTuple):
    """P pictures on their way through the network, in S steps."""

    files: list[str]  # (P,) names
    steps: list[str]  # (S,) names
    pictures: np.ndarray  # (P, S, C, SIDE, SIDE) uint8, each step scaled to fit, on white
    predicted: list[str]  # (P,) predicted classes
    lengths: list[float]  # (P,) `score` of the predicted class
    sse: list[float | None]  # (P,) reconstruction error; None without a decoder
    unlike: list[bool | None]  # (P,) whether unlike the training data; None: not known
    distance_limit: float | None  # a picture is unlike above this L2 distance to its reconstruction
    network: str
    score: str  # kind of `lengths`: "length", "activation" or "probability"
    length_limit: float | None  # a picture is unlike if its predicted class scores below this
    reasons: list[list[str]]  # (P,) limits that it crosses: "length", "distance"
    pieces: list[int | None]  # (P,) separate pieces of strokes; None if they were not counted
    of: int | None = None  # number of pictures predicted; None: P

    @property
    def left_out(self) -> str:
        """Return how many of the pictures are drawn, or "" if all are."""
        shown, every = len(self.files), self.of or 0
        return f"{shown} of {every:,} pictures drawn" if shown < every else ""


class Predict(Analysis):
    """The steps of pictures through a network; the command of this module measures them."""

    Result = Result
    examples = "capsviz predict drawing.png scans/  # 5 s"

    def verdict(self, result) -> str:
        rows = zip(
            result.files, result.predicted, result.lengths, result.sse, result.unlike,
            result.reasons, result.pieces, strict=True,
        )  # fmt: skip
        return "\n".join(
            as_line(name, [(predicted, length)], sse, remarks(*odd, result.score))
            for name, predicted, length, sse, *odd in rows
        )

    def caption_of(self, result, panels) -> str:
        text = (
            f"Pictures on their way to the network '{result.network}', step by step, with the "
            f"predicted class, its {result.score} and the squared error of the reconstruction."
        )
        limits = {
            f"the {result.score} is low": result.length_limit,
            "the reconstruction error is large": result.distance_limit,
        }
        if known := [name for name, limit in limits.items() if limit is not None]:
            text += (
                f" A picture is called unlike the training data if {' or '.join(known)}, which is "
                "so for 5 % of the validation images."
            )
        if result.left_out:
            text += f" {result.left_out}, first those that are unlike the training data."
        return text


def compute(readings: Sequence, *, limits, network: str, score="length", of=None) -> Result:
    """Return the result of readings from `capsviz.pictures.prediction`, all steps at one size.

    `limits` (smallest score, largest distance) decide which pictures are unlike the training data;
    None: not known. `of` is the number of pictures predicted.
    """
    names = list(readings[0].steps)
    files = [one.path.name for one in readings]
    if len({*files}) < len(files):
        files = [str(one.path) for one in readings]
    columns = zip(*(as_record(one).values() for one in readings), strict=True)
    _, classes, lengths, sse, unlike, reasons, pieces = map(list, columns)
    least, most = limits or (None, None)
    return Result(
        files, names,
        np.stack([[square(one.steps[name]) for name in names] for one in readings]),
        [each[0] for each in classes], [each[0] for each in lengths], sse, unlike, most, network,
        score, least, reasons, pieces, of,
    )  # fmt: skip


def square(step: np.ndarray) -> np.ndarray:
    """Return a picture (h, w[, 3]) in [0, 1] as (C, SIDE, SIDE) uint8, scaled to fit, on white."""
    from PIL import Image

    picture = Image.fromarray((np.asarray(step) * 255).round().astype(np.uint8))
    factor = SIDE / max(picture.size)
    wide, tall = (max(1, round(side * factor)) for side in picture.size)
    how = Image.Resampling.NEAREST if factor >= 1 else Image.Resampling.BOX
    sheet = Image.new(picture.mode, (SIDE, SIDE), "white")
    sheet.paste(picture.resize((wide, tall), how), ((SIDE - wide) // 2, (SIDE - tall) // 2))
    return np.moveaxis(np.atleast_3d(np.asarray(sheet)), 2, 0)


@click.command(
    help="Predict the classes of your own pictures, and warn if they are unlike the training data."
    "\n\nA FILE is a picture in any common format, a folder (all pictures in and below it) or a "
    'quoted pattern ("scans/*.png"). Drawings, scans and photographs of dark ink on light paper '
    "are fine, one digit each. Files that cannot be read are named on stderr, and the exit status "
    "is then 1."
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--checkpoint", metavar="NAME|FILE",
    help="Shipped weights, a .safetensors file, or a folder that holds one. [default: mnist]",
)  # fmt: skip
@options.own_network()
@options.data_of(
    "mnist, or the embedded digits", "Data set whose images and classes the network takes."
)
@click.option(
    "--topk", "top", type=click.IntRange(1), metavar="K", default=3, show_default=True,
    help="Number of classes to name for each picture.",
)  # fmt: skip
@click.option(
    "--invert", type=click.Choice(["auto", "yes", "no"]), default="auto", show_default=True,
    help="Invert grey pictures whose strokes are darker than the background.",
)  # fmt: skip
@click.option(
    "--centre/--no-centre", default=None,
    help="Find, scale and centre the strokes as MNIST's. [default: for digits in grey images "
    "of 28 x 28, from no class folder]",
)  # fmt: skip
@click.option(
    "--range", "top_value", type=click.FloatRange(0, min_open=True), metavar="N",
    help="Largest value of pictures of more than 8 bits. [default: as in training]",
)  # fmt: skip
@click.option(
    "--save-figure", "figure", type=click.Path(path_type=Path), metavar="PATH",
    help=f"Draw each step for up to {PICTURES} pictures: NAME.png, .pdf or .svg, or a name without "
    "an ending for PDF and PNG. The numbers are written beside it.",
)  # fmt: skip
@writing.printed
@options.device
@writing.as_json
def command(
    files, checkpoint, network, weights, dataset, data_dir, figure, printed, device,
    as_json, top, **preparation,
):  # fmt: skip
    """Predict each file, print and write the results, and name files that cannot be read."""
    from tqdm import tqdm

    from capsviz import checkpoint as checkpoints
    from capsviz import data, pictures
    from capsviz.cli import naming
    from capsviz.inputs.opening import choose_device
    from capsviz.pictures import opening, prediction
    from capsviz.results import house
    from capsviz.tracing import abilities, score_name
    from capsviz.training import thresholds

    if figure is None and (ignored := options.typed("width", "venue", "rc", "font", "force")):
        raise ValueError(
            f"no figure is drawn: drop {', '.join(ignored)}, or add --save-figure PATH"
        )
    printed["formats"] = ("pdf", "png")
    if figure is not None:
        if figure.suffix:
            printed["formats"] = house.check_formats([figure.suffix[1:].lower()])
            figure = figure.with_suffix("")
        naming.try_folder(figure.parent)
        naming.refuse_existing(figure, force=printed["force"], option="--save-figure")
    paths, nothing, others = prediction.find(files)
    words = opening.in_words(others)
    if not paths:
        raise ValueError(f"no picture in {', '.join(map(repr, nothing))}{words and f': {words}'}")
    source = network or checkpoint or data.DEFAULT
    if network is not None:
        places = {"dataset": dataset, "data_dir": data_dir, "device": device}
        named = {"network": network, "weights": weights, "checkpoint": checkpoint, **places}
        model = options.open_inputs(named, capsules=False).model
    elif idle := options.typed("weights", "dataset", "data_dir"):
        own = "only for a network of your own, by --network FILE.py:FUNCTION"
        raise ValueError(f"{', '.join(idle)}: {own}")
    else:
        model = checkpoints.load(source, device=choose_device(device))
    count = "1 picture" if len(paths) == 1 else f"{len(paths):,} pictures"
    click.echo(f"{count}{words and f'; left out: {words}'}", err=True)
    frame = pictures.frame(model)
    top_value = preparation["top_value"] or frame.top
    for line in opening.doubts(opening.kinds(paths), top_value, alike=frame.folders):
        click.echo(f"WARN {line}", err=True)
    able, score = abilities(model), score_name(model).split()[-1]
    top = min(top, able.config["classes"])
    limits, why = thresholds.limits(model)
    if why is not None:
        click.echo(f"not known which pictures are unlike the training data: {why}", err=True)
    unread = []

    def failed(line: str) -> None:
        unread.append(line)
        writing.line(line)

    for name in nothing:
        failed(f"no picture in '{name}'")
    records, drawn, done, brightest = [], [], 0, 0
    for reading in prediction.of_files(
        model, writing.progress("pictures")(paths), top=top, limits=limits, failed=failed,
        **preparation,
    ):  # fmt: skip
        brightest = max(brightest, int(255 * next(iter(reading.steps.values())).max()))
        record = as_record(reading)
        file, classes, lengths, sse, *odd = record.values()
        if as_json:
            records.append(record)
        else:
            pairs = zip(classes, lengths, strict=True)
            tqdm.write(as_line(file, pairs, sse, remarks(*odd, score)))
        done += 1
        if figure is not None:
            drawn.append(reading)
            if len(paths) > PICTURES:
                drawn = sorted(drawn, key=lambda one: not one.prediction.unlike)[:PICTURES]
    if dark := opening.too_dark(brightest):
        click.echo(f"WARN {dark}", err=True)
    if as_json:
        click.echo(writing.to_json(records))
    if drawn:
        name = able.card.get("name", source)
        result = compute(drawn, limits=limits, network=name, score=score, of=done)
        for path in writing.write(
            figure, "predict", result, printed,
            options={"top": top, **preparation}, card=able.card,
            device=str(next(model.parameters()).device),
        ):  # fmt: skip
            click.echo(f"wrote {path}", err=True)
        if result.left_out:
            click.echo(result.left_out, err=True)
    if unread:
        raise click.ClickException(f"{len(unread)} of the pictures could not be opened: see above")


def as_line(name, pairs, sse: float | None, odd: Sequence[str]) -> str:
    """Return a line with a picture's (class, score) pairs, its error and remarks."""
    text = f"{name}: " + ", ".join(f"{one} ({length:.2f})" for one, length in pairs)
    return "; ".join([text if sse is None else f"{text}; SSE {sse:.1f}", *odd])


def as_record(reading) -> dict[str, Any]:
    """Return a picture's prediction as plain data for JSON."""
    one = reading.prediction
    return {
        "file": str(reading.path),
        "classes": one.classes,
        "lengths": one.lengths,
        "reconstruction_sse": one.sse,
        "unlike_training_data": one.unlike,
        "unlike_by": one.reasons,
        "pieces_of_ink": reading.pieces,
    }
