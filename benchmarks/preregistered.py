"""Make the verdicts of docs/preregistered.md from trained/seeds; `make readme` fills them in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks import findings, shipped
from benchmarks.shipped import over_runs
from capsviz.results.tables import markdown
from capsviz.statistics import equivalence

BROKEN = ("quarters exchanged", "halves of two classes", "lower half shifted")


class Value(NamedTuple):
    """A measured value of the plans, in percentage points or as AUROC."""

    margin: float  # preregistered margin of equivalence
    analysis: str = ""  # analysis that measures it; "": the accuracy, which is in runs.json
    of_runs: Callable[[Any], np.ndarray] = np.asarray  # result -> value of each run
    resolution: float = 0.0


class Plan(NamedTuple):
    """Recipes to compare at fixed seeds."""

    seeds: range
    pairs: dict[str, tuple[str, str]]  # the difference is first minus second
    values: dict[str, Value]


def _broken(result) -> np.ndarray:
    return result.auroc.runs[:, 0, [result.kinds.index(kind) for kind in BROKEN]].mean(1)


PLANS = {
    "a": Plan(
        range(10, 30),
        {"three less one iteration": ("mnist-iterations-3", "mnist-iterations-1")},
        {"accuracy": Value(0.05, resolution=0.01)},
    ),
    "b": Plan(
        range(10, 20),
        {
            f"{words} decoder": (f"mnist-capsules-{name}", f"mnist-pooling-{name}")
            for words, name in (("without", "plain"), ("with", "decoder"))
        }
        | {
            "later: both with cross-entropy": (
                "mnist-capsules-cross-entropy",
                "mnist-pooling-plain",
            )
        },
        {
            "accuracy": Value(0.1, resolution=0.01),
            "accuracy inside": Value(1, "affine", lambda one: 100 * one.accuracy.runs[:, 0, 1]),
            "accuracy outside": Value(1, "affine", lambda one: 100 * one.accuracy.runs[:, 0, 2]),
            "error, corruptions": Value(2, "corrupt", lambda one: 100 * one.mean.runs[:, 0]),
            "AUROC, broken digits": Value(0.02, "parts", _broken),
        },
    ),
}


def by_seed(recipe: str, value: Value) -> dict[int, float]:
    """Return the value of each training run by seed; {} if it was not measured."""
    try:
        if value.analysis:
            source = over_runs(recipe, value.analysis)
            return dict(zip(source.seeds, value.of_runs(source.result), strict=True))
        return shipped.accuracies(recipe)
    except FileNotFoundError:
        return {}


def verdicts(name: str) -> str:
    """Return a table of a plan's verdicts, and the comparisons that are not run yet."""
    plan, rows, missing = PLANS[name], [], []
    for label, recipes in plan.pairs.items():
        absent = []
        for title, value in plan.values.items():
            first, second = (by_seed(recipe, value) for recipe in recipes)
            seeds = [seed for seed in plan.seeds if seed in first and seed in second]
            if len(seeds) < equivalence.FEWEST:
                absent.append(title)
                continue
            sides = (np.array([one[seed] for seed in seeds]) for one in (first, second))
            tested = equivalence.paired(*sides, value.margin, resolution=value.resolution)
            form = ".3f" if value.margin < 0.05 else ".2f"
            rows.append(
                [label, title, f"{len(seeds)} of {len(plan.seeds)}",
                 findings.plain(tested.difference, f"+{form}"), f"{value.margin:g}",
                 tested.verdict, f"{tested.detectable:{form}}"]
            )  # fmt: skip
        if absent:
            only = "" if len(absent) == len(plan.values) else f" ({', '.join(absent)})"
            missing.append(f"{label}{only}")
    header = ["comparison", "value", "pairs", "difference", "margin", "verdict",
              "smallest difference that could be shown"]  # fmt: skip
    table = markdown(header, rows).rstrip() if rows else ""
    left = f"Not run yet: {', '.join(missing)}." if missing else ""
    return "\n\n".join(filter(None, [table, left]))
