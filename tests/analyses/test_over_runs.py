"""Several training runs made one: intervals stay within what a number can be."""

from importlib import import_module

import numpy as np
import pytest

from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import over_runs

WITHIN_ONE = {
    "parts": ("auroc",),
    "faithfulness": ("curves", "deletion", "insertion", "infidelity"),
    "probes": ("disentanglement", "completeness"),
    "importance": ("base", "rounded_accuracy"),
    "routing": ("true_activation", "coupling", "polarisation"),
}
AT_MOST_ONE = {
    "probes": ("r2", "control", "selectivity", "informed", "cycle"),
    "equivariance": ("fitted", "mean", "probe"),
    "equivariance_law": ("explained", "change"),
}


def cases(table):
    return [(analysis, field) for analysis, fields in table.items() for field in fields]


def combined(analysis, field):
    """Of two runs far apart, one near each end of what a share can be."""
    name, _, law = analysis.partition("_")
    module = import_module(f"capsviz.analyses.{name}")
    names = ("Law",) if law else ("Statistics", "Result")
    kinds = [getattr(module, one, None) for one in names]
    kind = next(kind for kind in kinds if kind is not None and field in kind._fields)
    rows = [
        kind(**dict.fromkeys(kind._fields) | {field: Estimate(np.array([v]), np.array([[v, v]]))})
        for v in (0.01, 0.97)
    ]
    rules = getattr(kind, "over_runs", None) or module.OVER_RUNS
    return getattr(over_runs(rows, rules).result, field)


@pytest.mark.parametrize(("analysis", "field"), cases(WITHIN_ONE))
def test_what_lies_in_0_to_1_has_an_interval_that_does(analysis, field):
    assert combined(analysis, field).ci95.tolist() == [[0, 1]]


@pytest.mark.parametrize(("analysis", "field"), cases(AT_MOST_ONE))
def test_no_share_of_squares_is_above_1(analysis, field):
    one = combined(analysis, field)
    assert one.high[0] == 1 and one.low[0] < 0
