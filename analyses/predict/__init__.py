"""Your own pictures: their classes, and whether the network knows their kind.

`capsviz predict --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from capsviz import results
from capsviz.analyses.predict import words
from capsviz.analyses.predict.measure import square
from capsviz.analyses.predict.words import caption, findings
from capsviz.cli import options, writing

EXAMPLES = """
capsviz predict drawing.png scans/  # 5 s
"""

__all__ = ["Result", "caption", "command", "compute", "findings", "paper", "plot"]

NEEDS = ()  # of a network: its scores

PICTURES = 8  # files in the figure, at most


class Result(NamedTuple):
    """P pictures on their way through the network, in S steps."""

    files: list[str]  # P names
    steps: list[str]  # S names
    pictures: np.ndarray  # (P, S, C, SIDE, SIDE) uint8, each step fitted in, white around it
    predicted: list[str]  # P names of classes
    lengths: list[float]  # P, of the winning capsules, or probabilities
    sse: list[float | None]  # P, to the reconstruction; None without a decoder
    unlike: list[bool | None]  # P, the training data; None: not known
    distance_limit: float | None  # L2 distance to the reconstruction above which they are
    network: str
    score: str = "length"  # what `lengths` are: "length", "activation" or "probability"
    length_limit: float | None = None  # length of the winning capsule below which they are
    reasons: list[list[str]] | None = None  # P, by which limits they are: "length", "distance"
    pieces: list[int | None] | None = None  # P, of ink; None where no ink is sought


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


def plot(result: Result, *, width=7.16):
    """A row for each picture, a column for each step."""
    from capsviz.analyses.predict.draw import sheet

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
    "--checkpoint", metavar="NAME|FILE",
    help="Shipped weights, a .safetensors file, or a folder that holds one. [default: mnist]",
)  # fmt: skip
@options.own_network()
@options.own_data
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
    help="Find, scale and centre the ink as MNIST's. [default: for grey images of 28 x 28 "
    "that come of no class folders]",
)  # fmt: skip
@click.option(
    "--save-figure", "figure", type=click.Path(path_type=Path), metavar="PATH",
    help=f"Draw each step for the first {PICTURES} pictures: NAME.png, .pdf or .svg, or a name "
    "without an ending for PDF and PNG. The numbers are written beside it.",
)  # fmt: skip
@writing.printed
@options.device
@click.option("--csv", "as_csv", is_flag=True, help="Print a table: a header, a row per picture.")
@writing.as_json
def command(
    files, checkpoint, network, weights, dataset, data_dir, figure, printed, device, as_csv,
    as_json, **preparation,
):  # fmt: skip
    """Predict each file; name those that could not be read."""
    if as_csv and as_json:
        raise ValueError("--csv and --json: expected one of them")
    if figure is None and (ignored := options.typed("width", "venue", "rc", "font", "force")):
        raise ValueError(
            f"no figure is drawn: drop {', '.join(ignored)}, or add --save-figure PATH"
        )
    form = "csv" * as_csv or "json" * as_json
    chosen = {
        "checkpoint": checkpoint, "network": network, "weights": weights, "dataset": dataset,
        "data_dir": data_dir, "device": device,
    }  # fmt: skip
    unread = _run(files, chosen, figure, printed, form, preparation)
    if unread:
        raise click.ClickException(f"{unread} of what was named could not be read, see above")


def _run(names, chosen, figure, printed, form, preparation) -> int:
    """Predict files, write what was asked for, and return how many could not be read.

    Parameters
    ----------
    names        paths, folders and patterns.
    chosen       the network, as `open_model` takes it.
    figure       path of the figure, or None.
    printed      of `writing.printed`.
    form         "json", "csv" or "" for lines.
    preparation  `top`, `invert` and `centre` of `prediction.of_files`.
    """
    from capsviz.cli import naming
    from capsviz.inputs.opening import open_model
    from capsviz.pictures import prediction
    from capsviz.tracing import score_name
    from capsviz.training import thresholds

    stem, printed["formats"] = _figure(figure)
    if stem is not None:
        naming.try_folder(stem.parent)
        naming.refuse_existing(stem, force=printed["force"], option="--save-figure")
    files, nothing = prediction.find(names)
    if not files:
        raise ValueError(f"no picture in {', '.join(map(repr, nothing))}")
    model, source, notice = open_model(**chosen)
    if notice is not None:
        click.echo(notice, err=True)
    preparation["top"] = min(preparation["top"], model.config["classes"])
    limits, why = thresholds.limits(model)
    if why is not None:
        click.echo(f"not known which pictures are unlike the training data: {why}", err=True)
    unread = [f"no picture in '{name}'" for name in nothing]
    for line in unread:
        words.say(line, err=True)

    def failed(line):
        unread.append(line)
        words.say(line, err=True)

    rows, drawn, score = [], [], score_name(model).split()[-1]
    if form == "csv":
        words.say(words.header(preparation["top"]))
    paths = writing.progress("pictures")(files)
    for reading in prediction.of_files(model, paths, limits=limits, failed=failed, **preparation):
        if form == "json":
            rows.append(words.record(reading))
        else:
            words.say(words.row(reading) if form == "csv" else words.line(reading, score))
        if stem is not None and len(drawn) < PICTURES:
            drawn.append(reading)
    if form == "json":
        click.echo(writing.to_json(rows))
    if drawn:
        about = {"limits": limits, "network": model.card.get("name", source), "score": score}
        _draw(compute(drawn, **about), model, stem, printed, preparation)
    return len(unread)


def _figure(path: Path | None) -> tuple[Path | None, tuple[str, ...]]:
    if path is None or not path.suffix:
        return path, ("pdf", "png")
    return path.with_suffix(""), results.check_formats([path.suffix[1:].lower()])


def _draw(result: Result, model, stem, printed, preparation) -> None:
    for path in writing.write(
        stem, "predict", result, printed, options=preparation, card=model.card,
        device=str(next(model.parameters()).device),
    ):  # fmt: skip
        click.echo(f"wrote {path}", err=True)


def paper(inputs, settings):
    """For `capsviz figures`: nothing, for the set is of test images."""
    yield from ()
