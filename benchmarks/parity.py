"""Compare the accuracy of the fast path with a literal transcription: two epochs, three seeds.

`python -m benchmarks.parity` trains both on MNIST by the shipped recipe, cut to two epochs, from
the same initial weights and with the same batches. The literal network runs in float32, capsviz in
bf16, which is its default if the processor supports it.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks import RESULTS
from benchmarks.networks import literal
from capsviz import data
from capsviz.files import write_text
from capsviz.nn import allocator
from capsviz.provenance import hardware, provenance
from capsviz.training import run as pipeline
from capsviz.training.evaluate import evaluate
from capsviz.training.train import build_model, fit

PATHS = {"literal": "fp32", "capsviz": "bf16"}


def run(path: str, seed: int, epochs: int, limit: int | None, folder: Path) -> dict:
    """Train one network and evaluate it once; resume an interrupted run."""
    _, recipe = pipeline.prepare("mnist", {"epochs": epochs, "seed": seed, "limit": limit})
    recipe = replace(recipe, precision=PATHS[path], keep="last")
    splits = {split: data.load("mnist", split) for split in data.SPLITS}
    model = build_model(recipe, splits["train"])
    if path == "literal":
        model = literal(model)
    model, _ = fit(
        recipe, splits["train"], splits["validation"], folder / f"{path}-{seed}",
        model=model, resume=True,
    )  # fmt: skip
    test = evaluate(model, splits["test"])
    return {
        "path": path,
        "precision": PATHS[path],
        "seed": seed,
        "epochs": epochs,
        "limit": limit,
        "accuracy": test.accuracy,
        "margin_loss": test.margin_loss,
        "reconstruction_sse": test.reconstruction_sse,
        "provenance": provenance(None, "cpu"),
        "hardware": hardware(torch.device("cpu")),
    }


def accuracies(lines: list[dict]) -> dict[str, np.ndarray]:
    """Return the accuracies of each path, in order of seeds."""
    return {path: np.array([x["accuracy"] for x in lines if x["path"] == path]) for path in PATHS}


def main() -> None:
    """Train the missing runs, and write all results to one file."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--epochs", type=int, default=2)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--limit", type=int, help="training images, for a trial")
    options.add_argument("--folder", type=Path, default=Path("runs/parity"))
    arguments = options.parse_args()
    allocator.keep_freed_memory()
    lines = [
        run(path, seed, arguments.epochs, arguments.limit, arguments.folder)
        for seed in range(arguments.seeds)
        for path in PATHS
    ]
    target = RESULTS if arguments.limit is None else arguments.folder
    write_text(target / "parity.json", json.dumps({"runs": lines}, indent=1) + "\n")
    for path, values in accuracies(lines).items():
        print(path, values)


if __name__ == "__main__":
    main()
