"""Several training runs of one recipe at the command line give one statistic, or one error line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.command_line import fine, refused, run
from helpers.training_runs import SMALL, train

from capsviz import checkpoint, results
from capsviz.analyses.transplant import OverPairs
from capsviz.inputs.runs import check


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Train three runs x-0 to x-2, with a log file beside them."""
    with torch.random.fork_rng():
        for seed in range(3):
            train(tmp_path / f"runs/x-{seed}", seed)
    (tmp_path / "runs/x-0.log").write_text("epoch 1")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def transplant(*words):
    return run("transplant", *words, "--n", 40, "--format", "png", "--output", "out")


def test_a_glob_is_one_statistic_over_its_runs(blank, runs):
    done = transplant("--seeds-of", "runs/x-*")
    assert done.exit_code == 0, done.output
    assert "3 training runs of small (seeds 0, 1, 2): values are their means" in done.stdout
    whole, about = results.read_result("out/transplant-x-digits-40-images-3-runs.json")
    assert about["runs"]["recipe"] == "small" and about["runs"]["seeds"] == [0, 1, 2]
    assert len(set(about["runs"]["weights_sha256"])) == 3
    singly = []
    for k in range(3):
        assert "one training run: intervals" in transplant("--checkpoint", f"runs/x-{k}").stdout
        singly.append(results.read_result(f"out/transplant-x-{k}-digits-40-images.json")[0])
    for name in ("as_partner", "coupling_sd"):
        one = getattr(whole, name)
        for k in range(3):
            assert (one.runs[k] == getattr(singly[k], name).value).all()
        assert (one.value == one.runs.mean(0)).all()
        spread = [getattr(single, name) for single in singly]
        assert ((one.high - one.low) >= min((s.high - s.low).min() for s in spread) - 1e-9).all()
    assert OverPairs().findings(whole) in done.stdout


def test_in_a_comparison_of_networks_the_runs_are_the_first_network(blank, runs):
    words = ["--n", 20, "--step", 90, "--grid", 1, "--format", "png", "--output", "out"]
    done = fine(run("sweep", "--seeds-of", "runs/x-*", "--checkpoint", "digits", *words))
    assert "3 training runs of x" in done.stdout and "one run of each other" in done.stdout
    (path,) = Path("out").glob("sweep-*-20-images-3-runs-*.json")
    result, _ = results.read_result(path)
    assert result.names == ["x", "digits"]
    assert np.allclose(result.accuracy.runs[:, 1], result.accuracy.value[1])


def test_runs_of_two_recipes_are_compared_in_pairs_of_equal_seed(blank, runs):
    for seed in (1, 2, 7):
        train(runs / f"y-{seed}", seed, options={**SMALL, "types": 3})
    words = ["--n", 40, "--queries", 1, "--eps", 0.1, "--only", "square"]
    words += ["--format", "png", "--output", "out", "--seeds-of", "runs/x-*"]
    done = fine(run("attack", *words, "--seeds-of", "runs/y-*"))
    assert "2 training runs of x (seeds 1, 2) and y (seeds 1, 2): values are" in done.stdout
    (path,) = Path("out").glob("attack-*.json")
    result, about = results.read_result(path)
    assert result.networks == ["x", "y"] and about["runs"]["others"][0]["seeds"] == [1, 2]
    clean = result.clean
    assert np.allclose(clean.difference.runs[:, 1], clean.runs[:, 1] - clean.runs[:, 0])
    refused(run("attack", *words, "--seeds-of", "runs/y-[17]"), "no two seeds in common")
    refused(run("attack", *words, "--seeds-of", "runs/y-1"), "'runs/y-1' is one run")


def test_anything_but_finished_runs_of_one_recipe_is_refused_in_one_line(runs):
    every = ["--seeds-of", "runs/x-*"]
    refused(transplant("--seeds-of", "runs/none-*"), "'runs/none-*' matches no training run")
    refused(transplant("--seeds-of", "runs/*.log"), "matches no training run")
    twice = ["--checkpoint", "runs/x-0", "--checkpoint", "runs/x-0/small.safetensors"]
    refused(transplant(*twice), "is named twice")
    refused(transplant("--seeds-of", "runs/x-0"), "is one run", "expected several")
    refused(run("transplant", *every), "need statistics over images: add --n N")
    refused(run("view", *every), "no statistic with an interval: expected one training run")
    refused(run("perturb", *every, "--n", 20), "differs between training runs")
    refused(transplant(*every, "--network", "mine.py:build"), "--seeds-of and --network")
    (runs / "y").mkdir()
    refused(transplant("--seeds-of", "runs/[xy]*"), "'runs/y' is not finished, or holds no")
    train(runs / "z", 2)
    refused(transplant("--seeds-of", "runs/[xz]*"), "'runs/x-2' and 'runs/z' are both of seed 2")
    (runs / "x-3").mkdir()
    (runs / "x-3/epochs.csv").write_text("epoch")
    refused(transplant(*every), "'runs/x-3' is not finished", "--resume")
    train(runs / "x-3", 3, epochs=5, options={**SMALL, "types": 3})
    words = "types 3, not 2", "epochs 5, not 3", "'runs/x-3' is not of the recipe of 'runs/x-0'"
    refused(transplant(*every), *words)
    refused(transplant("--checkpoint", "runs/x-0", "--checkpoint", "digits"), "channels 96, not 8")


def test_the_accuracy_of_several_runs_is_their_mean(runs):
    done = fine(run("evaluate", "--seeds-of", "runs/x-*", "--n", 50))
    assert done.stdout.startswith("3 training runs of small (seeds 0, 1, 2) on 50 images")
    assert "interval over runs and images" in done.stdout
    about = json.loads(run("evaluate", "--seeds-of", "runs/x-*", "--n", 50, "--json").stdout)
    each = [run["accuracy"] for run in about["runs"]]
    assert about["accuracy"]["runs"] == each
    assert np.isclose(about["accuracy"]["value"], sum(each) / 3)


def test_fields_that_an_older_card_lacks_have_their_default(runs):
    cards = {k: checkpoint.read_card(runs / f"x-{k}/small.safetensors") for k in range(2)}
    del cards[1]["model"]["config"]["leaky"]
    check(cards)
    cards[1]["recipe"]["lr_decay"] = 0.99126
    with pytest.raises(ValueError, match=r"'1' is not .*: lr_decay 0.99126, not 0.96"):
        check(cards)
