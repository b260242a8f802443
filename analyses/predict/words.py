"""Words of `predict`: a line, a row of a table or a record for JSON of a picture; captions."""

from __future__ import annotations

import csv
import io

import click

from capsviz.statistics.detection import LOW, REASONS

USUAL_PIECES = 2  # of 5,000 validation digits of MNIST, 0.2 % have more


def line(reading, score="length") -> str:
    """A picture's classes and reconstruction error, and what is odd about it, in one line."""
    prediction = reading.prediction
    pairs = zip(prediction.classes, prediction.lengths, strict=True)
    text = f"{reading.path}: " + ", ".join(f"{name} ({length:.2f})" for name, length in pairs)
    if prediction.sse is not None:
        text += f"; SSE {prediction.sse:.1f}"
    return "; ".join([text, *remarks(prediction.unlike, prediction.reasons, reading.pieces, score)])


def remarks(unlike: bool | None, reasons, pieces: int | None, score="length") -> list[str]:
    """What is odd about a picture, in words; `score` is what a class gets, see `Result`."""
    texts = []
    if unlike:
        named = REASONS | ({"length": LOW[score]} if score in LOW else {})
        why = f" ({', '.join(named[name] for name in reasons)})" if reasons else ""
        texts.append(f"unlike the training data{why}")
    if pieces is not None and pieces > 1:
        more = ": more than one digit?" if pieces > USUAL_PIECES else ""
        texts.append(f"{pieces} separate pieces of ink{more}")
    return texts


def record(reading) -> dict:
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


def row(reading) -> str:
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


def findings(result) -> str:
    """A line for each picture."""
    texts, none = [], [None] * len(result.files)
    for name, predicted, length, sse, *odd in zip(
        result.files, result.predicted, result.lengths, result.sse, result.unlike,
        result.reasons or none, result.pieces or none, strict=True,
    ):  # fmt: skip
        error = "" if sse is None else f", SSE {sse:.1f}"
        head = f"{name}: {predicted} ({result.score} {length:.2f}){error}"
        texts.append(", ".join([head, *remarks(*odd, result.score)]))
    return "\n".join(texts)


def caption(result) -> str:
    """What the figure shows, with its numbers."""
    pictures = findings(result).replace("\n", "; ")
    beyond = [
        f"{name} {side} {limit:.2f}"
        for name, side, limit in (
            (result.score, "below", result.length_limit),
            ("distance", "above", result.distance_limit),
        )
        if limit is not None
    ]
    alarms = f" Unlike: {' or '.join(beyond)}, as 5 % of validation images are." if beyond else ""
    return (
        f"Pictures on their way to the network '{result.network}', step by step. "
        f"In numbers, {pictures}.{alarms}"
    )
