"""Accuracy with its interval, per-class accuracy, confusion and losses on a split."""

from __future__ import annotations

import click

from capsviz.cli import options

EXAMPLES = """
capsviz evaluate --checkpoint mnist --n 1000  # 10 s; all 10,000 images about 1 min
"""


@click.command(help=__doc__)
@options.inputs
@click.option("--split", default="test", show_default=True, metavar="train|validation|test")
@options.number("The first N images only.", "--limit", name="limit")
@click.option(
    "--write-thresholds", "write", is_flag=True,
    help="With --split validation: write into the checkpoint's card beyond which capsule lengths "
    "and distances `capsviz predict` calls a picture unlike the training data.",
)  # fmt: skip
@options.as_json
def command(split, limit, write, as_json, inputs):
    """Evaluate one network."""
    from capsviz.training.evaluate import evaluate

    if write and (split != "validation" or limit is not None):
        raise ValueError("--write-thresholds looks at all of --split validation, without --n")
    chosen = options.open_inputs(inputs, split=split, capsules=False)
    part = chosen.dataset.first(limit)
    evaluation = evaluate(chosen.model, part, progress=options.progress("images"))
    about = {
        "checkpoint": chosen.name, "dataset": part.name, "split": split, **evaluation._asdict()
    }  # fmt: skip
    things = 1 if part.parts is None else part.labels.shape[1]
    click.echo(options.to_json(about) if as_json else _table(about, part.classes, things))
    if write:
        click.echo(f"wrote {_write_thresholds(chosen, part)}", err=True)


def _write_thresholds(chosen, part):
    """Put a network's thresholds from validation images into its card; the card's path."""
    from capsviz import checkpoint
    from capsviz.training.thresholds import thresholds

    trained_on = chosen.model.card["dataset"]["name"]
    if part.name != trained_on:
        raise ValueError(
            f"the network was trained on {trained_on}: expected its validation images, "
            f"got those of {part.name}"
        )
    values = thresholds(chosen.model, part, progress=options.progress("thresholds"))
    return checkpoint.update_card(checkpoint.find(chosen.source), thresholds=values)


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
