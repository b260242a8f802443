"""A run that has not ended can be looked into: its folder is a checkpoint."""

import json
import re
import shutil
from dataclasses import replace

import pytest
import torch
from helpers import command_line
from helpers.training_runs import RECIPE

from capsviz import checkpoint
from capsviz.checkpoint import STATE
from capsviz.inputs import runs
from capsviz.training import run as pipeline
from capsviz.training.evaluate import evaluate
from capsviz.training.history import read_history

RECIPE = replace(RECIPE, epochs=4, limit=64)


def cut(recipe, splits, folder, after=3, **how):
    """A run that is stopped after some epochs."""

    def report(line):
        if line.startswith(f"epoch {after}/"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pipeline.run("x", recipe, splits, folder, device=torch.device("cpu"), report=report, **how)
    return folder


@pytest.mark.parametrize("kept", [{"keep": "best"}, {"keep": "last"}, {"keep": "last", "ema": 0.9}])
def test_the_weights_are_those_that_the_run_would_end_with(kept, splits, tmp_path):
    folder = cut(replace(RECIPE, **kept), splits, tmp_path / "run")
    model = checkpoint.load(folder)
    epoch = model.card["training"]["epoch"]
    assert model.card["training"] == {"epoch": epoch, "epochs": 3, "unfinished": True}
    assert model.card["name"] == f"x-epoch-{epoch}"
    assert re.fullmatch("[0-9a-f]{64}", model.card["weights"]["sha256"])
    record = read_history(folder)[epoch - 1]
    assert evaluate(model, splits["validation"]).accuracy == record.validation_accuracy
    if kept["keep"] == "last":
        assert epoch == 3


def test_commands_take_the_folder_of_a_run_before_its_end(blank, splits, tmp_path):
    folder = cut(RECIPE, splits, tmp_path / "run", after=1)
    said = command_line.run("evaluate", "--checkpoint", folder, "--n", "20")
    assert said.exit_code == 0 and "run (epoch 1, unfinished) on 20 images" in said.stdout
    assert "the training run is unfinished" in said.stderr
    words = ["routing", "--checkpoint", str(folder), "--format", "png", "--output", str(tmp_path)]
    assert command_line.run(*words).exit_code == 0
    words = ["export", "--checkpoint", str(folder), "--to", "folder", "--output"]
    done = command_line.run(*words, tmp_path / "hub")
    assert done.exit_code == 2 and "is unfinished: end it by" in done.stderr
    assert not (tmp_path / "hub").exists()


def test_at_the_end_the_folder_is_the_finished_network(splits, tmp_path):
    folder = cut(RECIPE, splits, tmp_path / "run", after=3)
    pipeline.run("x", RECIPE, splits, folder, device=torch.device("cpu"), resume=True)
    assert checkpoint.find(folder) == folder / "x.safetensors"
    assert "unfinished" not in checkpoint.load(folder).card["training"]


def test_a_run_that_goes_on_after_its_end_is_opened_as_unfinished(splits, tmp_path):
    recipe = replace(RECIPE, epochs=1, schedule="constant")
    folder = tmp_path / "run"
    pipeline.run("x", recipe, splits, folder, device=torch.device("cpu"))
    assert checkpoint.find(folder) == folder / "x.safetensors"
    longer = replace(recipe, epochs=4)
    cut(longer, splits, folder, after=3, resume=True)
    assert checkpoint.load(folder).card["training"]["epochs"] == 3
    said = command_line.run("evaluate", "--checkpoint", folder, "--n", "20")
    assert said.exit_code == 0 and "the training run is unfinished" in said.stderr
    with pytest.raises(ValueError, match="is not finished"):
        runs.named([], [str(folder)])
    pipeline.run("x", longer, splits, folder, device=torch.device("cpu"), resume=True)
    assert checkpoint.load(folder).card["training"]["epochs"] == 4


@pytest.mark.parametrize("other", [False, True], ids=["missing", "of another run"])
def test_best_weights_that_are_not_those_of_the_run_are_refused(splits, tmp_path, other):
    folder = cut(RECIPE, splits, tmp_path / "run", after=1)
    best = folder / "best-1.safetensors"
    if other:
        cut(replace(RECIPE, seed=1), splits, tmp_path / "other", after=1)
        shutil.copy(tmp_path / "other" / best.name, best)
    else:
        best.unlink()
    said = "best-1.safetensors is missing or of another run: put back .* another folder"
    with pytest.raises(ValueError, match=said):
        pipeline.run("x", RECIPE, splits, folder, device=torch.device("cpu"), resume=True)
    with pytest.raises(ValueError, match=said):
        checkpoint.load(folder)


def test_a_state_without_a_card_is_refused(splits, tmp_path):
    folder = cut(RECIPE, splits, tmp_path / "run", after=1)
    tensors, about = checkpoint.read_tensors(folder / STATE)
    del about["card"]
    checkpoint.write_tensors(folder / STATE, tensors, about)
    with pytest.raises(ValueError, match="a run without a card"):
        checkpoint.load(folder)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda run: run["history"][0].update(colour=1), "begun by another version of capsviz"),
        (lambda run: run.pop("recipe"), "is not the state of a run"),
        (lambda run: run["recipe"].update(colour=1), r"another recipe \(it differs in colour\)"),
    ],
)
def test_a_state_of_another_version_is_refused_in_words(splits, tmp_path, change, match):
    folder = cut(RECIPE, splits, tmp_path / "run", after=1)
    tensors, about = checkpoint.read_tensors(folder / STATE)
    run = json.loads(about["run"])
    change(run)
    checkpoint.write_tensors(folder / STATE, tensors, {**about, "run": json.dumps(run)})
    with pytest.raises(ValueError, match=match):
        pipeline.run("x", RECIPE, splits, folder, device=torch.device("cpu"), resume=True)


@pytest.mark.parametrize("end", [1, 4], ids=["begun", "ended"])
def test_a_run_does_not_go_on_with_other_images(splits, tmp_path, end):
    folder = tmp_path / "run"
    if end == 1:
        cut(RECIPE, splits, folder, after=1)
    else:
        pipeline.run("x", RECIPE, splits, folder, device=torch.device("cpu"))
    resumed = {"device": torch.device("cpu"), "resume": True}
    others = {**splits, "test": splits["test"].take(slice(1, None))}
    with pytest.raises(ValueError, match=r"on other images \(test\)"):
        pipeline.run("x", RECIPE, others, folder, **resumed)
    pipeline.run("x", RECIPE, splits, folder, **resumed)


def test_of_images_that_a_card_does_not_tell_of_commands_say_so(splits, tmp_path):
    recipe = replace(RECIPE, epochs=1)
    path, card = pipeline.run("x", recipe, splits, tmp_path / "run", device=torch.device("cpu"))
    words = ["evaluate", "--checkpoint", str(path), "--n", "20"]
    assert "trained on" not in command_line.run(*words).stderr
    images = card["dataset"]["images"] | {"test": "0" * 64}
    card["dataset"]["images"] = images
    path.with_suffix(".json").write_text(json.dumps(card))
    said = command_line.run(*words)
    assert said.exit_code == 0 and "these test images of digits are not those" in said.stderr


@pytest.mark.parametrize("name", ["state", "best-3", "x.primary"])
def test_names_of_a_runs_own_files_are_refused_before_anything_is_written(splits, tmp_path, name):
    with pytest.raises(ValueError, match=f"weights cannot be called '{name}'"):
        pipeline.run(name, RECIPE, splits, tmp_path / "run", device=torch.device("cpu"))
    assert not (tmp_path / "run").exists()
