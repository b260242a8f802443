"""Shipped statistics over training runs: intervals contain their values and cover the runs."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t

from capsviz import checkpoint, discovery
from capsviz.results import read_result
from capsviz.statistics.estimate import Estimate

FOLDERS = sorted((discovery.folder(checkpoint.SHIPPED) / "seeds").glob("*"))
SHARE, DIFFERENCE = (-1, 0, 1), (-2, -1, 1, 2)  # where an end may be cut off


def estimates(value, limits=SHARE):
    """Yield all estimates of a result with their limits, also in dicts, lists and differences."""
    if isinstance(value, Estimate):
        yield value, limits
        yield from estimates(value.difference, DIFFERENCE)
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from estimates(one)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_intervals_over_runs_are_at_least_as_wide_as_those_of_the_runs_alone(folder: Path):
    seen = 0
    for path in folder.glob("*-runs.json"):
        for one, limits in estimates(read_result(path)[0]):
            assert not (one.value < one.low - 2e-4).any(), path
            assert not (one.value > one.high + 2e-4).any(), path
            if one.runs is None:
                continue
            known = np.isfinite(one.value) & (one.runs > 0).all(0)
            geometric = np.exp(np.log(np.where(known, one.runs, 1)).mean(0))
            apart = known & ~np.isclose(one.value, one.runs.mean(0), rtol=1e-3)
            if apart.any() and np.allclose(one.value[apart], geometric[apart], rtol=2e-3):
                logs = (np.log(np.where(known, x, 1)) for x in (one.value, one.runs))
                ends = np.log(np.where(known[..., None], one.ci95, 1))  # doses
                one = replace(one, value=next(logs), runs=next(logs), ci95=ends)
            count = len(one.runs)
            margin = t.ppf(0.975, count - 1) * one.runs.std(0, ddof=1) / count**0.5
            slack = 3e-3 + 0.02 * margin  # of rounded numbers
            above = (one.low > one.value - margin + slack) & ~np.isin(one.low, limits)
            below = (one.high < one.value + margin - slack) & ~np.isin(one.high, limits)
            assert not above.any() and not below.any(), path
            seen += 1
    assert seen or not list(folder.glob("*-runs.json"))


def test_tables_and_statistics_are_of_the_same_training_runs():
    reproduced, compared = discovery.folder(checkpoint.SHIPPED) / "reproduce", 0
    for folder in FOLDERS:
        for run in json.loads((folder / "runs.json").read_text())["runs"]:
            length = f"{run['epochs']}-epochs"
            name = folder.name.removesuffix(f"-{length}")
            path = reproduced / length / f"{name}-{run['seed']}.json"
            if path.is_file():
                compared += 1
                assert json.loads(path.read_text())["weights"]["sha256"] == run["weights_sha256"], (
                    path
                )
    assert compared > 40
