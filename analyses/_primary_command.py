"""`capsviz primary train`: the decoders, their results on held-out images, and their card."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from capsviz import options


@click.command()
@options.subject
@click.option(
    "--epochs", type=click.IntRange(1), default=5, show_default=True, help="Over training images."
)
@click.option("--limit", type=int, metavar="N", help="The first N images of each split only.")
@options.seed
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the decoder. [default: runs/NAME-primary]",
)
def train(epochs, limit, seed, output, subject):
    """Train a decoder from primary capsules; the network is frozen."""
    from analyses._primary_statistics import said
    from capsviz import primary_decoder

    opened = options.open_subject(subject, split="train")
    parts = [opened.dataset, opened.load("validation"), opened.load("test")]
    if limit is not None:
        parts = [parts[0].first(limit), *(part.first(min(limit, len(part))) for part in parts[1:])]
    output = output or primary_decoder.default_folder(opened.name)
    path, statistics = train_and_save(
        opened.model, *parts, output / primary_decoder.file_name(opened.name), epochs=epochs,
        seed=seed, report=lambda line: click.echo(line, err=True),
    )  # fmt: skip
    click.echo(said(statistics))
    click.echo(f"wrote {path}", err=True)


def train_and_save(model, train, validation, test, path: Path, *, epochs, seed, report):
    """Train on one split, choose on another, report on the third; write decoders and card.

    Returns
    -------
    `path`, and the `Statistics` of the test split.
    """
    from analyses._primary_statistics import evaluate
    from capsviz.augment import to_float
    from capsviz.primary_decoder import save
    from capsviz.primary_training import fit

    if path.exists():
        raise ValueError(f"'{path}' is there already: delete it, or choose another --output")
    path.parent.mkdir(parents=True, exist_ok=True)
    decoders, record = fit(
        model, train, validation, epochs=epochs, seed=seed, report=report,
        progress=options.progress("training"),
    )  # fmt: skip
    found = evaluate(
        model, decoders, to_float(test.images), dataset=test.name, seed=seed,
        progress=options.progress("test images"),
    )  # fmt: skip
    card = {
        "dataset": {"name": train.name},
        "training": {"images": len(train), "seed": seed, "epochs": [asdict(e) for e in record]},
        "results": {"test": json.loads(options.to_json(found._asdict()))},
    }
    return save(path, decoders, model.card, card), found
