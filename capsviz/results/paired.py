"""Training runs of two recipes, paired by seed: read their accuracies, and say what they show."""

from __future__ import annotations

import glob
import json
from collections.abc import Iterable, Sequence
from os.path import commonprefix
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capsviz import checkpoint
from capsviz.statistics import equivalence
from capsviz.statistics.equivalence import Paired

RUNS = "runs.json"  # of several training runs, in trained/seeds/RECIPE
MARGIN = 0.05  # percentage points
POINTS = 100  # percentage points in a share
Run = tuple[int, float, tuple]  # seed, accuracy, and the test set as in `Recipe`


class Recipe(NamedTuple):
    """Training runs of one recipe, measured on one test set."""

    name: str
    test_set: tuple  # data set, its options, images
    accuracies: dict[int, float]  # by seed


class Comparison(NamedTuple):
    """Two recipes over their common seeds."""

    first: str
    second: str
    seeds: list[int]
    accuracy: Paired  # first less second, percentage points


def compare(places: Sequence[str], margin: float = MARGIN) -> list[Comparison]:
    """Compare the first recipe with each of the others, paired by seed.

    Parameters
    ----------
    places  of each recipe one glob of training runs, or a folder that holds runs.json. Runs that
            are named singly, as a shell expands a glob, are grouped by recipe.
    margin  largest difference of accuracy that does not matter, percentage points.

    Raises
    ------
    ValueError  for fewer than 2 recipes, runs of different test sets, or fewer than 3 common seeds.
    """
    recipes = read(places)
    if len(recipes) < 2:
        names = ", ".join(one.name for one in recipes) or "none"
        raise ValueError(f"expected training runs of at least 2 recipes, got {names}")
    return [pair(recipes[0], other, margin) for other in recipes[1:]]


def pair(first: Recipe, second: Recipe, margin: float = MARGIN) -> Comparison:
    """Compare two recipes over the seeds that both have; raises as `compare`."""
    sides = f"'{first.name}' and '{second.name}'"
    if first.test_set != second.test_set:
        sets = " and ".join(str(one.test_set) for one in (first, second))
        raise ValueError(f"{sides} have different test sets: {sets}")
    seeds = sorted(first.accuracies.keys() & second.accuracies.keys())
    if len(seeds) < equivalence.FEWEST:
        each = " and ".join(str(sorted(one.accuracies)) for one in (first, second))
        raise ValueError(
            f"{sides} have too few pairs: {len(seeds)} of equal seed, expected at least "
            f"{equivalence.FEWEST} (seeds {each})"
        )
    values = [np.array([POINTS * one.accuracies[k] for k in seeds]) for one in (first, second)]
    one_image = POINTS / first.test_set[-1]
    tested = equivalence.paired(values[0], values[1], margin, resolution=one_image)
    return Comparison(first.name, second.name, seeds, tested)


def read(places: Iterable[str]) -> list[Recipe]:
    """Return the recipes of globs, folders with runs.json, and single runs; see `compare`."""
    groups: dict[str, tuple[list[str], list[Run]]] = {}  # names and runs of each recipe
    for place in map(str, places):
        path = Path(place)
        if path.name == RUNS or (path / RUNS).is_file():
            groups[place] = _shipped(path if path.name == RUNS else path / RUNS)
        elif not path.exists() and glob.has_magic(place):
            found = [one for one in sorted(glob.glob(place)) if _may_be_a_run(Path(one))]
            if not found:
                raise ValueError(f"'{place}' matches no training run")
            groups[place] = [place], [_run(_card(one)) for one in found]
        else:
            card = _card(place)
            key = json.dumps({**card["recipe"], "seed": None}, sort_keys=True)
            names, runs = groups.setdefault(key, ([], []))
            names.append(place)
            runs.append(_run(card))
    return [_recipe(_common(names), runs) for names, runs in groups.values()]


def _may_be_a_run(path: Path) -> bool:
    return path.suffix == ".safetensors" or path.is_dir()


def _card(place: str) -> dict[str, Any]:
    card = checkpoint.read_card(checkpoint.find(place))
    if "test" not in card.get("results", {}) or "seed" not in card.get("recipe", {}):
        raise ValueError(f"the card of '{place}' has no seed or no accuracy on test images")
    return card


