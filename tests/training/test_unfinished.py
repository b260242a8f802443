"""A run that has not ended can be looked into: its folder is a checkpoint."""

from dataclasses import replace

import pytest
import torch
from click.testing import CliRunner

from capsviz import checkpoint
from capsviz.checkpoint.unfinished import STATE
from capsviz.cli import main
from capsviz.training import run as pipeline
from capsviz.training.evaluate import evaluate
from capsviz.training.history import read_history
from capsviz.training.recipe import Recipe

RECIPE = Recipe(
    dataset="digits",
    options={"channels": 8, "types": 2, "hidden": [8, 9]},
    epochs=4,
    limit=256,
    learning_rate=5e-3,
    precision="fp32",
)


def cut(recipe, splits, folder, after=3):
    """A run that is stopped after some epochs."""

    def report(line):
        if line.startswith(f"epoch {after}/"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pipeline.run("x", recipe, splits, folder, device=torch.device("cpu"), report=report)
    return folder


@pytest.mark.parametrize("kept", [{"keep": "best"}, {"keep": "last"}, {"keep": "last", "ema": 0.9}])
def test_the_weights_are_those_that_the_run_would_end_with(kept, splits, tmp_path):
    folder = cut(replace(RECIPE, **kept), splits, tmp_path / "run")
    model = checkpoint.load(folder)
    epoch = model.card["training"]["epoch"]
    assert model.card["training"] == {"epoch": epoch, "epochs": 3, "unfinished": True}
    assert model.card["name"] == f"x-epoch-{epoch}"
    record = read_history(folder)[epoch - 1]
    assert evaluate(model, splits["validation"]).accuracy == record.validation_accuracy
    if kept["keep"] == "last":
        assert epoch == 3


def test_commands_take_the_folder_of_a_run_before_its_end(blank, splits, tmp_path):
    folder = cut(RECIPE, splits, tmp_path / "run", after=1)
    said = CliRunner().invoke(main, ["evaluate", "--checkpoint", str(folder), "--limit", "20"])
    assert said.exit_code == 0 and said.stdout.startswith("x-epoch-1 on 20 images of digits test")
    words = ["routing", "--checkpoint", str(folder), "--format", "png", "--output", str(tmp_path)]
    assert CliRunner().invoke(main, words).exit_code == 0
    write = ["evaluate", "--checkpoint", str(folder), "--split", "validation", "--write-thresholds"]
    refused = CliRunner().invoke(main, write)
    assert refused.exit_code == 2 and "its card is written when it ends" in refused.stderr


def test_at_the_end_the_folder_is_the_finished_network(splits, tmp_path):
    folder = cut(RECIPE, splits, tmp_path / "run", after=3)
    pipeline.run("x", RECIPE, splits, folder, device=torch.device("cpu"), resume=True)
    assert checkpoint.find(folder) == folder / "x.safetensors"
    assert "unfinished" not in checkpoint.load(folder).card["training"]


def test_a_state_of_an_older_version_is_refused_in_words(splits, tmp_path):
    folder = cut(RECIPE, splits, tmp_path / "run", after=1)
    tensors, about = checkpoint.read_tensors(folder / STATE)
    del about["card"]
    checkpoint.write_tensors(folder / STATE, tensors, about)
    with pytest.raises(ValueError, match=r"older version.*--resume"):
        checkpoint.load(folder)
