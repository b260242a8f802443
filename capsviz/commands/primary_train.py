"""Train a decoder from primary capsules, for `capsviz primary`; the network is frozen."""

import json
from pathlib import Path

import click

from capsviz.cli import options, writing

EXAMPLES = """
capsviz primary-train --checkpoint digits  # about 2 min
"""


@click.command(help=__doc__)
@options.inputs
@click.option(
    "--epochs", type=click.IntRange(1), default=5, show_default=True, help="Epochs to train for."
)
@click.option("--limit", type=int, metavar="N", help="Use the first N images of each split only.")
@click.option(
    "--hidden",
    type=click.IntRange(1),
    nargs=2,
    default=(112, 512),
    show_default=True,
    help="Widths of the decoder: the summary of the capsules, then the ReLU layer.",
)
@options.seed
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the decoder. [default: runs/NAME-primary]",
)
def command(epochs, limit, hidden, seed, output, inputs):
    """Train the decoder, evaluate it on test images, and write it with its card."""
    from capsviz.analyses import primary
    from capsviz.experiments import primary_decoder
    from capsviz.transforms.augment import to_float

    loaded = options.open_inputs(inputs, split="train")
    model, training = loaded.model, loaded.dataset
    validation, test = loaded.load("validation"), loaded.load("test")
    if limit is not None:
        training = training.first(limit)
        validation, test = (part.first(min(limit, len(part))) for part in (validation, test))
    output = output or primary_decoder.default_folder(loaded.name)
    path = output / primary_decoder.file_name(loaded.name)
    if path.exists():
        raise ValueError(f"'{path}' exists already: delete it, or choose another --output")
    path.parent.mkdir(parents=True, exist_ok=True)
    decoders, record = primary_decoder.fit(
        model, training, validation, epochs=epochs, hidden=hidden, seed=seed,
        report=lambda line: click.echo(line, err=True), progress=writing.progress("training"),
    )  # fmt: skip
    statistics = primary.evaluate(
        model, decoders, to_float(test.images), dataset=test.name, seed=seed,
        progress=writing.progress("test images"),
    )  # fmt: skip
    card = {
        "dataset": {"name": training.name},
        "training": {"images": len(training), "seed": seed, "epochs": record},
        "results": {"test": json.loads(writing.to_json(statistics._asdict()))},
    }
    path = primary_decoder.save(path, decoders, model.card, card)
    click.echo(primary.Couplings().findings(statistics))
    click.echo(f"wrote {path}", err=True)