def _run(card: dict) -> Run:
    test, options = card["results"]["test"], card["recipe"].get("dataset_options") or {}
    test_set = card["dataset"]["name"], str(options), test["n"]
    return card["recipe"]["seed"], test["accuracy"], test_set


def _shipped(path: Path) -> tuple[list[str], list[Run]]:
    about = json.loads(path.read_text(encoding="utf-8"))
    data = about["dataset"], str(about.get("terms", {}).get("dataset_options") or {})
    runs = [(run["seed"], run["accuracy"], (*data, run["n"])) for run in about["runs"]]
    return [about["recipe"]], runs


def _common(names: list[str]) -> str:
    """Return a name for runs: what their paths begin with."""
    return names[0] if len(names) == 1 else f"{commonprefix(names)}*"  # noqa: RUF071


def _recipe(name: str, runs: list[Run]) -> Recipe:
    seeds = [seed for seed, _, _ in runs]
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twice:
        raise ValueError(f"'{name}' has several runs of seed {twice[0]}: expected one of each")
    sets = {test_set for _, _, test_set in runs}
    if len(sets) > 1:
        raise ValueError(f"the runs of '{name}' have different test sets: {sorted(sets)}")
    return Recipe(name, sets.pop(), {seed: accuracy for seed, accuracy, _ in runs})


def sentence(one: Comparison) -> str:
    """Return the verdict as one plain sentence."""
    tested = one.accuracy
    value, (low, high) = float(tested.difference.value), tested.difference.ci95
    higher, lower = (one.first, one.second) if value > 0 else (one.second, one.first)
    by = f"{higher} is higher by {abs(value):.2f} points than {lower}"
    if tested.verdict == equivalence.EQUIVALENT:
        shown = f", although {by}" if tested.p_different < equivalence.LEVEL else ""
        return f"equivalent within ±{tested.margin:g} points{shown}"
    if tested.verdict == equivalence.DIFFERENT:
        return f"different: {by} [{min(abs(low), abs(high)):.2f}, {max(abs(low), abs(high)):.2f}]"
    return (
        f"not settled: with {tested.n} pairs only differences above {tested.detectable:.2f} points "
        "could have been shown"
    )


def lines(one: Comparison) -> str:
    """Return what the pairs show and could have shown."""
    tested, seeds = one.accuracy, ", ".join(map(str, one.seeds))
    gain = tested.difference
    accuracy, error = (
        f"{sign * float(gain.value):+.3f} [{low:+.3f}, {high:+.3f}] points"
        for sign, (low, high) in ((1, gain.ci95), (-1, -gain.ci95[::-1]))
    )
    needed = (
        f"{_pairs(tested.pairs_to_detect)} to show a difference of {tested.margin:g} points, "
        f"{_pairs(tested.pairs_for_equivalence)} to show equivalence if there is no difference"
    )
    return "\n".join(
        [
            f"{one.first} less {one.second}: {tested.n} pairs, seeds {seeds}",
            f"  accuracy            {accuracy} (95 %)",
            f"  error               {error}",
            f"  verdict             {sentence(one)}",
            f"  p-values            equivalence {tested.p_equivalent:.3f}, "
            f"difference {tested.p_different:.3f}",
            f"  detectable          {tested.detectable:.3f} points with 80 % power, "
            f"at the observed s.d. of {tested.sd:.3f}",
            f"  pairs needed        {needed}",
        ]
    )


def _pairs(n: int | None) -> str:
    return "more than 100,000" if n is None else str(n)


def plain(one: Comparison) -> dict[str, Any]:
    """Return the comparison as fields for JSON; differences in percentage points."""
    tested = one.accuracy
    return {
        "first": one.first,
        "second": one.second,
        "seeds": one.seeds,
        "pairs": tested.n,
        "accuracy_difference_points": tested.difference,
        "error_difference_points": tested.difference * -1,
        "sd_points": tested.sd,
        "margin_points": tested.margin,
        "verdict": tested.verdict,
        "sentence": sentence(one),
        "p_equivalent": tested.p_equivalent,
        "p_different": tested.p_different,
        "detectable_points": tested.detectable,
        "pairs_to_detect_margin": tested.pairs_to_detect,
        "pairs_for_equivalence": tested.pairs_for_equivalence,
    }
