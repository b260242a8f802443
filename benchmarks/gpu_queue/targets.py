"""What was wanted of the half hour, and what was measured."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

from benchmarks.gpu_queue.jobs import LONGER, PAPER, Size


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
    lines = []
    for what, (row, length, wanted) in read_right.items():
        cards = _read(tables / f"{length}-epochs", f"{row}-[0-9].json")
        seeds = [card["results"]["test"]["accuracy"] for card in cards]
        mean = float(np.mean(seeds)) if seeds else None
        lines.append(
            _goal(f"{what}: mean test accuracy", f">= {wanted}", mean, wanted, 1)
            | {"seeds": len(seeds)}
        )
    lines.append(_goal("runs that reached 99.23 %", ">= 18", len(reached) or None, 18, 1))
    seconds = min((value for value in epochs if value is not None), default=None)
    lines.append(_goal("seconds of an epoch of MNIST", "<= 0.6", seconds, 0.6, -1))
    for target in (0.995, 0.997):
        paths = (tables / f"{size.epochs}-epochs").glob(f"runs/{PAPER}-[0-9]/epochs.csv")
        times = [_seconds_to(target, path) for path in sorted(paths)]
        lines.append(
            {"goal": f"seconds to {target:.1%} of the validation images", "measured": times}
        )
    return lines


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
