"""What half an hour of one GPU is to give, by priority: `python -m benchmarks.gpu_queue FOLDER`.

Every job of `queue` is a command in a process of its own. One whose results are there is skipped,
one that needs more time than is left is not begun, and at the end of --seconds what runs is
interrupted: finished epochs lie in --work, and the same call goes on. A job that failed is reported
and tried again by the next call; the others run all the same.

FOLDER then holds few files, each below 16 MiB: `jobs.json` (what became of every job),
`goals.json` (what was wanted, what was measured), `results.tar.gz` (cards, results, learning
curves, logs) and the weights, of each network the best seed on the validation images first. On a
machine without the --work of an earlier call, --earlier takes its results from the archive.
"""

from __future__ import annotations

import argparse
import csv
import json
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.gpu import WAYS
from capsviz import discovery
from capsviz.experiments.affnist import NETWORKS, result_path
from capsviz.experiments.reproductions import get
from capsviz.files import write_text

PACKING = 20  # seconds that are kept for the end
GOING_ON = 30  # seconds that are enough for a job that was begun before
PATIENCE = 20  # seconds that an interrupted training has to end its step and to write
MOST_BYTES, MOST_FILES = 16 * 2**20 - 2**16, 5  # of an archive of weights; of such archives
KEPT = {".json", ".csv", ".toml", ".log", ".xml"}  # of the results; weights go apart
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


def queue(work: Path, size: Size, device: str) -> list[Job]:
    """Every job, the most wanted first; seconds are guesses for one H100."""
    tables, speed, affine = work / "reproduce", work / "speed", work / "affnist"

    def capsviz(*words) -> list[str]:
        return [sys.executable, "-m", "capsviz", *map(str, words), "--device", device, *size.more]

    def table(name, row, epochs, seeds, chosen, seconds) -> Job:
        """Some seeds of one row of a table of `capsviz reproduce`."""
        words = ["reproduce", name, "--rows", row, "--epochs", epochs, "--seeds", seeds]
        words += ["--folder", tables] + (["--limit", size.limit] if size.limit else [])
        several = len(chosen) > 1
        words += [] if several else ["--task", f"{chosen[0] + 1}/{seeds}"]
        where = tables / f"{epochs}-epochs"
        results = [where / f"{row}-{seed}.json" for seed in chosen]
        return Job(row if several else f"{row}-{chosen[0]}", seconds, capsviz(*words), results)

    def each(name, row, epochs, seconds) -> list[Job]:
        """The seeds of a row, a job each."""
        return [table(name, row, epochs, size.seeds, [k], seconds) for k in range(size.seeds)]

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
        return Job(f"affnist-{network}-{seed}", 60, capsviz(*words), [result])

    tests = work / "tests.xml"
    pytest = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", f"--junitxml={tests}"]
    both = [f"precision-{kind}-0" for kind in ("bf16", "fp32")]
    steps = [f"steps-{batch}-{kind}" for kind in ("bf16", "fp32") for batch in BATCHES]
    epochs = [f"epochs-{batch}-{way}" for way in WAYS for batch in BATCHES]
    once = ["--seeds", 1, "--epochs", 1]
    rows = [cell.run for cell in get("paper").cells() if cell.run != PAPER]
    jobs = [
        Job("tests", 30, [*pytest, str(discovery.root() / "tests")], [tests]),
        timed("precision", both, 20, *once, alone=False),
        *each("paper", PAPER, size.epochs, 90),
    ]
    for row in rows:
        length = size.cnn_epochs if row == "mnist-cnn" else size.epochs
        jobs += each("paper", row, length, 90)
    jobs += [
        timed("steps", steps, 60),
        timed("epochs", epochs, 120),
        *[compared(name, seed) for seed in range(size.seeds) for name in NETWORKS],
        *each("datasets", "cifar10", size.epochs, 120),
        *each("datasets", "fashion_mnist", size.fashion_epochs, 60),
    ]
    for cell in get("routings").cells():
        seeds = size.stem_seeds
        jobs.append(table("routings", cell.run, size.stem_epochs, seeds, range(seeds), 60))
    for cell in get("resnet").cells():
        jobs += each("resnet", cell.run, size.resnet_epochs, 40)
    longer = each("paper", PAPER, LONGER * size.epochs, LONGER * 90)
    return jobs + [job._replace(name=f"{job.name}-longer") for job in longer]


