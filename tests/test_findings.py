"""docs/findings.md says what the results bear out, and nothing that they do not."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import findings
from benchmarks.findings import couplings, finding, poses, trained
from benchmarks.shipped import ROOT, Shipped, shipped
from capsviz import checkpoint, discovery
from capsviz.analyses.transplant.pairs import UNLIKE, UNLIKE_SHUFFLED
from capsviz.nn import routing


@pytest.fixture(scope="module")
def claims():
    return findings.findings()


def test_the_page_is_what_the_results_say(claims):
    page = findings.PAGE.read_text(encoding="utf-8")
    assert findings.page(*claims) == page, "run `python -m benchmarks.findings`"


def test_every_finding_has_its_numbers_picture_control_seeds_and_refutation(claims):
    holding, _ = claims
    assert len(holding) >= 9
    for one in holding:
        assert not re.search(r"\d", one.title), one.title
        assert re.search(r"\[[^]]+, [^]]+\]", one.numbers), one.title
        assert re.search(r"\d", one.control) or "uniform" in one.control, one.title
        assert " run" in one.seeds and one.refuted, one.title
        assert (ROOT / f"figures/{one.picture}.png").is_file(), one.picture
        assert all((ROOT / source).exists() for source in one.sources), one.title
        assert not re.search(r"\bnan\b|\bNone\b", one.text(1)), one.title


def test_it_is_read_in_a_few_minutes(claims):
    assert len(findings.page(*claims).split()) < 1500  # two pages of A4, with the pictures


def doctored(monkeypatch, module, **fields):
    """The shipped results with other numbers, before a module of findings."""

    def of_figure(pattern):
        one = shipped(pattern)
        other = {name: value for name, value in fields.items() if hasattr(one.result, name)}
        return Shipped(one.result._replace(**other), one.about, one.source)

    monkeypatch.setattr(module, "of_figure", of_figure)


def test_a_finding_that_the_numbers_do_not_bear_out_is_not_written(monkeypatch):
    result = shipped("transplant-mnist-*-images.json").result
    value, ends = result.as_partner.value.copy(), result.as_partner.ci95.copy()
    value[UNLIKE], ends[UNLIKE] = 0.5, (0.45, 0.55)
    doctored(monkeypatch, couplings, as_partner=replace(result.as_partner, value=value, ci95=ends))
    holding, without = findings.findings()
    assert couplings.transplant().title not in [one.title for one in holding]
    assert any("do not bear it out" in line for line in without)


@pytest.mark.parametrize(
    ("names", "holds"),
    [(["uniform"], False), (["dynamic"], True), (["dynamic", "self_attention", "k_means",
                                                  "max_min", "inverted_attention"], False)],
)  # fmt: skip
def test_networks_that_the_finding_on_pooling_is_of_take_it_away(monkeypatch, names, holds):
    """Even couplings alone, or most of the others; one of these is named, and it stands."""

    def other(asked, column):
        far, words, files = of_stem(asked, column)
        wide = np.array([0.0, 1.0])
        return [replace(far[0], ci95=wide), *far[1:]] if asked[0] in names else far, words, files

    of_stem = poses._of_stem
    assert poses.affine().holds and "less uniform +3.2 [+0.4, +5.9]" in poses.affine().seeds
    monkeypatch.setattr(poses, "_of_stem", other)
    assert poses.affine().holds == holds
    if holds:
        assert re.search(r"dynamic \+[^,]*, [^,]*\] \(not shown\)", poses.affine().seeds)


def test_shuffled_couplings_of_the_other_take_the_finding_on_couplings_away(monkeypatch):
    result = shipped("transplant-mnist-1000-images.json").result
    value, ends = result.as_partner.value.copy(), result.as_partner.ci95.copy()
    value[UNLIKE_SHUFFLED], ends[UNLIKE_SHUFFLED] = 0.9, (0.85, 0.95)
    assert couplings.transplant().holds
    doctored(monkeypatch, couplings, as_partner=replace(result.as_partner, value=value, ci95=ends))
    assert not couplings.transplant().holds


def test_p_values_are_of_all_routings_that_are_shipped():
    folder = discovery.folder(checkpoint.SHIPPED) / "seeds"
    shipped_ones = [
        name
        for name in routing.available()
        if (folder / f"mnist-slim-{name}-10-epochs" / "runs.json").exists()
    ]
    one = findings.routings.sharpness()
    assert f"{len(shipped_ones)} routings on one stem" in one.numbers
    assert f"not corrected for {len(shipped_ones) - 1}" in one.numbers  # all but the even ones


def test_pixels_that_are_less_lawful_take_the_finding_on_poses_away(monkeypatch):
    result = shipped("equivariance-*-images-warp-rotation-shift-x.json").result
    less = replace(result.mean, difference=replace(result.mean.difference * -1))
    assert poses.lawful().holds
    doctored(monkeypatch, poses, mean=less)
    assert not poses.lawful().holds


def test_what_is_not_shipped_is_said(monkeypatch, tmp_path):
    (tmp_path / "figures").mkdir()
    monkeypatch.setattr("benchmarks.shipped.ROOT", tmp_path)
    monkeypatch.setattr(finding.discovery, "folder", lambda package: tmp_path)
    monkeypatch.setattr(findings.routings.leaderboard, "table", list)
    holding, without = findings.findings()
    assert holding == [] and len(without) == len(findings.FINDINGS)
    assert all("no result is shipped" in line for line in without)
    assert np.all(["figures/" in line or "seeds/" in line for line in without])


def test_training_with_three_rounds_is_held_against_one_pair_by_pair(monkeypatch):
    each = trained.differences()
    paper = each[trained.PAPER]
    folder = ROOT / "trained/reproduce/10-epochs"
    errors = [
        1
        - json.loads((folder / f"mnist-routing-{r}-1.json").read_text())["results"]["test"][
            "accuracy"
        ]
        for r in (1, 3)
    ]
    assert paper[1] == pytest.approx(errors[1] - errors[0]) and len(paper) == 3
    assert all(len(pairs) >= trained.LEAST for pairs in each.values())
    words, files = trained.words()
    count = sum(len(pairs) for pairs in each.values())
    less = sum(pair < 0 for pairs in each.values() for pair in pairs)
    assert f"{less} of {count} pairs" in words and len(set(files)) == 2 * count
    monkeypatch.setattr(trained, "differences", lambda: {trained.PAPER: [0.001, 0.002, 0.003]})
    assert "in 0 of 3 pairs" in trained.words()[0] and "-0.20" in trained.words()[0]
