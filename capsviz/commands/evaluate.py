"""Accuracy with its interval, per-class accuracy, confusion and losses on a split."""

from __future__ import annotations

import click

from capsviz import options


@click.command(help=__doc__)
@options.subject
@click.option("--split", default="test", show_default=True, metavar="train|validation|test")
@click.option("--limit", type=int, metavar="N", help="The first N images only.")
@options.as_json
def command(split, limit, as_json, subject):
    """Evaluate one network."""
    from capsviz.evaluate import evaluate

    opened = options.open_subject(subject, split=split)
    part = opened.dataset.first(limit)
    found = evaluate(opened.model, part, progress=options.progress("images"))
    about = {"checkpoint": opened.name, "dataset": part.name, "split": split, **found._asdict()}
    things = 1 if part.parts is None else part.labels.shape[1]
    click.echo(options.to_json(about) if as_json else _table(about, part.classes, things))


def _table(about: dict, classes, things: int) -> str:
    low, high = about["accuracy_ci95"]
    each = f", all {things} classes right" if things > 1 else ""
    lines = [
        f"{about['checkpoint']} on {about['n']:,} images of {about['dataset']} {about['split']}",
        f"  accuracy     {about['accuracy']:.2%}  (95 % interval {low:.2%} to {high:.2%}){each}",
        f"  error        {about['error_percent']:.2f} %",
        f"  margin loss  {about['margin_loss']:.5f} per image",
    ]
    if about["reconstruction_sse"] is not None:
        what = f"thing, {things} in each image" if things > 1 else "image"
        lines.append(f"  SSE          {about['reconstruction_sse']:.2f} per {what}")
    return "\n".join([*lines, "", *(_confusion if things == 1 else _shares)(about, classes)])


def _confusion(about: dict, classes) -> list[str]:
    width = max(
        5, *(len(name) for name in classes), *(len(str(max(r))) for r in about["confusion"])
    )
    lines = ["row: true class, column: predicted, right: accuracy of the class"]
    lines.append(" " * width + "".join(f" {name:>{width}}" for name in classes))
    for name, row in zip(classes, about["confusion"], strict=True):
        share = about["per_class"].get(name)
        cells = "".join(f" {count or '.':>{width}}" for count in row)
        lines.append(f"{name:>{width}}{cells}  " + ("" if share is None else f"{share:7.2%}"))
    return lines


def _shares(about: dict, classes) -> list[str]:
    width = max(5, *(len(name) for name in classes))
    lines = ["class, and in how many of the images that show it it is predicted"]
    return lines + [f"{name:>{width}}  {v:7.2%}" for name, v in about["per_class"].items()]
