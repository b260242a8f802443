"""Training runs of two recipes, paired by seed: read their accuracies, and say what they show."""

import glob
from collections.abc import Iterable, Sequence
from os.path import commonprefix
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capsviz import checkpoint
from capsviz.inputs.runs import recipe_of
from capsviz.results.leaderboard.sources import RUNS, Network, cards_of, network, of_runs
from capsviz.statistics import equivalence
from capsviz.statistics.equivalence import Paired
from capsviz.statistics.estimate import Estimate

MARGIN = 0.05  # percentage points
HEAD = ("first", "second", "seeds", "pairs", "verdict")  # fields that stand above the lines
POINTS = 100  # percentage points in a share


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
    groups: dict[str, tuple[list[str], list[Network]]] = {}  # names and runs of each recipe
    for place in map(str, places):
        path = Path(place)
        summary = path if path.name == RUNS else path / RUNS
        if path == summary or summary.is_file():
            one = of_runs(summary)
            groups[place] = [one.name], [one]
        elif not path.exists() and glob.has_magic(place):
            groups[place] = [place], [_measured(run, card) for run, card in cards_of(place).items()]
        else:
            card = checkpoint.read_card(checkpoint.find(place))
            names, runs = groups.setdefault(recipe_of(place, card), ([], []))
            names.append(place)
            runs.append(_measured(place, card))
    return [_recipe(names, runs) for names, runs in groups.values()]


def _measured(place: str, card: dict) -> Network:
    one = network(card)
    if one.accuracy is None:
        raise ValueError(f"the card of '{place}' has no accuracy on test images")
    return one


def _recipe(names: list[str], runs: list[Network]) -> Recipe:
    name = names[0] if len(names) == 1 else f"{commonprefix(names)}*"  # noqa: RUF071
    accuracies: dict[int, float] = {}
    sets = set()
    for one in runs:
        assert one.accuracy is not None  # of a training run
        options = str(one.terms.get("dataset_options") or {})
        sets.add((one.dataset, options, one.accuracy.n))
        each = one.accuracy.value if one.accuracy.runs is None else one.accuracy.runs
        for seed, accuracy in zip(one.seeds, np.ravel(each), strict=True):
            if seed in accuracies:
                raise ValueError(f"'{name}' has several runs of seed {seed}: expected one of each")
            accuracies[seed] = float(accuracy)
    if len(sets) > 1:
        raise ValueError(f"the runs of '{name}' have different test sets: {sorted(sets)}")
    return Recipe(name, sets.pop(), accuracies)


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
    """Return what the pairs show and could have shown with 80 % power."""

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
