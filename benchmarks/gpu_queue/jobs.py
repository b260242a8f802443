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
    stem_epochs: int = 10  # of the slim stem's routings
    resnet_epochs: int = 15
    seeds: int = 3
    stem_seeds: int = 5
    limit: int | None = None  # training images
    variants: int | None = None  # images of affnist_like
    more: list[str] = field(default_factory=list)  # flags of every command of capsviz


TRIAL = Size(1, 1, 1, 1, 1, 1, 1, limit=64, variants=320)


def _with_gpu_tests(folder: Path) -> list[Path]:
    """Files of tests that want a GPU: others may want packages that are not there."""
    return [path for path in folder.rglob("test_*.py") if "pytest.mark.gpu" in path.read_text()]


def queue(work: Path, size: Size, device: str) -> list[Job]:
    """Every job, the most wanted first; seconds are guesses for one H100."""
    tables, speed, affine = work / "reproduce", work / "speed", work / "affnist"

    def capsviz(*words) -> list[str]:
        return [sys.executable, "-m", "capsviz", *map(str, words), "--device", device, *size.more]

    def table(name, row, epochs, seeds, seed, seconds) -> Job:
        """One seed of one row of a table of `capsviz reproduce`."""
        words = ["reproduce", name, "--rows", row, "--epochs", epochs, "--seeds", seeds]
        words += ["--folder", tables] + (["--limit", size.limit] if size.limit else [])
        words += ["--task", f"{seed + 1}/{seeds}"]
        result = tables / f"{epochs}-epochs" / f"{row}-{seed}.json"
        return Job(f"{row}-{seed}", seconds, capsviz(*words), [result])

    def each(name, row, epochs, seconds, seeds=size.seeds) -> list[Job]:
        """The seeds of a row, a job each."""
        return [table(name, row, epochs, seeds, k, seconds) for k in range(seeds)]

    def timed(name, names, seconds, *words, alone=True) -> Job:
        python = [sys.executable, "-m", "benchmarks.gpu", "--device", device, "--folder", speed]
        python += ["--only", name, *words] + (["--limit", size.limit] if size.limit else [])
        results = [speed / f"gpu-{one}.json" for one in names]
        return Job(name, seconds, list(map(str, python)), results, alone)

    def compared(network, seed) -> Job:
        words = ["affnist", "--run", "--networks", network, "--seeds", size.seeds]
        words += ["--task", f"{seed + 1}/{size.seeds}", "--epochs", size.epochs]
        words += ["--folder", affine, "--output", work / "figures", "--force"]
        words += ["--train-limit", size.limit] if size.limit else []
        words += ["--n", size.variants] if size.variants else []
        result = result_path(affine, network, seed, "full")
        return Job(f"affnist-{network}-{seed}", 200, capsviz(*words), [result])

    tests = work / "tests.xml"
    pytest = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", f"--junitxml={tests}"]
    pytest += sorted(map(str, _with_gpu_tests(discovery.root() / "tests")))
    both = [f"precision-{kind}-0" for kind in ("bf16", "fp32")]
    steps = [f"steps-{batch}-{kind}" for kind in ("bf16", "fp32") for batch in BATCHES]
    epochs = [f"epochs-{BATCHES[0]}-{way}" for way in WAYS]  # compiling takes a minute for each
    once = ["--seeds", 1, "--epochs", 1]
    rows = [cell.run for cell in get("paper").cells() if cell.run != PAPER]
    jobs = [
        Job("tests", 60, pytest, [tests]),
        timed("precision", both, 20, *once, alone=False),
        *each("paper", PAPER, size.epochs, 90),
    ]
    for row in rows:
        length = size.cnn_epochs if row == "mnist-cnn" else size.epochs
        jobs += each("paper", row, length, 90)
    jobs += [
        timed("steps", steps, 60),
        timed("epochs", epochs, 200, "--batch", BATCHES[0]),
        *[compared(name, seed) for seed in range(size.seeds) for name in NETWORKS],
        *each("datasets", "cifar10", size.epochs, 120),
        *each("datasets", "fashion_mnist", size.fashion_epochs, 60),
    ]
    for cell in get("routings").cells():
        jobs += each("routings", cell.run, size.stem_epochs, 40, size.stem_seeds)
    for cell in get("resnet").cells():
        jobs += each("resnet", cell.run, size.resnet_epochs, 40)
    longer = each("paper", PAPER, LONGER * size.epochs, LONGER * 90)
    return jobs + [job._replace(name=f"{job.name}-longer") for job in longer]
