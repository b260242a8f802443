"""Training with three rounds of routing beside training with one, pair by pair of one seed."""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np

from capsviz import checkpoint, discovery
from capsviz.statistics.intervals import mean_interval
from capsviz.statistics.words import with_interval

ONE = {
    "routing-1": "routing-3",
    "uniform": "dynamic",
}  # in the names of rows: even couplings, three
PAPER = "10-epochs/mnist-routing-1"
LEAST = 3  # pairs of a recipe


def differences() -> dict[str, list[float]]:
    """By recipe with one round, test error of three rounds less that of one, a number a seed."""
    folder = discovery.folder(checkpoint.SHIPPED) / "reproduce"
    pairs = defaultdict(list)
    for path in sorted(folder.glob("*-epochs/mnist-*.json")):
        one = next((one for one in ONE if one in path.name), None)
        three = path.with_name(path.name.replace(one, ONE[one])) if one else path
        if one and three.is_file():
            errors = [1 - _accuracy(of) for of in (path, three)]
            recipe, _, _ = path.relative_to(folder).with_suffix("").as_posix().rpartition("-")
            pairs[recipe].append(errors[1] - errors[0])
    return {recipe: some for recipe, some in pairs.items() if len(some) >= LEAST}


def words() -> tuple[str, list[str]]:
    """In how many pairs and by how much three rounds err less, and the files; "" without pairs."""
    each = differences()
    if PAPER not in each:
        return "", []
    every = 100 * np.concatenate(list(each.values()))
    value, ends = mean_interval(100 * np.array(each[PAPER]))
    return (
        f"*trained* with three, networks err less than with one in {int((every < 0).sum())} of "
        f"{len(every)} pairs of one seed ({len(each)} related recipes), by {-every.mean():.2f} "
        f"points in the mean, the paper's by {with_interval(-float(value), -ends[::-1], '.2f')}",
        [
            f"trained/reproduce/{recipe.replace(one, how)}-{seed}.json"
            for recipe, pairs in each.items()
            for one, three in ONE.items()
            if one in recipe
            for how in (one, three)
            for seed in range(len(pairs))
        ],
    )


def _accuracy(path) -> float:
    return json.loads(path.read_text(encoding="utf-8"))["results"]["test"]["accuracy"]
