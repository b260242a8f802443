"""The command line: help, results, errors, and commands without downloaded data."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from unittest.mock import Mock

import click
import pytest
from helpers import command_line
from helpers.command_line import fine, refused
from helpers.plain_capsnet import Foreign
from PIL import Image

from capsviz import checkpoint, discovery
from capsviz.cli import PACKAGES, main, options
from capsviz.inputs.opening import Inputs

DIGITS = ["--checkpoint", "digits"]
COMMANDS = {name: package for package in PACKAGES for name in discovery.names(package)}


@pytest.fixture
def run(bare, monkeypatch):
    """Run commands in an empty folder, without network."""
    monkeypatch.setattr("urllib.request.urlopen", Mock(side_effect=OSError("no network")))
    return bare


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_a_line_that_fits(run, name):
    """Its examples are valid, and each has its time."""
    line = discovery.summary(COMMANDS[name], name)
    assert 10 < len(line) <= 88 and line.endswith((".", "?"))
    result = run(name.replace("_", "-"), "--help")
    assert result.exit_code == 0 and line in " ".join(result.stdout.split())
    shown = result.stdout.partition("Examples, with their time on two CPU cores:\n")[2].splitlines()
    examples = [line for line in shown if line.strip()]
    assert examples
    for line in examples:
        example, time = re.fullmatch(r"\s+(capsviz .+?)\s{2,}(.+)", line).groups()
        assert re.search(r"\d+ (s|min)\b|hour", time), line
        _, called, *words = shlex.split(example)
        assert called.replace("-", "_") == name, line
        main.get_command(None, name).make_context(called, words)  # no usage error


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_draws_figures_has_options_for_venue_rc_font_and_force(name):
    known = {text for one in main.get_command(None, name).params for text in one.opts}
    assert ("--venue" in known) == ("--width" in known)
    assert "--venue" in known or COMMANDS[name] != "capsviz.analyses"
    assert "--venue" not in known or {"--rc", "--font", "--force"} <= known


def test_evaluate_prints_the_promised_json(run):
    result = run("evaluate", *DIGITS, "--n", 60, "--json")
    found = json.loads(result.stdout)
    promised = "checkpoint dataset split n accuracy accuracy_ci95 error_percent per_class confusion"
    assert set(f"{promised} margin_loss reconstruction_sse".split()) <= set(found)
    assert (found["checkpoint"], found["dataset"], found["n"]) == ("digits", "digits", 60)
    assert found["accuracy"] > 0.95


def test_rotate_writes_gif_figures_and_numbers_of_a_users_picture(blank, run, tmp_path):
    image = Image.new("RGBA", (300, 200), (255, 255, 255, 0))
    image.paste((0, 0, 0, 255), (140, 20, 160, 180))
    image.save(tmp_path / "one.png")
    words = ["--image", "one.png", "--step", 45, "--size", 300, "--format", "png"]
    result = fine(run("rotate", *DIGITS, *words, "--output", "out"))
    assert result.stdout.startswith("Predicted as ")
    path = tmp_path / "out" / "rotate-digits-one-step-45.gif"
    assert {one.name for one in path.parent.iterdir()} == {
        path.with_suffix(f".{kind}").name for kind in ("gif", "json", "png")
    }
    with Image.open(path) as gif:
        assert gif.size[0] == 300 and gif.n_frames == 8
    assert json.loads(path.with_suffix(".json").read_text())["result"]["label"] is None


def test_classes_with_other_names_are_reported_in_one_line(run, tmp_path):
    for path in discovery.folder("capsviz.trained").glob("digits.[js]*"):
        shutil.copy(path, tmp_path)
    card = json.loads((tmp_path / "digits.json").read_text())
    card["dataset"] = {"name": "letters", "classes": list("ABCDEFGHIJ")}
    (tmp_path / "digits.json").write_text(json.dumps(card))
    words = ["evaluate", "--checkpoint", tmp_path / "digits.safetensors", "--dataset", "digits"]
    line, _ = run(*words, "--n", 9).stderr.splitlines()  # and the summary
    assert "trained on classes A, B, C, ..., but the classes of digits are 0, 1, 2, ..." in line
    notice = run("evaluate", *DIGITS, "--dataset", "digits", "--n", 9).stderr
    assert notice.startswith("digits test: 9 images (1, 28, 28) of 10 classes (0 0, 1 1, 2 0, ")
    assert len(notice.splitlines()) == 1


def test_train_writes_weights_card_recipe_csv_and_events(run, tmp_path):
    small = ["--types", 2, "--channels", 8, "--limit", 128, "--epochs", 2, "--output", "out"]
    small += ["--decoder", "deconvolution", "--decoder-norm", "--reconstruction-metric", "l1"]
    result = fine(run("train", "--dataset", "digits", *small))
    assert "test accuracy" in result.stdout and "epoch 2/2" in result.stderr
    settings = checkpoint.load(tmp_path / "out").settings
    assert (settings.decoder, settings.decoder_norm) == ("deconvolution", True)
    assert settings.reconstruction_metric == "l1"
    names = {p.name for p in (tmp_path / "out").iterdir()}
    assert {f"digits.{k}" for k in ("safetensors", "json", "toml")} | {"epochs.csv"} <= names
    card = checkpoint.load(tmp_path / "out").card
    assert card["training"]["images"] == 128 and card["results"]["test"]["n"] == 360
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "out" / "tensorboard"))
    events.Reload()
    assert [e.step for e in events.Scalars("validation_accuracy")] == [1, 2]
    assert events.Images("input_and_reconstruction")
    refused(run("train", "--dataset", "digits", *small), "--resume", status=(1, 2))
    resumed = run("train", "--dataset", "digits", *small, "--resume")
    assert resumed.exit_code == 0 and "no earlier run" not in resumed.stderr
    elsewhere = [*small, "--epochs", 1, "--output", "elsewhere", "--resume"]
    anew = run("train", "--dataset", "digits", *elsewhere)
    assert anew.exit_code == 0 and "no earlier run in elsewhere" in anew.stderr


def test_a_closed_pipe_is_no_error():
    words = [sys.executable, "-m", "capsviz", "--help"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.close()
        assert running.stderr.read() == b""


def test_a_class_is_named_by_name_or_number_and_the_name_counts_first(capsys):
    class Chosen:
        name, classes = "mine", ("1", "2", "ring", "11")

    command = click.Command("x", params=options.example(lambda: None).__click_params__)

    def chosen(*words):
        with command.make_context("x", list(words)) as context:
            return options.chosen_class(Chosen, context.params["digit"])

    assert [chosen("--digit", word) for word in ("2", "ring", "11", "3", "0")] == [1, 2, 3, 3, 0]
    assert (
        "class 2 (index 1)\nclass ring (index 2)\nclass 11 (index 3)\n" in capsys.readouterr().err
    )
    assert chosen() == 2
    for word in ("rin", "4", "-1", "011"):
        with pytest.raises(ValueError, match=r"no class .*, expected 0 to 3, or 1, 2, ring, 11"):
            chosen("--digit", word)


def test_only_the_worst_of_many_classes_are_printed():
    from capsviz.commands.evaluate import _table

    names = [f"class {k}" for k in range(200)]
    confusion = [[0] * 200 for _ in names]
    for k, row in enumerate(confusion):
        row[k], row[(k + 1) % 200] = (3, 1) if k in (7, 30) else (4, 0)
    about = {
        "checkpoint": "x", "dataset": "y", "split": "test", "n": 800, "accuracy": 0.9975,
        "accuracy_ci95": (0.99, 1.0), "error_percent": 0.25, "margin_loss": 0.1,
        "reconstruction_sse": None, "confusion": confusion,
        "balanced_accuracy": 0.9975, "largest_share": 0.005, "warnings": [],
        "per_class": {name: 0.75 if k in (7, 30) else 1.0 for k, name in enumerate(names)},
    }  # fmt: skip
    lines = _table(about, names, 1).splitlines()
    assert len(lines) < 30 and max(map(len, lines)) <= 100
    assert "20 of 200 classes with the lowest recall" in lines[7]
    assert lines[8].split() == ["class", "7", "75.00%", "of", "4", "class", "8", "1"]
    assert lines[9].split() == ["class", "30", "75.00%", "of", "4", "class", "31", "1"]


def test_a_run_in_which_nothing_was_learned_is_reported_with_the_likely_causes(run):
    small = ["--types", 2, "--channels", 8, "--limit", 64, "--epochs", 1, "--output", "out"]
    trained = fine(run("train", "--dataset", "digits", *small, "--learning-rate", "1e-9"))
    assert "\nbalanced accuracy " in trained.stdout and "the largest class is 10." in trained.stdout
    assert "the margin loss is " in trained.stderr and "reach 0.524: check, in " in trained.stderr
    evaluated = run("evaluate", "--checkpoint", "out")
    assert "\n  balanced     " in evaluated.stdout
    warnings, again = (
        [line for line in done.stderr.splitlines() if line.startswith("WARN")]
        for done in (trained, evaluated)
    )
    assert warnings and warnings == again


@pytest.fixture
def odd(embedded, monkeypatch, blank):
    """Use the embedded digits with the classes even and odd, and a network for them."""
    part = embedded("test")
    part = replace(part, labels=part.labels % 2, classes=("even", "odd"), name="parity")
    inputs = Inputs(Foreign(classes=2).eval(), part, None)
    monkeypatch.setattr(options, "open_inputs", lambda chosen, **how: inputs)
    monkeypatch.setattr(options, "open_networks", lambda chosen, **how: [inputs])
    return inputs


FEW = {
    "rotate": ("--step", 90, "--size", 200),
    "perturb": ("--n", 2),
    "figures": ("--only", "rotate", "--n", 2),
}


@pytest.mark.parametrize("name", FEW)
def test_the_last_of_two_classes_is_shown_by_default(odd, name, tmp_path):
    words = [name, *FEW[name], "--format", "svg", "--output", tmp_path]
    fine(command_line.run(*words))
    assert list(tmp_path.glob("*-parity-1-*.json"))


@pytest.mark.parametrize("name", [*FEW, "report"])
def test_an_unknown_class_is_refused_with_its_option(odd, name, tmp_path):
    words = [name, "--digit", "2", "--n", "2"] if name != "rotate" else [name, "--digit", "2"]
    done = command_line.run(*words, "--output", tmp_path / "out")
    assert done.exit_code == 2
    assert "--digit: parity has no class 2, expected 0 to 1, or even, odd\n" in done.stderr
