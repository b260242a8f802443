"""docs/findings.md states what the shipped results support, and nothing that they do not."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import dots, findings
from benchmarks.shipped import ROOT


@pytest.fixture(scope="module")
def all_findings():
    return findings.findings()


def test_the_page_is_up_to_date(all_findings):
    page = findings.PAGE.read_text(encoding="utf-8")
    assert findings.page(*all_findings) == page, "run `python -m benchmarks.findings`"
    for k, one in enumerate(all_findings[0], 1):
        assert (findings.FOLDER / f"{k}.svg").read_text(encoding="utf-8") == one.drawing()


def test_every_finding_has_a_picture_a_small_table_and_its_files(all_findings):
    holding, without = all_findings
    assert len(holding) == 10 and not without
    for one in holding:
        assert len(one.rows) <= 5 and {len(row) for row in one.rows} == {len(one.header)}
        assert (ROOT / f"figures/{one.picture}.png").is_file(), one.picture
        assert all((ROOT / source).exists() for source in one.sources), one.title
        assert "nan" not in one.markdown(1).split()


def test_numbers_are_drawn_where_they_lie():
    number = dots.Number("2 [1, 3]", (2.0, 1.0, 3.0))
    picture = dots.draw("points", ["value", "control"], [("a & b", [number, "–"])])
    assert "a &amp; b" in picture and picture.count("<circle") == 3  # two in the legend
    assert dots._ticks(1.0, 3.0) == [1, 1.5, 2, 2.5, 3] and dots._ticks(-0.3, 0.9)[0] == -0.5


def doctored(monkeypatch, **fields):
    """Give some fields of the results in figures/ other values, where they have them."""
    plain = findings.figure

    def figure(pattern):
        one = plain(pattern)
        known = {
            name: change(one.result) for name, change in fields.items() if hasattr(one.result, name)
        }
        return one._replace(result=one.result._replace(**known))

    monkeypatch.setattr(findings, "figure", figure)


def share(condition, value):
    """Return a change of the share that follows the donor under a condition."""

    def change(result):
        shares, k = result.as_partner, result.conditions.index(condition)
        values, ends = shares.value.copy(), shares.ci95.copy()
        values[k], ends[k] = value, (value - 0.05, value + 0.05)
        return replace(shares, value=values, ci95=ends)

    return change


def turned(estimate):
    """Return an estimate whose differences have the other sign."""
    return replace(estimate, difference=estimate.difference * -1)


@pytest.mark.parametrize(
    ("finding", "fields"),
    [
        (findings.transplant, {"as_partner": share("of an unlike image", 0.5)}),
        (findings.transplant, {"as_partner": share("unlike's, shuffled", 0.9)}),
        (findings.lawful, {"mean": lambda result: result.mean * 0}),
        (findings.maps, {"routed_less": lambda result: result.routed_less * -1}),
        (findings.broken, {"auroc": lambda result: turned(result.auroc)}),
        (findings.detection, {"undetected": lambda result: result.undetected * 0}),
    ],
)  # fmt: skip
def test_a_finding_that_the_numbers_do_not_support_does_not_hold(monkeypatch, finding, fields):
    assert finding().holds
    doctored(monkeypatch, **fields)
    assert not finding().holds


def test_a_finding_without_shipped_results_is_named(monkeypatch, tmp_path):
    (tmp_path / "figures").mkdir()
    monkeypatch.setattr("benchmarks.shipped.ROOT", tmp_path)
    monkeypatch.setattr(findings.discovery, "folder", lambda package: tmp_path)
    monkeypatch.setattr(findings.leaderboard, "table", list)
    holding, without = findings.findings()
    assert holding == [] and len(without) == len(findings.FINDINGS)
    assert all("no result is shipped" in line for line in without)


def test_training_with_three_iterations_is_compared_with_one_by_seed():
    pairs = findings.iteration_pairs()
    folder = ROOT / "trained/reproduce/10-epochs"
    one, three = (
        json.loads((folder / f"mnist-routing-{r}-1.json").read_text())["results"]["test"]
        for r in (1, 3)
    )
    gain = three["accuracy"] - one["accuracy"]
    assert pairs["10-epochs/mnist-routing-1"][1] == pytest.approx(gain)


def test_welch_is_that_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    one, other = np.array([0.91, 0.94, 0.95]), np.array([0.90, 0.905, 0.93])
    gain, p = findings.welch(one, other)
    expected = stats.ttest_ind(one, other, equal_var=False, alternative="greater")
    ends = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    assert p == pytest.approx(expected.pvalue)
    assert gain.ci95 == pytest.approx([ends.low, ends.high])
