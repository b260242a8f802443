"""Compare the accuracies of two recipes over training runs paired by seed."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capsviz.results.leaderboard import sources
from capsviz.statistics import equivalence
from capsviz.statistics.equivalence import Paired
from capsviz.statistics.estimate import Estimate

MARGIN = 0.05  # percentage points
HEAD = ("first", "second", "seeds", "pairs", "verdict")  # fields that `lines` does not list
POINTS = 100  # percentage points in a share


class Recipe(NamedTuple):
    """Training runs of one recipe, measured on one test set."""

    name: str
    test_set: tuple  # data set, its options, number of images
    accuracies: dict[int, float]  # by seed


class Comparison(NamedTuple):
    """Two recipes over their common seeds."""

    first: str
    second: str
    seeds: list[int]
    accuracy: Paired  # first minus second, percentage points


def compare(places: Sequence[str], margin: float = MARGIN) -> list[Comparison]:
    """Compare the first recipe with each of the others, paired by seed.

    Parameters
    ----------
    places  one per recipe: a glob of training runs, or a folder that holds runs.json.
    margin  largest difference of accuracy that does not matter, percentage points.

    Raises
    ------
    ValueError  for fewer than 2 recipes, a single run, runs of different test sets, or fewer than
                3 common seeds.
    """
    recipes = read(places)
    if len(recipes) < 2:
        names = ", ".join(one.name for one in recipes) or "none"
        raise ValueError(f"expected training runs of at least 2 recipes, got {names}")
    return [pair(recipes[0], other, margin) for other in recipes[1:]]


def pair(first: Recipe, second: Recipe, margin: float = MARGIN) -> Comparison:
    """Compare two recipes over the seeds that both have; raises ValueError like `compare`."""
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


def read(places: Iterable[str | Path]) -> list[Recipe]:
    """Return the recipes of globs, and of folders with runs.json; see `compare`."""
    recipes = []
    for place in map(str, places):
        one = next(iter(sources.read([place])[0]), None)
        if one is None or len(one.seeds) < 2:
            raise ValueError(
                f"'{place}' is not several training runs: name those of a recipe by one pattern, "
                "in quotes, as 'runs/x-*'"
            )
        if one.accuracy is None:
            raise ValueError(f"a card of '{place}' has no accuracy on test images")
        test_set = one.dataset, str(one.terms.get("dataset_options") or {}), one.accuracy.n
        accuracies = np.array(one.accuracy.runs, float).ravel().tolist()
        recipes.append(Recipe(one.name, test_set, dict(zip(one.seeds, accuracies, strict=True))))
    return recipes


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
    """Return the comparison and its power as aligned lines."""

    def text(value) -> str:
        if value is None:
            return "more than 100,000"
        form = "+.3f" if isinstance(value, Estimate) else ".3f" if isinstance(value, float) else ""
        return format(value, form)

    seeds = ", ".join(map(str, one.seeds))
    rows = [(name.replace("_", " "), v) for name, v in plain(one).items() if name not in HEAD]
    head = f"{one.first} less {one.second}: {one.accuracy.n} pairs, seeds {seeds}"
    return "\n".join([head, *(f"  {name:28}{text(value)}" for name, value in rows)])


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
