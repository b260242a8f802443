"""Findings: their commands are those of the page, and every recipe with seeds can be trained."""

import json
import re
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from capsviz import discovery
from capsviz.cli import main
from capsviz.commands import reproduce
from capsviz.experiments import reproduced
from capsviz.training import run
from capsviz.training.recipe import differing

PAGE = discovery.root() / "docs/findings.md"
SERIES = sorted(path.parent.name for path in discovery.folder(reproduced.SEEDS).glob("*/runs.json"))


@pytest.mark.parametrize("name", SERIES)
def test_a_series_is_trained_by_its_name_with_the_recipe_that_its_runs_had(name):
    about = json.loads((discovery.folder(reproduced.SEEDS) / name / "runs.json").read_text())
    called, recipe = run.prepare(name, {"seed": 7})
    assert called == name and recipe.seed == 7
    assert differing({**about["terms"], "seed": 7}, recipe) == set()


def test_the_commands_of_a_finding_are_those_of_its_page():
    sections = re.split(r"(?m)^## \d+\. ", PAGE.read_text(encoding="utf-8"))[1:]
    assert len(sections) == len(reproduced.FINDINGS)
    for number, (section, one) in enumerate(zip(sections, reproduced.FINDINGS, strict=True), 1):
        block = section.rpartition("\n```\n")[0].rpartition("```\n")[2]
        lines = [line.partition("#")[0].split() for line in block.splitlines()]
        assert ["capsviz", "reproduce", str(number)] in lines
        known = [words.format(seeds="trained/seeds").split() for words in one.measured]
        for _, *words in lines:
            if words[0] not in ("reproduce", "train", "affnist") and "{" not in str(words):
                assert words in known, words


def test_a_finding_is_measured_and_says_which_trainings_are_left(monkeypatch, tmp_path):
    asked = []

    def run_one(command):
        asked.append(command[3:])
        return SimpleNamespace(returncode=int("dose" in command))

    monkeypatch.setattr(reproduce, "subprocess", SimpleNamespace(run=run_one))
    done = CliRunner().invoke(main, ["reproduce", "1", "--folder", str(tmp_path)])
    assert ["transplant", "--n", "1000", "--output", str(tmp_path), "--force"] in asked
    assert len(asked) == len(reproduced.FINDINGS[0].measured)
    assert "capsviz train mnist-2-iterations-10-epochs --seed S" in done.stdout
    assert "--seeds-of 'runs/mnist-2-iterations-10-epochs-*' --n 1000\n" in done.stdout
    assert done.exit_code == 1 and "3 of 6 commands failed" in done.stderr
    shown = CliRunner().invoke(main, ["reproduce", "5", "--show"])
    assert shown.exit_code == 0 and len(asked) == 6 and "mnist-slim-pooled" in shown.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["11"], "finding 11: expected a number from 1 to 10"),
        (["3x"], "finding 3x: expected a number"),
        (["3", "--seeds", "2"], "a finding takes --show and --folder alone: drop --seeds"),
    ],
)
def test_wrong_requests_are_refused_in_one_line(words, message):
    done = CliRunner().invoke(main, ["reproduce", *words])
    assert done.exit_code == 2 and message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
