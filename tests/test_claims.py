"""Every claim that is shipped names what carries it, and docs/claims.md is made from the files."""

import re

import pytest
from click.testing import CliRunner

from benchmarks import claims
from benchmarks.claims import accuracy, couplings, networks, poses
from benchmarks.claims.claim import DESCRIPTION, ROOT, Claim, Missing, shipped
from capsviz.cli import main
from capsviz.figures import read_result


@pytest.fixture(scope="module")
def sections():
    return claims.claims()


@pytest.fixture(scope="module")
def every(sections):
    return [entry for part in sections.values() for entry in part if isinstance(entry, Claim)]


def test_the_page_is_what_the_results_say(sections):
    page = claims.PAGE.read_text(encoding="utf-8")
    assert claims.page(sections) == page, "run `python -m benchmarks.claims`"


def test_every_claim_names_its_number_file_control_runs_and_refutation(every):
    assert len(every) > 50
    for claim in every:
        assert all(field.strip() for field in claim), claim
        assert not re.search(r"\bnan\b|\bNone\b", claim.text()), claim
        assert re.search(r"\d", claim.number), claim
        assert re.match(r"\d", claim.runs), claim
        assert (ROOT / claim.source).exists(), claim


def test_a_number_has_an_interval_or_says_why_not(every):
    for claim in every:
        assert re.search(r"\[[^]]+, [^]]+\]|no interval|±", claim.number), claim


def test_a_control_has_a_number_or_says_that_there_is_none(every):
    for claim in every:
        assert claim.control.startswith(DESCRIPTION) or re.search(r"\d", claim.control), claim


def test_what_is_not_shipped_is_said(monkeypatch, tmp_path):
    (tmp_path / "figures").mkdir()
    monkeypatch.setattr("benchmarks.claims.claim.ROOT", tmp_path)
    for source in (couplings.transplant, poses.equivariance, networks.detect, accuracy.rotation):
        (entry,) = source()
        assert isinstance(entry, Missing) and "no result is shipped" in entry.text()


def test_a_result_that_arrives_becomes_claims(blank, monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.claims.claim.ROOT", tmp_path)
    for name in ("transplant", "routing"):
        words = [name, "--checkpoint", "digits", "--evaluate", "20", "--format", "png"]
        result = CliRunner().invoke(main, [*words, "--output", str(tmp_path / "figures")])
        assert result.exit_code == 0, result.output
    (carried,) = couplings.transplant()
    assert carried.source == "figures/transplant-digits-20-images.json"
    result, _ = read_result(tmp_path / carried.source)
    assert 10 < result.n <= 20  # those that find an unlike partner and a like image
    assert f"{result.n} images are read as that image's class" in carried.sentence
    assert all(name in carried.control for name in ("of a like image", "noise", "own, shuffled"))
    routed = list(couplings.routing())
    assert all(isinstance(entry, Claim) for entry in routed)
    for name in ("uniform", "random", "shuffled", "matched"):
        assert any(entry.sentence.startswith(f"With {name} couplings") for entry in routed)


def test_of_several_results_that_of_most_images_speaks():
    assert shipped("routing-*.json").result.n == shipped("routing-mnist-*-images.json").result.n
    assert shipped("no-such-*.json") is None
