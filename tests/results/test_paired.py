"""Training runs paired by seed: `capsviz compare --paired`."""

import json

import pytest
import torch
from helpers import command_line
from helpers.training_runs import recipe

from capsviz.nn import models
from capsviz.results import paired
from capsviz.results.paired import Recipe

IMAGES = ("mnist", "{}", 10000)


def run(folder, seed, accuracy, iterations=3, **fields):
    """Write weights without content and their card; return the folder."""
    folder.mkdir()
    (folder / "net.safetensors").write_bytes(b"")
    options = {"types": 2, "channels": 8, "iterations": iterations}
    config = {"image_shape": [1, 28, 28], "classes": 10, **options}
    card = {
        "format": 1,
        "name": "net",
        "dataset": {"name": "mnist"},
        "recipe": {"seed": seed, "epochs": 1, "options": options, **fields},
        "training": {"precision": "fp32"},
        "results": {"test": {"n": 10000, "accuracy": accuracy, "accuracy_ci95": [0, 1]}},
        "weights": {},
        "model": {"name": "capsnet", "config": config},
    }
    (folder / "net.json").write_text(json.dumps(card))
    return folder


def compare(*words):
    return command_line.run("compare", "--paired", *words)


def test_runs_of_a_recipe_and_a_broken_one_are_different(tmp_path):
    good = recipe(tmp_path, "good", {0: 0.995, 1: 0.994, 2: 0.996, 7: 0.99})
    broken = recipe(tmp_path, "broken", {2: 0.11, 0: 0.10, 1: 0.12})
    done = compare(good, broken)
    assert done.exit_code == 0 and "3 pairs, seeds 0, 1, 2" in done.stdout
    assert "different: good is higher by 88.50 points than broken" in done.stdout
    (one,) = json.loads(compare(good, broken, "--json").stdout)
    assert one["verdict"] == "different" and one["seeds"] == [0, 1, 2]
    assert one["accuracy_difference_points"]["value"] == pytest.approx(88.5)
    assert one["error_difference_points"]["value"] == pytest.approx(-88.5)


def test_two_copies_are_equivalent_and_runs_are_found_by_globs(tmp_path):
    for seed in (0, 1, 2):
        for copy in ("a", "b"):
            run(tmp_path / f"{copy}-{seed}", seed, 0.99 + seed / 1000)
    done = compare(tmp_path / "a-*", tmp_path / "b-*")
    assert "equivalent within ±0.05 points" in done.stdout, done.output
    table = command_line.run("compare", tmp_path / "a-*").stdout
    assert f"| {tmp_path}/a-* | mnist | 3 | 99.1 [" in table
    command_line.refused(command_line.run("compare", tmp_path / "c-*"), "matches no training run")
    wide = compare(tmp_path / "a-*", tmp_path / "b-*", "--margin", "0.005")
    assert "not settled: with 3 pairs only differences above 0.03 points" in wide.stdout


def test_a_network_may_read_its_numbers_while_it_is_built(tmp_path, monkeypatch):
    plain = models.of_config

    def of_config(name, config):
        assert torch.ones(2).sum().item() == 2
        return plain(name, config)

    monkeypatch.setattr(models, "of_config", of_config)
    for seed in range(3):
        run(tmp_path / f"a-{seed}", seed, 0.9)
    (one,) = paired.read([tmp_path / "a-*"])
    assert sorted(one.accuracies) == [0, 1, 2]


def test_runs_whose_cards_are_older_than_a_setting_are_of_the_same_recipe(tmp_path):
    for seed in (0, 1, 2):
        run(tmp_path / f"a-{seed}", seed, 0.99, **({"ema": None} if seed else {}))
        run(tmp_path / f"b-{seed}", seed, 0.98, 1)
    (one,) = paired.compare([f"{tmp_path}/a-*", f"{tmp_path}/b-*"])
    assert one.accuracy.n == 3 and one.accuracy.difference.value == pytest.approx(1)


@pytest.mark.parametrize(
    ("other", "part"),
    [
        (Recipe("b", IMAGES, {0: 0.9, 1: 0.9}), "too few pairs: 2"),
        (Recipe("b", IMAGES, {3: 0.9, 4: 0.9}), "too few pairs: 0"),
        (Recipe("b", ("mnist", "{}", 500), {0: 0.9, 1: 0.9, 2: 0.9}), "different test sets"),
    ],
)
def test_runs_that_do_not_form_pairs_are_refused(other, part):
    with pytest.raises(ValueError, match=part):
        paired.pair(Recipe("a", IMAGES, {0: 0.9, 1: 0.9, 2: 0.9}), other)


def test_an_impossible_pairing_is_refused_in_one_line(tmp_path):
    good = recipe(tmp_path, "good", {0: 0.995, 1: 0.994, 2: 0.996})
    few = recipe(tmp_path, "few", {0: 0.995, 9: 0.995})
    for seed in range(3):
        run(tmp_path / f"mixed-{seed}", seed, 0.99, 1 + seed // 2)
    for words, part in (
        ([good], "at least 2 recipes"),
        ([good, few], "too few pairs"),
        ([good, tmp_path / "mixed-*"], "mixed-0': iterations 2, not 1"),
        ([good, tmp_path / "none-*"], "matches no training run"),
        ([good, tmp_path / "mixed-0"], "one pattern, in quotes"),
        ([good, few, "--output", tmp_path / "x"], "prints no table"),
    ):
        command_line.refused(compare(*words), part)
    command_line.refused(command_line.run("compare", good, "--margin", "0.1"), "--paired")
