"""Measure accuracy on `digits` when whole blocks of its file are left out of training.

    python -m benchmarks.blocks

Trains the recipe of `digits-self-attention` on each of the five splits by blocks
(`capsviz.data.digits`), which takes about two minutes each on one core. Fits a support vector
machine to these splits and to equally many random ones. Test accuracies go to results/blocks.json.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
import numpy as np

from benchmarks import write
from benchmarks.clock import about
from capsviz import checkpoint, data
from capsviz.data.digits import BLOCKS
from capsviz.training import run as pipeline
from capsviz.training.evaluate import evaluate
from capsviz.training.train import fit

RECIPE = "digits-self-attention"


@click.command(help=__doc__.partition("\n")[0])
def command():
    """Measure the accuracies, and write the result."""
    shipped = checkpoint.read_card(checkpoint.find(RECIPE))["results"]["test"]
    result = {"recipe": RECIPE, "random": shipped["accuracy"], "n": shipped["n"], "blocks": []}
    for block in range(BLOCKS):
        result["blocks"].append(network(block))
        click.echo(f"block {block}: {result['blocks'][-1]}", err=True)
    result["machine"] = machines()
    write("blocks", result | {"about": about()})


def network(block: int) -> dict:
    """Train on all other blocks, and return the number of test images and of correct ones."""
    _, recipe = pipeline.prepare(RECIPE, {"dataset_options": {"block": block}})
    train, validation, test = (pipeline.load(recipe, split) for split in data.SPLITS)
    with tempfile.TemporaryDirectory() as folder:
        model, _ = fit(recipe, train, validation, Path(folder))
    read = evaluate(model, test)
    return {"n": read.n, "right": round(read.accuracy * read.n)}


def machines() -> dict[str, float]:
    """Return cross-validated accuracies of support vector machines, for both kinds of splits."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import KFold, cross_val_score
    from sklearn.svm import SVC

    images, labels = load_digits(return_X_y=True)
    ways = {"random": KFold(BLOCKS, shuffle=True, random_state=0), "blocks": KFold(BLOCKS)}
    return {
        way: float(np.mean(cross_val_score(SVC(gamma=0.001), images, labels, cv=folds)))
        for way, folds in ways.items()
    }


if __name__ == "__main__":
    command()
