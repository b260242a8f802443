"""Speed and precision on one GPU: `python -m benchmarks.gpu`.

steps      milliseconds of a training step of the floor, capsviz and the literal network, by batch
           and precision; of capsviz launch by launch, and as one CUDA graph, as in training.
epochs     seconds of an epoch of MNIST and images per second, by batch; as it is, and compiled.
precision  test accuracy of bf16 against fp32, three seeds each.

Every measurement is a JSON of its own in --folder, so an interrupted run goes on where it stopped;
what failed is recorded in words and tried again by the next run; use another --folder with other
flags. What is called fp32 is as training has it: a GPU may convolve in TF32. Of the literal network
autocast makes even the votes bf16.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from benchmarks.clock import interleaved
from benchmarks.networks import Floor, capsnet, literal
from benchmarks.steps import trainer
from capsviz import data
from capsviz.files import write_text
from capsviz.provenance import hardware, provenance
from capsviz.training import run as pipeline
from capsviz.training.evaluate import evaluate
from capsviz.training.train import build_model, fit

WAYS = ("graph", "compiled")  # how capsviz is trained: as it is, and by torch.compile before that
ROUNDS, WARM = 20, 10


def find_device(name: str) -> torch.device:
    """The device; SystemExit in words where there is no such GPU."""
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a CUDA GPU, and PyTorch finds none here")
    return device


def compiled(network: torch.nn.Module, way: str) -> torch.nn.Module:
    """The network, its forward pass compiled in place if asked for."""
    if way == "compiled":
        network.compile()
    return network


def steps(device: torch.device, batch: int, precision: str) -> dict:
    """Median milliseconds of a training step of every contender, taking turns."""
    torch.manual_seed(0)
    networks = {"floor": Floor(), "plain floor": Floor(plain=True), "literal": literal(capsnet())}
    networks |= {"capsviz launches": capsnet()}
    how = {"batch": batch, "bf16": precision == "bf16", "device": device}
    contenders = {name: trainer(network, **how) for name, network in networks.items()}
    contenders["capsviz graph"] = trainer(capsnet(), **how, graph=True)

    sync = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
    times = interleaved(contenders, ROUNDS, WARM, sync=sync)
    return {
        "milliseconds": {name: line["median_ms"] for name, line in times.items()},
        "spread": {name: [line["min_ms"], line["max_ms"]] for name, line in times.items()},
    }


def epochs(device: torch.device, batch: int, way: str, name: str, limit: int | None) -> dict:
    """Seconds of the third epoch, recording done, with validation; images per second."""
    flags = {"epochs": 3, "batch_size": batch, "limit": limit}
    _, recipe = pipeline.prepare(name, flags)
    parts = [data.load(recipe.dataset, split) for split in ("train", "validation")]
    model = compiled(build_model(recipe, parts[0]), way)
    with tempfile.TemporaryDirectory() as folder:
        _, history = fit(recipe, *parts, Path(folder), model=model, device=device)
    seconds = history[-1].seconds
    n = len(parts[0].first(limit))
    return {
        "seconds": seconds,
        "images_per_second": n / seconds,
        "epochs": [e.seconds for e in history],
    }


def precision(device, kind: str, seed: int, epochs: int, name: str, limit: int | None) -> dict:
    """Test accuracy after training in one precision from one seed."""
    flags = {"epochs": epochs, "seed": seed, "precision": kind, "keep": "last", "limit": limit}
    _, recipe = pipeline.prepare(name, flags)
    parts = [data.load(recipe.dataset, split) for split in data.SPLITS]
    with tempfile.TemporaryDirectory() as folder:
        model, history = fit(recipe, *parts[:2], Path(folder), device=device)
    test = evaluate(model, parts[2])
    return {"accuracy": test.accuracy, "n": test.n, "seconds": sum(e.seconds for e in history)}


def prepare(options: argparse.Namespace) -> torch.device:
    """The device, set up, with its data at hand: whatever is missing is missed before the queue."""
    device = find_device(options.device)
    _, recipe = pipeline.prepare(options.recipe, {})
    for split in data.SPLITS:
        data.load(recipe.dataset, split)
    options.folder.mkdir(parents=True, exist_ok=True)
    torch._dynamo.config.recompile_limit = 64  # PyTorch 2.11 breaks the graph in each block
    torch._dynamo.config.fail_on_recompile_limit_hit = True  # rather than run uncompiled
    return device


def queue(options: argparse.Namespace, device: torch.device) -> dict[str, Callable[[], dict]]:
    """Every measurement by its name, cheap and telling ones first."""
    jobs = {}
    for kind in ("bf16", "fp32"):
        for batch in options.batch:
            jobs[f"steps-{batch}-{kind}"] = partial(steps, device, batch, kind)
    for way in WAYS:
        for batch in options.batch:
            jobs[f"epochs-{batch}-{way}"] = partial(
                epochs, device, batch, way, options.recipe, options.limit
            )
    for seed in range(options.seeds):
        for kind in ("bf16", "fp32"):
            jobs[f"precision-{kind}-{seed}"] = partial(
                precision, device, kind, seed, options.epochs, options.recipe, options.limit
            )
    return jobs


def run(queue: dict[str, Callable[[], dict]], folder: Path, device: torch.device) -> None:
    """Run what has no file yet; a failure is written down and does not stop the rest."""
    for name, measure in queue.items():
        path = folder / f"gpu-{name}.json"
        if path.exists() and "failed" not in json.loads(path.read_text()):
            continue
        torch.compiler.reset()  # else what ran before decides what is compiled
        start = time.perf_counter()
        try:
            result = measure()
        except Exception as error:  # compilers and drivers raise what they like
            result = {"failed": f"{type(error).__name__}: {error}"[:2000]}
        result |= {
            "hardware": hardware(device),
            "provenance": provenance(None, str(device)),
            "wall_seconds": time.perf_counter() - start,
        }
        write_text(path, json.dumps(result, indent=1) + "\n")
        print(name, {k: v for k, v in result.items() if k != "provenance"}, flush=True)


def main() -> None:
    """Run the queue."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--device", default="cuda")
    options.add_argument("--folder", type=Path, default=Path("runs/gpu"))
    options.add_argument("--recipe", default="mnist")
    options.add_argument("--batch", type=int, nargs="+", default=[128, 512, 1024])
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--epochs", type=int, default=20, help="of the precision runs")
    options.add_argument("--limit", type=int, help="training images, for a trial")
    options.add_argument("--only", nargs="+", help="measurements whose names begin so")
    arguments = options.parse_args()
    device = prepare(arguments)
    jobs = queue(arguments, device)
    if arguments.only:
        jobs = {k: v for k, v in jobs.items() if k.startswith(tuple(arguments.only))}
    run(jobs, arguments.folder, device)


if __name__ == "__main__":
    main()