def run(
    jobs: Sequence[Job],
    work: Path,
    seconds: float,
    side_by_side: int = 1,
    report: Callable[[str], None] = print,
) -> dict[str, str]:
    """Run what has no result, and say of every job what became of it.

    Parameters
    ----------
    jobs          by priority.
    work          folder of their logs, which show what was begun.
    seconds       until what runs is interrupted.
    side_by_side  how many may run at once; one that times something runs alone.
    """
    logs, end = work / "logs", time.monotonic() + seconds
    logs.mkdir(parents=True, exist_ok=True)
    became: dict[str, str] = {}
    running: dict[str, tuple[Job, subprocess.Popen, float]] = {}
    waiting = []
    for job in jobs:
        if all(path.exists() for path in job.results):
            became[job.name] = "there"
        else:
            waiting.append(job)

    def ended(name: str, how: str) -> None:
        _, _, start = running.pop(name)
        became[name] = how
        report(f"{name}: {how}, {time.monotonic() - start:.0f} s")

    while waiting or running:
        left = end - time.monotonic()
        for name, (job, process, _) in list(running.items()):
            if process.poll() is not None:
                ended(name, _outcome(job, process))
        alone = any(job.alone for job, *_ in running.values())
        if left <= 0:
            for _, process, _ in running.values():
                process.send_signal(signal.SIGINT)
            for name, (_, process, _) in list(running.items()):
                _wait(process)
                ended(name, "interrupted")
            became |= {job.name: "no time" for job in waiting}
            break
        if waiting and len(running) < side_by_side and not alone:
            job = waiting[0]
            log = logs / f"{job.name}.log"
            if left < (GOING_ON if log.exists() else job.seconds):
                became[waiting.pop(0).name] = "no time"
                continue
            if not (job.alone and running):
                waiting.pop(0)
                with log.open("a") as out:
                    process = subprocess.Popen(
                        job.command, cwd=discovery.root(), stdin=subprocess.DEVNULL,
                        stdout=out, stderr=out,
                    )  # fmt: skip
                running[job.name] = job, process, time.monotonic()
                continue
        time.sleep(0.05)
    return {job.name: became[job.name] for job in jobs}


def _outcome(job: Job, process: subprocess.Popen) -> str:
    if process.returncode:
        return f"failed: exit {process.returncode}"
    missing = [path.name for path in job.results if not path.exists()]
    return f"failed: it left no {missing[0]}" if missing else "done"


def _wait(process: subprocess.Popen) -> None:
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def goals(work: Path, size: Size) -> list[dict]:
    """What was wanted of the half hour and what was measured, None where it did not run."""
    tables = work / "reproduce"
    epochs = [result.get("seconds") for result in _read(work / "speed", "gpu-epochs-*.json")]
    reached = [result["network"] for result in _read(work / "affnist", "*-*-matched.json")]
    read_right = {
        "MNIST, best cell of the paper's table": (PAPER, size.epochs, 0.9970),
        "the same, trained longer": (PAPER, LONGER * size.epochs, 0.9975),
        "CIFAR-10": ("cifar10", size.epochs, 0.726),
        "Fashion-MNIST": ("fashion_mnist", size.fashion_epochs, 0.92),
    }
    found = []
    for what, (row, length, wanted) in read_right.items():
        cards = _read(tables / f"{length}-epochs", f"{row}-[0-9].json")
        seeds = [card["results"]["test"]["accuracy"] for card in cards]
        mean = float(np.mean(seeds)) if seeds else None
        found.append(
            _goal(f"{what}: mean test accuracy", f">= {wanted}", mean, wanted, 1)
            | {"seeds": len(seeds)}
        )
    found.append(_goal("runs that reached 99.23 %", ">= 18", len(reached) or None, 18, 1))
    seconds = min((value for value in epochs if value is not None), default=None)
    found.append(_goal("seconds of an epoch of MNIST", "<= 0.6", seconds, 0.6, -1))
    for target in (0.995, 0.997):
        paths = (tables / f"{size.epochs}-epochs").glob(f"runs/{PAPER}-*/epochs.csv")
        times = [_seconds_to(target, path) for path in sorted(paths)]
        found.append(
            {"goal": f"seconds to {target:.1%} of the validation images", "measured": times}
        )
    return found


def _goal(goal: str, wanted: str, measured: float | None, bound: float, sign: int) -> dict:
    met = None if measured is None else sign * measured >= sign * bound
    return {"goal": goal, "wanted": wanted, "measured": measured, "met": met}


