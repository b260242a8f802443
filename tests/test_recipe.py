"""Recipes: files, flags, and what is refused."""

from itertools import pairwise

import pytest
import torch

from capsviz import checkpoint, pipeline
from capsviz.discovery import folder
from capsviz.recipe import (
    FLOOR,
    Recipe,
    learning_rate,
    read_option,
    read_recipe,
    resolve_precision,
    to_toml,
)


def test_a_recipe_survives_toml(tmp_path):
    recipe = Recipe(epochs=3, limit=7, options={"hidden": [4, 5], "preset": "authors"})
    path = tmp_path / "x.toml"
    path.write_text(to_toml(recipe))
    assert read_recipe(path) == recipe


@pytest.mark.parametrize("name", checkpoint.shipped())
def test_every_shipped_weight_file_has_its_recipe(name):
    recipe = read_recipe(folder("trained") / f"{name}.toml")
    assert checkpoint.load(name).card["recipe"]["dataset"] == recipe.dataset


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epohcs = 3", "unknown recipe field 'epohcs'.*did you mean 'epochs'"),
        ("epochs = 0", "epochs must be at least 1, got 0"),
        ("epochs = 'three'", "x.toml"),
        ("learning_rate = -1", "learning_rate must be in"),
        ("schedule = 'steps'", "unknown schedule 'steps'"),
        ("epochs = ", "not a TOML file"),
        ("epochs = 2.5", "epochs must be int, got 2.5"),
        ("seed = true", "seed must be int, got True"),
    ],
)
def test_a_wrong_recipe_says_what_is_wrong(tmp_path, text, message):
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_recipe(path)


def test_flags_lie_over_the_recipe_and_the_rest_goes_to_the_network():
    flags = {"epochs": 2, "preset": "authors", "types": None, "reconstruction": False}
    name, recipe = pipeline.prepare("digits", flags)
    assert name == "digits" and recipe.epochs == 2 and recipe.batch_size == 64
    assert recipe.options["preset"] == "authors" and recipe.options["types"] == 8
    assert recipe.options["reconstruction_weight"] == 0


def test_an_unknown_recipe_names_the_shipped_ones():
    with pytest.raises(ValueError, match=r"unknown recipe 'nmist'.*digits"):
        pipeline.prepare("nmist", {})


def test_the_authors_decay_is_096_every_2000_steps():
    recipe = Recipe(epochs=50)
    steps_per_epoch = 55_000 / 128
    assert learning_rate(recipe, 2_000 / steps_per_epoch) == pytest.approx(0.96e-3, rel=1e-3)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_schedules_start_full_end_at_the_floor_and_never_rise(schedule):
    recipe = Recipe(epochs=10, schedule=schedule)
    rates = [learning_rate(recipe, t / 10) for t in range(101)]
    assert rates[0] == 1e-3 and rates[-1] == FLOOR
    assert all(a >= b for a, b in pairwise(rates))


def test_precision_auto_is_decided_by_the_processor():
    cpu = torch.device("cpu")
    assert resolve_precision("fp32", cpu) == "fp32"
    assert resolve_precision("auto", cpu) in ("fp32", "bf16")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kernel=9", ("kernel", 9)),
        ("padding=valid", ("padding", "valid")),
        ("channels = [128, 256]", ("channels", [128, 256])),
        ("dropout=0.25", ("dropout", 0.25)),
        ("routing_bias=true", ("routing_bias", True)),
    ],
)
def test_an_option_is_read_as_in_a_recipe(text, expected):
    assert read_option(text) == expected


@pytest.mark.parametrize("text", ["kernel", "=9", "kernel=", "9=kernel"])
def test_what_is_no_option_is_refused(text):
    with pytest.raises(ValueError, match="expected NAME=VALUE"):
        read_option(text)


def test_padding_reaches_the_data():
    assert Recipe(pad_px=6).data_options == {"pad_px": 6} and Recipe().data_options == {}
    with pytest.raises(ValueError, match="pad_px must be at least 0, got -1"):
        Recipe(pad_px=-1)
