"""A whole run: what is stored is what was measured, and a finished run is not measured again."""

import json
from dataclasses import replace

import pytest
import torch

from capsviz import checkpoint, data, pipeline
from capsviz.evaluate import evaluate
from capsviz.recipe import Recipe

RECIPE = Recipe(
    dataset="digits",
    options={"channels": 8, "types": 2, "hidden": [8, 9]},
    epochs=2,
    limit=256,
    learning_rate=5e-3,
    precision="fp32",
)


@pytest.fixture(scope="module")
def splits():
    return {split: data.load("digits", split) for split in data.SPLITS}


@pytest.fixture(scope="module")
def done(splits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, *pipeline.run("x", RECIPE, splits, folder, device=torch.device("cpu"))


def test_the_card_holds_what_the_stored_weights_do(done, splits):
    folder, path, card = done
    assert path == folder / "x.safetensors"
    again = json.loads(json.dumps(evaluate(checkpoint.load(path), splits["test"])._asdict()))
    assert card["results"]["test"] == again
    assert card["training"]["images"] == 256 and len(card["training"]["commits"]) == 1


def test_weights_are_stored_in_half_unless_that_costs_validation_accuracy(
    done, splits, tmp_path, monkeypatch
):
    assert done[2]["weights"]["stored_as"] == "float16"
    measured = []

    def worse(model, part):
        found = evaluate(model, part)
        measured.append(found)
        return found._replace(accuracy=found.accuracy - 0.1 * len(measured))

    monkeypatch.setattr(pipeline, "evaluate", worse)
    recipe = replace(RECIPE, epochs=1)
    _, card = pipeline.run("x", recipe, splits, tmp_path, device=torch.device("cpu"))
    assert card["weights"]["stored_as"] == "float32"


def test_a_finished_run_does_not_read_the_test_set_again(done, splits, monkeypatch):
    def forbidden(*_, **__):
        raise AssertionError("evaluated again")

    monkeypatch.setattr(pipeline, "evaluate", forbidden)
    folder, path, card = done
    again = pipeline.run("x", RECIPE, splits, folder, device=torch.device("cpu"), resume=True)
    assert again == (path, card)


def test_the_recipe_beside_the_weights_makes_them_again(done, splits, tmp_path):
    folder, path, _ = done
    name, recipe = pipeline.prepare(str(folder / "x.toml"), {})
    again, _ = pipeline.run(name, recipe, splits, tmp_path, device=torch.device("cpu"))
    assert checkpoint.sha256(again) == checkpoint.sha256(path)
