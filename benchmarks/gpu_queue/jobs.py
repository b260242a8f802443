"""The jobs of the queue, the most wanted first: commands, and the files that they leave."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from benchmarks.gpu import WAYS
from capsviz import discovery
from capsviz.experiments.affnist import NETWORKS, result_path
from capsviz.experiments.reproductions import get

BATCHES = (128, 512, 1024)  # of the steps and epochs that are timed
PAPER = "mnist-routing-3"  # the best cell of the paper's table
LONGER = 4  # times the epochs, last of all
BF16 = ("--precision", "bf16")
ON_CPU = (
    "--batch-size",
    64,
    *BF16,
)  # terms of rows that were trained on a CPU: one table's are alike
EMA = 0.999  # of the affNIST protocol: averaged weights take fewer epochs to the target


class Job(NamedTuple):
    """One command, and the files that it leaves."""

    name: str
    seconds: float  # that must be left for it to begin: about what it takes
    command: list[str]
    results: list[Path]
    alone: bool = False  # it times something


@dataclass(frozen=True)
class Size:
    """How much is trained; a trial has little of everything."""

    epochs: int = 50
    cnn_epochs: int = 20
    fashion_epochs: int = 30
    iterations_epochs: int = 10
    stem_epochs: int = 10  # of the slim stem's routings
    resnet_epochs: int = 15
    seeds: int = 3
    stem_seeds: int = 5
    limit: int | None = None  # training images
    variants: int | None = None  # images of affnist_like
    more: list[str] = field(default_factory=list)  # flags of every command of capsviz


TRIAL = Size(1, 1, 1, 1, 1, 1, 1, 1, limit=64, variants=320)


def _with_gpu_tests(folder: Path) -> list[Path]:
    """Files of tests that want a GPU: others may want packages that are not there."""
    return [path for path in folder.rglob("test_*.py") if "pytest.mark.gpu" in path.read_text()]


def queue(work: Path, size: Size, device: str) -> list[Job]:
    """Every job, the most wanted first; seconds are guesses for one H100."""
    tables, speed, affine = work / "reproduce", work / "speed", work / "affnist"

    def capsviz(*words) -> list[str]:
        return [sys.executable, "-m", "capsviz", *map(str, words), "--device", device, *size.more]

    def table(name, row, epochs, seeds, seed, seconds, *more) -> Job:
        """One seed of one row of a table of `capsviz reproduce`."""
        words = ["reproduce", name, "--rows", row, "--epochs", epochs, "--seeds", seeds, *more]
        words += ["--folder", tables] + (["--limit", size.limit] if size.limit else [])
        words += ["--task", f"{seed + 1}/{seeds}"]
        result = tables / f"{epochs}-epochs" / f"{row}-{seed}.json"
        return Job(f"{row}-{seed}", seconds, capsviz(*words), [result])

    def each(name, row, epochs, seconds, *more, seeds=size.seeds) -> list[Job]:
        """The seeds of a row, a job each."""
        return [table(name, row, epochs, seeds, k, seconds, *more) for k in range(seeds)]

    def timed(name, results, seconds, *words, alone=True) -> Job:
        python = [sys.executable, "-m", "benchmarks.gpu", "--device", device, "--folder", speed]
        python += ["--only", *results, *words] + (["--limit", size.limit] if size.limit else [])
        paths = [speed / f"gpu-{one}.json" for one in results]
        return Job(name, seconds, list(map(str, python)), paths, alone)

    def compared(network, seed, state, seconds) -> Job:
        words = ["affnist", "--run", "--networks", network, "--seeds", size.seeds]
        words += ["--task", f"{seed + 1}/{size.seeds}", "--epochs", size.epochs, "--ema", EMA]
        words += ["--folder", affine, "--output", work / "figures", "--force"]
        words += ["--matched-only"] if state == "matched" else ["--full"]
        words += ["--train-limit", size.limit] if size.limit else []
        words += ["--n", size.variants] if size.variants else []
        result = result_path(affine, network, seed, state)
        return Job(f"affnist-{network}-{seed}-{state}", seconds, capsviz(*words), [result])

    tests = work / "tests.xml"
    pytest = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", f"--junitxml={tests}"]
    pytest += sorted(map(str, _with_gpu_tests(discovery.root() / "tests")))
    both = [f"precision-{kind}-0" for kind in ("bf16", "fp32")]
    steps = [f"steps-{batch}-{kind}" for kind in ("bf16", "fp32") for batch in BATCHES]
    epochs = [f"epochs-{batch}-{WAYS[0]}" for batch in BATCHES]
    once = ["--seeds", 1, "--epochs", 1]
    pairs = [(name, seed) for seed in range(size.seeds) for name in NETWORKS]
    jobs = [
        timed("epochs", epochs, 40),
        timed("steps", steps, 40),
        Job("tests", 30, pytest, [tests]),
        timed("precision", both, 20, *once, alone=False),
        *each("paper", PAPER, size.epochs, 90),
        *each("datasets", "mnist", size.epochs, 90),
        *[compared(*pair, "matched", 60) for pair in pairs],
        *each("datasets", "cifar10", size.epochs, 90),
    ]
    for iterations in (4, 5):
        row = f"mnist-routing-{iterations}"
        jobs += each("iterations", row, size.iterations_epochs, 40, *ON_CPU)
    others = [cell.run for cell in get("paper").cells() if cell.run != PAPER]
    others.sort(key=lambda row: row == "mnist-cnn")  # last
    for row in others:
        length = size.cnn_epochs if row == "mnist-cnn" else size.epochs
        jobs += each("paper", row, length, 60)
    for cell in get("resnet").cells():
        jobs += each("resnet", cell.run, size.resnet_epochs, 60, "--schedule", "cosine", *BF16)
    jobs += each("datasets", "fashion_mnist", size.fashion_epochs, 60)
    for cell in get("routings").cells():
        jobs += each("routings", cell.run, size.stem_epochs, 40, *ON_CPU, seeds=size.stem_seeds)
    jobs += [compared(*pair, "full", 120) for pair in pairs]
    longer = each("paper", PAPER, LONGER * size.epochs, LONGER * 60)
    return jobs + [job._replace(name=f"{job.name}-longer") for job in longer]
