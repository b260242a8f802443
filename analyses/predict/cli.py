"""The command: predict each file, print lines, CSV or JSON, and draw the steps."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import click

from capsviz import results
from capsviz.analyses.predict.remarks import remarks
from capsviz.analyses.predict.result import Result, compute
from capsviz.cli import options, writing

PICTURES = 8  # files in the figure, at most


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
@options.own_data
@click.option(
    "--topk", "top", type=click.IntRange(1), metavar="K", default=3, show_default=True,
    help="Classes to name for each picture, at most all.",
)  # fmt: skip
@click.option(
    "--invert", type=click.Choice(["auto", "yes", "no"]), default="auto", show_default=True,
    help="Invert grey pictures whose strokes are darker than the background.",
)  # fmt: skip
@click.option(
    "--centre/--no-centre", default=None,
    help="Find, scale and centre the strokes as MNIST's. [default: for grey images of 28 x 28 "
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
        raise click.ClickException(f"{unread} of the pictures could not be opened: see above")


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
        say(line, err=True)

    def failed(line):
        unread.append(line)
        say(line, err=True)

    rows, drawn, score = [], [], score_name(model).split()[-1]
    if form == "csv":
        say(header(preparation["top"]))
    paths = writing.progress("pictures")(files)
    for reading in prediction.of_files(model, paths, limits=limits, failed=failed, **preparation):
        if form == "json":
            rows.append(as_record(reading))
        else:
            say(as_row(reading) if form == "csv" else as_line(reading, score))
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


def as_line(reading, score="length") -> str:
    """A picture's classes and reconstruction error, and what is odd about it, in one line."""
    prediction = reading.prediction
    pairs = zip(prediction.classes, prediction.lengths, strict=True)
    text = f"{reading.path}: " + ", ".join(f"{name} ({length:.2f})" for name, length in pairs)
    if prediction.sse is not None:
        text += f"; SSE {prediction.sse:.1f}"
    return "; ".join([text, *remarks(prediction.unlike, prediction.reasons, reading.pieces, score)])


def as_record(reading) -> dict:
    """The same as plain data for JSON."""
    prediction = reading.prediction
    return {
        "file": str(reading.path),
        "classes": prediction.classes,
        "lengths": prediction.lengths,
        "reconstruction_sse": prediction.sse,
        "unlike_training_data": prediction.unlike,
        "unlike_by": prediction.reasons,
        "pieces_of_ink": reading.pieces,
    }


def header(top: int) -> str:
    """Names of the columns for `top` classes, as a line of CSV."""
    pairs = [f"{what}_{k + 1}" for k in range(top) for what in ("class", "length")]
    odd = ["unlike_training_data", "unlike_by", "pieces_of_ink"]
    return _csv(["file", *pairs, "reconstruction_sse", *odd])


def as_row(reading) -> str:
    """The row of a picture, in these columns."""
    prediction = reading.prediction
    pairs = zip(prediction.classes, prediction.lengths, strict=True)
    cells = [
        reading.path,
        *(cell for pair in pairs for cell in pair),
        "" if prediction.sse is None else prediction.sse,
        {None: "", True: "yes", False: "no"}[prediction.unlike],
        " ".join(prediction.reasons),
        "" if reading.pieces is None else reading.pieces,
    ]
    return _csv(cells)


def _csv(cells) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(
        f"{cell:.6g}" if isinstance(cell, float) else cell for cell in cells
    )
    return text.getvalue()


def say(line: str, *, err: bool = False) -> None:
    """A line on stdout or stderr, above the progress bar if there is one."""
    from tqdm import tqdm

    with tqdm.external_write_mode():
        click.echo(line, err=err)
