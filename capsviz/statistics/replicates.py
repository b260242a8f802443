"""Combine results of several training runs, and describe the runs behind a result."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from capsviz.statistics.estimate import Estimate
from capsviz.statistics.numbers import estimates_of
from capsviz.statistics.runs import combine


class Combined(NamedTuple):
    """One result from those of S training runs."""

    result: NamedTuple
    of_first: list[str]  # fields without a mean over runs: they are the first run's


def over_runs(
    results: Sequence[NamedTuple], rules: Mapping[str, Callable | None] | None = None
) -> Combined:
    """Combine results of one kind, one per training run, field by field.

    Fields that are equal in all runs stay. An `Estimate`, also in a list or dict, becomes the mean
    over runs. Other fields are the first run's, unless there is a rule.

    Parameters
    ----------
    rules  field -> function of the S values, or None for the first run's value. None is for fields
           indexed by capsule types or pose dimensions, whose order differs between runs. For a
           dict also {key: None}: the first run's values of these keys.

    Raises
    ------
    ValueError  for estimates of unequal shapes.
    """
    values: dict[str, Any] = {}
    of_first: list[str] = []
    rules, measured = rules or {}, {name for name, _, _ in estimates_of(results[0])}
    for name in results[0]._fields:
        parts = [getattr(one, name) for one in results]
        first = values[name] = parts[0]
        if all(_equal(first, one) for one in parts[1:]):
            continue
        rule: Any = rules.get(name, _means if name in measured else None)
        if rule is None:
            of_first.append(name)
        elif isinstance(rule, Mapping):
            means = {k: combine([one[k] for one in parts]) for k in first if k not in rule}
            values[name] = first | means
            if kept := [key for key in first if key in rule]:
                of_first.append(f"{name} ({', '.join(kept)})")
        else:
            try:
                values[name] = rule(parts)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
    kind: Any = type(results[0])
    return Combined(kind(**values), of_first)


def _means(parts: Sequence) -> Any:
    return _mapped(parts, _mean_or_first)


def _mean_or_first(parts: list) -> Any:
    if not isinstance(parts[0], Estimate):
        return parts[0]
    if not all(isinstance(one, Estimate) for one in parts):
        raise ValueError("some of the runs have none")
    return combine(parts)


def _mapped(parts: Sequence, rule: Callable) -> Any:
    """Apply a rule to the values of the runs, elementwise for dicts and lists."""
    first = parts[0]
    if isinstance(first, dict | list) and any(len(one) != len(first) for one in parts):
        raise ValueError("the runs do not have the same estimates")
    if isinstance(first, dict):
        return {key: _mapped([one[key] for one in parts], rule) for key in first}
    if isinstance(first, list):
        return [_mapped(row, rule) for row in zip(*parts, strict=True)]
    return rule(parts)


def _equal(one, other) -> bool:
    """Return whether two values are equal; NaN equals NaN, and estimates are never equal."""
    try:
        np.testing.assert_equal(one, other)
    except (AssertionError, TypeError, ValueError):
        return False
    return True


def mean(parts: Sequence) -> Any:
    """Return the mean over runs of numbers, arrays of equal shape, or dicts of these.

    A rule for `over_runs`.
    """
    if isinstance(parts[0], dict):
        return {key: mean([one[key] for one in parts]) for key in parts[0]}
    return np.mean(parts, axis=0) if np.ndim(parts[0]) else float(np.mean(parts))


def within(low: float, high: float) -> Callable:
    """Return a rule for `over_runs`: the mean of estimates, with intervals clipped to a range.

    Differences are clipped to the width of the range. If a value lies outside the range, like a
    coupling below 0, nothing is clipped. Dicts and lists are combined elementwise; None stays.
    """

    def clipped(parts: Sequence) -> Any:
        if any(one is None for one in parts):
            return parts[0]
        if any((part.value > high).any() or (part.value < low).any() for part in parts):
            return combine(parts)
        return combine(parts, low, high)

    return lambda parts: _mapped(parts, clipped)


within_one = within(0, 1)  # for shares and probabilities
at_most_one = within(-np.inf, 1)  # for R², and for numbers derived from it


def largest(parts: Sequence) -> np.ndarray:
    """Return the largest value. A rule for `over_runs`: a p-value then holds in every run."""
    return np.max(parts, axis=0)


def words(result: NamedTuple, *, networks=1, trained=True, about: Mapping | None = None):
    """Return lines on the training runs behind a result; [] if it has no estimates.

    Parameters
    ----------
    networks  number of networks in the result.
    trained   whether they are known to be trained.
    about     for several runs: "recipe", "seeds", the fields "of_first", and "others", the other
              recipes with as many runs.
    """
    if not any(True for _ in estimates_of(result)):
        return []
    if about is None:
        kind = "training run" if trained else "set of weights"
        of = " of each network" if networks > 1 else ""
        return [f"one {kind}{of}: intervals are over images, and hold for these weights alone"]
    recipes = [about, *about.get("others", [])]
    each = [f"{one['recipe']} (seeds {', '.join(map(str, one['seeds']))})" for one in recipes]
    text = (
        f"{len(about['seeds'])} training runs of {' and '.join(each)}: values are their means, "
        "intervals over runs and images"
    )
    if networks > len(recipes):
        text += "; one run of each other network"
    lines = [text]
    if about["of_first"]:
        lines.append(f"of the first run alone: {', '.join(about['of_first'])}")
    return lines
