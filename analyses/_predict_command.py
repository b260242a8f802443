"""Running `predict`: from the files that were named to lines, a table or JSON, and a figure."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import click

from analyses import predict
from capsviz import figures, options


def run(given, checkpoint, figure, device, form, how) -> int:
    """Predict files, write what was asked for, and return how many could not be read.

    Parameters
    ----------
    given   paths, folders and patterns.
    figure  path of the figure, or None.
    form    "json", "csv" or "" for lines.
    how     `top`, `invert` and `centre` of `prediction.of_files`.
    """
    from capsviz import checkpoint as checkpoints
    from capsviz import prediction
    from capsviz.subject import choose_device

    stem, formats = _figure(figure)
    model = checkpoints.load(checkpoint, device=choose_device(device))
    files, nothing = prediction.find(given)
    if not files:
        raise ValueError(f"no picture in {', '.join(map(repr, nothing))}")
    how["top"] = min(how["top"], model.config["classes"])
    limit, why = prediction.threshold(model)
    if why is not None:
        click.echo(f"not known which pictures are unlike the training data: {why}", err=True)
    unread = [f"no picture in '{text}'" for text in nothing]
    for line in unread:
        _say(line, err=True)

    def failed(line):
        unread.append(line)
        _say(line, err=True)

    rows, shown = [], []
    if form == "csv":
        _say(_csv(_header(how["top"])))
    paths = options.progress("pictures")(files)
    for seen in prediction.of_files(model, paths, limit=limit, failed=failed, **how):
        if form == "json":
            rows.append(_record(seen))
        else:
            _say(_csv(_cells(seen)) if form == "csv" else _line(seen))
        if stem is not None and len(shown) < predict.SHOWN:
            shown.append(seen)
    if form == "json":
        click.echo(options.to_json(rows))
    if shown:
        _draw(shown, limit, model, checkpoint, stem, formats, how)
    return len(unread)


def _figure(path: Path | None) -> tuple[Path | None, tuple[str, ...]]:
    if path is None:
        return None, ()
    if not path.suffix:
        return path, ("pdf", "png")
    return path.with_suffix(""), figures.check_formats([path.suffix[1:].lower()])


def _draw(shown, limit, model, checkpoint, stem, formats, how) -> None:
    name = model.card.get("name", checkpoint)
    score = "length" if hasattr(model, "look") else "probability"
    result = predict.compute(shown, limit=limit, network=name, score=score)
    for path in figures.save(
        stem, "predict", result, formats=formats, options=how, card=model.card,
        device=str(next(model.parameters()).device), command=options.command_line(),
    ):  # fmt: skip
        click.echo(f"wrote {path}", err=True)


def _line(seen) -> str:
    found = seen.prediction
    pairs = zip(found.classes, found.lengths, strict=True)
    text = f"{seen.path}: " + ", ".join(f"{name} ({length:.2f})" for name, length in pairs)
    if found.sse is not None:
        text += f"; SSE {found.sse:.1f}"
    return text + ("; unlike the training data" if found.unlike else "")


def _record(seen) -> dict:
    found = seen.prediction
    return {
        "file": str(seen.path),
        "classes": found.classes,
        "lengths": found.lengths,
        "reconstruction_sse": found.sse,
        "unlike_training_data": found.unlike,
    }


def _header(top: int) -> list[str]:
    pairs = [f"{what}_{k + 1}" for k in range(top) for what in ("class", "length")]
    return ["file", *pairs, "reconstruction_sse", "unlike_training_data"]


def _cells(seen) -> list:
    found = seen.prediction
    pairs = [cell for pair in zip(found.classes, found.lengths, strict=True) for cell in pair]
    unlike = {None: "", True: "yes", False: "no"}[found.unlike]
    return [seen.path, *pairs, "" if found.sse is None else found.sse, unlike]


def _csv(cells) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(
        f"{cell:.6g}" if isinstance(cell, float) else cell for cell in cells
    )
    return text.getvalue()


def _say(line: str, *, err: bool = False) -> None:
    """A line on stdout or stderr, above the progress bar if there is one."""
    from tqdm import tqdm

    with tqdm.external_write_mode():
        click.echo(line, err=err)
