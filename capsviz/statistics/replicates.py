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
    of_first: list[str]  # fields that differ between runs and have no mean: those of the first run


def over_runs(
    results: Sequence[NamedTuple], rules: Mapping[str, Callable | None] | None = None
) -> Combined:
    """Combine results of one kind, one per training run, field by field.

    An `Estimate` becomes the mean over runs, in lists and tables too; what is equal in all runs
    stays; other fields are the first run's, if there is no rule.

    Parameters
    ----------
    rules  field -> function of the S values, or None for the first run's: of what is numbered by
           capsule types, or dimensions of a pose, which are in another order in each run. Of a
           table also {key: None}, for the first run's of these keys.

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
    """Apply a rule to what the runs have, one by one inside of tables and lists."""
    first = parts[0]
    if isinstance(first, dict | list) and any(len(one) != len(first) for one in parts):
        raise ValueError("the runs do not have the same estimates")
    if isinstance(first, dict):
        return {key: _mapped([one[key] for one in parts], rule) for key in first}
    if isinstance(first, list):
        return [_mapped(row, rule) for row in zip(*parts, strict=True)]
    return rule(parts)


def _equal(one, other) -> bool:
    """Whether two values of a field, but for estimates, are the same; NaN is NaN."""
    try:
        np.testing.assert_equal(one, other)
    except (AssertionError, TypeError, ValueError):
        return False
    return True


def mean(parts: Sequence) -> Any:
    """For `over_runs`: the mean over runs of numbers, arrays of equal shape, or tables of these."""
    if isinstance(parts[0], dict):
        return {key: mean([one[key] for one in parts]) for key in parts[0]}
    return np.mean(parts, axis=0) if np.ndim(parts[0]) else float(np.mean(parts))


def within(low: float, high: float) -> Callable:
    """For `over_runs`: the mean of estimates that lie in a range, their differences in its width.

    Where a value does not lie there, as a coupling below 0, nothing is cut off. Of tables and lists
    of estimates each; None stays.
    """

    def clipped(parts: Sequence) -> Any:
        if any(one is None for one in parts):
            return parts[0]
        if any((part.value > high).any() or (part.value < low).any() for part in parts):
            return combine(parts)
        return combine(parts, low, high)

    return lambda parts: _mapped(parts, clipped)


within_one = within(0, 1)  # of shares and probabilities
at_most_one = within(-np.inf, 1)  # of R², and of what is made of it


def largest(parts: Sequence) -> np.ndarray:
    """For `over_runs`: the largest; of p-values, so that a finding holds in each run."""
    return np.max(parts, axis=0)


def words(result: NamedTuple, *, networks=1, trained=True, about: Mapping | None = None):
    """Return lines on the training runs behind a result; none where it has no estimates.

    Parameters
    ----------
    networks  how many it is of.
    trained   whether they are known to be trained.
    about     of several runs: "recipe", "seeds", the fields "of_first", and the "others" of which
              there are as many runs.
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
