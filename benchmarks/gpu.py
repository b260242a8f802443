"""Measure the speed on one GPU: `python -m benchmarks.gpu`.

steps   milliseconds of a training step of the floor, capsviz and the literal network, by batch and
        precision; capsviz is timed with separate launches and, as in training, as one CUDA graph.
epochs  seconds of an epoch of MNIST and images per second, by batch.

Each measurement writes its own JSON to --folder, so an interrupted run resumes where it stopped. A
failure is recorded, and the next run tries it again. As in training, fp32 allows convolutions in
TF32. With autocast, even the votes of the literal network are bf16.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from benchmarks.clock import interleaved
from benchmarks.networks import Floor, literal
from benchmarks.steps import trainer
from capsviz import data
from capsviz.files import write_text
from capsviz.nn.models.capsnet import CapsNet
from capsviz.provenance import hardware, provenance
from capsviz.training import run as pipeline
from capsviz.training.train import fit

ROUNDS, WARM = 20, 10


def steps(device: torch.device, batch: int, precision: str) -> dict:
    """Return the median milliseconds of a training step of each contender, timed in turn."""
    torch.manual_seed(0)
    networks = {"floor": Floor(), "plain floor": Floor(plain=True), "literal": literal(CapsNet())}
    networks |= {"capsviz launches": CapsNet()}
    how = {"batch": batch, "bf16": precision == "bf16", "device": device}
    contenders = {name: trainer(network, **how) for name, network in networks.items()}
    contenders["capsviz graph"] = trainer(CapsNet(), **how, graph=True)

    sync = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
    times = interleaved(contenders, ROUNDS, WARM, sync=sync)
    return {
        "milliseconds": {name: line["median_ms"] for name, line in times.items()},
        "spread": {name: [line["min_ms"], line["max_ms"]] for name, line in times.items()},
    }


def epochs(device: torch.device, batch: int, name: str, limit: int | None) -> dict:
    """Return seconds of the third epoch of a recipe, with validation, and images per second."""
    _, recipe = pipeline.prepare(name, {"epochs": 3, "batch_size": batch, "limit": limit})
    parts = [data.load(recipe.dataset, split) for split in ("train", "validation")]
    with tempfile.TemporaryDirectory() as folder:
        _, history = fit(recipe, *parts, Path(folder), device=device)
    seconds = history[-1].seconds
    return {
        "seconds": seconds,
        "images_per_second": len(parts[0].first(limit)) / seconds,
        "epochs": [epoch.seconds for epoch in history],
    }


def queue(
    device: torch.device, batches: list[int], recipe: str, limit: int | None
) -> dict[str, Callable[[], dict]]:
    """Return all measurements by name."""
    jobs: dict[str, Callable[[], dict]] = {
        f"steps-{batch}-{kind}": partial(steps, device, batch, kind)
        for kind in ("bf16", "fp32")
        for batch in batches
    }
    return jobs | {
        f"epochs-{batch}-graph": partial(epochs, device, batch, recipe, limit) for batch in batches
    }


def run(queue: dict[str, Callable[[], dict]], folder: Path, device: torch.device) -> None:
    """Run the measurements that have no file yet; record a failure and continue."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, measure in queue.items():
        path = folder / f"gpu-{name}.json"
        if path.exists() and "failed" not in json.loads(path.read_text()):
            continue
        try:
            result = measure()
        except Exception as error:  # compilers and drivers raise errors of many types
            result = {"failed": f"{type(error).__name__}: {error}"[:2000]}
        print(name, result, flush=True)
        result |= {"hardware": hardware(device), "provenance": provenance(None, str(device))}
        write_text(path, json.dumps(result, indent=1) + "\n")


def main() -> None:
    """Run the measurements that the command line chooses."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--device", default="cuda")
    options.add_argument("--folder", type=Path, default=Path("runs/gpu"))
    options.add_argument("--recipe", default="mnist")
    options.add_argument("--batch", type=int, nargs="+", default=[128, 512, 1024])
    options.add_argument("--limit", type=int, help="training images, for a trial")
    options.add_argument("--only", nargs="+", default=[""], help="names that begin so")
    given = options.parse_args()
    device = torch.device(given.device)
    jobs = queue(device, given.batch, given.recipe, given.limit)
    chosen = {name: job for name, job in jobs.items() if name.startswith(tuple(given.only))}
    run(chosen, given.folder, device)


if __name__ == "__main__":
    main()