def _read(folder: Path, pattern: str) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob(pattern))]


def _seconds_to(target: float, path: Path) -> float | None:
    """Seconds of training until the first epoch that reads so many of the validation images."""
    seconds = 0.0
    with path.open(newline="") as lines:
        for line in csv.DictReader(lines):
            seconds += float(line["seconds"])
            if float(line["validation_accuracy"]) >= target:
                return seconds
    return None


def pack(work: Path, folder: Path) -> list[str]:
    """Write results and weights into archives; the weights that found no place."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "results.tar.gz", "w:gz") as archive:
        for path in sorted(work.rglob("*")):
            if path.suffix in KEPT and path.is_file():
                archive.add(path, path.relative_to(work))
    bundles: list[list[Path]] = []
    sizes: list[int] = []
    left_out = []
    for path in _weights(work):
        size = path.stat().st_size + 2048  # with its place in an archive
        fitting = [k for k, used in enumerate(sizes) if used + size <= MOST_BYTES]
        if not fitting and len(bundles) < MOST_FILES and size <= MOST_BYTES:
            bundles.append([])
            sizes.append(0)
            fitting = [len(bundles) - 1]
        if not fitting:
            left_out.append(str(path.relative_to(work)))
            continue
        bundles[fitting[0]].append(path)
        sizes[fitting[0]] += size
    for k, bundle in enumerate(bundles):
        with tarfile.open(folder / f"weights-{k + 1}.tar", "w") as archive:
            for path in bundle:
                archive.add(path, path.relative_to(work))
    return left_out


def _weights(work: Path) -> list[Path]:
    """Of finished runs; of each network the best seed on the validation images, then the others."""
    ranked = []
    for path in sorted((work / "reproduce").glob("*-epochs/*-[0-9]*.json")):
        row = path.stem.rpartition("-")[0]
        weights = path.parent / "runs" / path.stem / f"{row}.safetensors"
        if weights.exists():
            card = json.loads(path.read_text())
            ranked.append((row, -card["results"]["validation"]["accuracy"], weights))
    ranked.sort(key=lambda one: (one[0] != PAPER, *one))
    rows = [row for row, *_ in ranked]
    place = [rows[:k].count(row) for k, row in enumerate(rows)]
    return [ranked[k][-1] for k in sorted(range(len(ranked)), key=lambda k: (place[k] > 0, k))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the queue, and pack; 1 if a job failed."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("folder", type=Path, help="what comes out of it")
    options.add_argument("--work", type=Path, default=Path("runs/gpu"), help="what goes on")
    options.add_argument("--earlier", type=Path, help="results.tar.gz of an earlier call")
    options.add_argument("--seconds", type=float, default=540, help="of this call")
    options.add_argument("--side-by-side", type=int, default=3, help="trainings at once")
    options.add_argument("--device", default="cuda")
    options.add_argument("--trial", action="store_true", help="little of everything")
    options.add_argument("--only", nargs="+", metavar="NAME", help="jobs whose names begin so")
    options.add_argument("--list", action="store_true", help="name the jobs and run none")
    asked = options.parse_args(arguments)
    work, start = asked.work.resolve(), time.monotonic()
    size = TRIAL if asked.trial else Size()
    jobs = queue(work, size, asked.device)
    if asked.only:
        jobs = [job for job in jobs if job.name.startswith(tuple(asked.only))]
        if not jobs:
            options.error(f"no job's name begins with {' or '.join(asked.only)}")
    if asked.list:
        print(*(f"{job.seconds:5.0f} s  {job.name}" for job in jobs), sep="\n")
        return 0
    if asked.earlier:
        with tarfile.open(asked.earlier) as archive:
            archive.extractall(work, filter="data")
    left = asked.seconds - PACKING - (time.monotonic() - start)
    became = run(jobs, work, left, asked.side_by_side)
    left_out = pack(work, asked.folder)
    state = {"jobs": became, "weights left out": left_out}
    write_text(asked.folder / "jobs.json", json.dumps(state, indent=1) + "\n")
    reached = goals(work, size)
    write_text(asked.folder / "goals.json", json.dumps(reached, indent=1) + "\n")
    print(*map(json.dumps, reached), sep="\n")
    return int(any(how.startswith("failed") for how in became.values()))


if __name__ == "__main__":
    sys.exit(main())
