"""Training with three rounds of routing beside training with one, pair by pair of one seed."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np

from capsviz import checkpoint, discovery
from capsviz.statistics.intervals import mean_interval
from capsviz.statistics.words import with_interval

ONE = {"routing-1": "routing-3", "uniform": "dynamic"}  # rows with one round, and with three
PAPER = "10-epochs/mnist-routing-1"
LEAST = 3  # pairs of a recipe


def pairs() -> dict[str, list[tuple[Path, Path]]]:
    """By recipe with one round, or even couplings, its card and that with three, a pair a seed."""
    folder, result = discovery.folder(checkpoint.SHIPPED) / "reproduce", defaultdict(list)
    for path in sorted(folder.glob("*-epochs/mnist-*.json")):
        for one, three in ONE.items():
            other = path.with_name(path.name.replace(one, three))
            if other != path and other.is_file():
                recipe, _, _ = path.relative_to(folder).as_posix().rpartition("-")
                result[recipe].append((path, other))
    return {recipe: some for recipe, some in result.items() if len(some) >= LEAST}


def differences() -> dict[str, list[float]]:
    """By recipe with one round, test error of three rounds less that of one, a number a seed."""
    return {
        recipe: [_accuracy(one) - _accuracy(three) for one, three in some]
        for recipe, some in pairs().items()
    }


def words() -> tuple[str, list[str]]:
    """In how many pairs and by how much three rounds err less, and the files; "" without pairs."""
    each = differences()
    if PAPER not in each:
        return "", []
    every = 100 * np.concatenate(list(each.values()))
    value, ends = mean_interval(100 * np.array(each[PAPER]))
    root = discovery.folder(checkpoint.SHIPPED)
    cards = [card for some in pairs().values() for pair in some for card in pair]
    return (
        f"*trained* with three, networks err less than with one in {int((every < 0).sum())} of "
        f"{len(every)} pairs of one seed ({len(each)} related recipes), by {-every.mean():.2f} "
        f"points in the mean, the paper's by {with_interval(-float(value), -ends[::-1], '.2f')}",
        [f"trained/{card.relative_to(root)}" for card in cards],
    )


def _accuracy(path: Path) -> float:
    return json.loads(path.read_text(encoding="utf-8"))["results"]["test"]["accuracy"]
