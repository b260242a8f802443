"""--json is strict JSON for every command, by discovery: a number that is none is null."""

from __future__ import annotations

import csv
import io
import json
import math

import click
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from capsviz import checks, data, discovery, results
from capsviz.checks.report import Report
from capsviz.checks.verdict import Verdict
from capsviz.cli import PACKAGES, main, writing
from capsviz.experiments import reproduce
from capsviz.nn import describe
from capsviz.pictures import prediction
from capsviz.results.files import to_json
from capsviz.statistics.estimate import Estimate
from capsviz.training import evaluate

NAMES = {name: package for package in PACKAGES for name in discovery.names(package)}
COMMANDS = {
    name
    for name, package in NAMES.items()
    for option in main.get_command(click.Context(main), name.replace("_", "-")).params
    if option.name == "as_json"
}
ANALYSES = sorted(name for name in COMMANDS if NAMES[name] == "capsviz.analyses")
SHIPPED = sorted((discovery.root() / "figures").glob("*.json"))


def strict(text: str):
    """What a strict reader takes it for."""

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def poisoned(value):
    """The same with NaN, or an infinity, for every float in it."""
    if isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.floating):
        return np.full_like(value, np.nan)
    if isinstance(value, Estimate):
        return Estimate(poisoned(np.array(value.value, float)), poisoned(value.ci95), value.n)
    if isinstance(value, dict):
        return {name: poisoned(one) for name, one in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_replace"):
        return [poisoned(one) for one in value]
    return -math.inf if isinstance(value, float) else value


@pytest.mark.parametrize(
    "value",
    [
        math.nan, -math.inf, np.float32("nan"), np.array([1.0, np.nan]), torch.tensor([math.nan]),
        {"a": [math.nan]}, (math.inf, {"b": Estimate(np.nan, [np.nan, 1.0])}),
    ],
)  # fmt: skip
def test_what_is_no_number_is_null_wherever_it_stands(value):
    assert "null" in to_json(value) and "NaN" not in to_json(value)
    strict(to_json(value))


@pytest.mark.parametrize("name", ANALYSES)
def test_a_result_of_nothing_but_nan_is_strict_json(name, capsys):
    stem = name.replace("_", "-")
    paths = [path for path in SHIPPED if path.name.startswith(f"{stem}-")]
    if not paths:
        pytest.skip(f"no result of {name} is shipped")
    result = results.read_result(min(paths, key=lambda path: path.stat().st_size))[0]
    result = type(result)(*map(poisoned, result))
    writing.report(result, "", [], True)
    values = strict(capsys.readouterr().out)
    assert set(values) == set(type(result)._fields)


def of_nan(kind, **values):
    """A result of a NamedTuple's kind with NaN in its other fields."""
    return kind(**{name: values.get(name, math.nan) for name in kind._fields})


def test_the_other_commands_print_strict_json_too(monkeypatch, tmp_path):
    """Each with a result of NaN; a new command with --json is to be added here."""
    monkeypatch.chdir(tmp_path)
    digits = ["--checkpoint", "digits", "--json"]
    evaluation = of_nan(evaluate.Evaluation, n=3, per_class={"0": math.nan}, confusion=[[3]])
    monkeypatch.setattr(evaluate, "evaluate", lambda *args, **values: evaluation)
    description = of_nan(describe.Description, layers=[])
    monkeypatch.setattr(describe, "describe", lambda *args, **values: description)
    verdict = Verdict("wrong_margin_loss", "x", "PASS", "x", {"number": math.nan}, "4", "x", "x")
    report = Report("x", (verdict,))
    monkeypatch.setattr(checks, "run", lambda *args, **values: report)
    cells = (["x"], [[math.nan]], "caption", {"x": math.inf})
    monkeypatch.setattr(reproduce, "gather", lambda *args, **values: cells)
    lines = {
        "evaluate": ["evaluate", *digits, "--n", "3"],
        "describe": ["describe", *digits],
        "check": ["check", *digits],
        "compare": ["compare", "digits", "--json"],
        "data": ["data", "digits", "--json"],
        "reproduce": ["reproduce", "paper", "--show", "--json"],
    }
    assert set(lines) == COMMANDS - set(ANALYSES)
    for name, words in lines.items():
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, (name, done.output)
        assert "null" in done.stdout or name in ("compare", "data"), "made of files alone"
        strict(done.stdout)


def test_predictions_are_strict_json(tmp_path, monkeypatch):
    image = data.load("digits", "test").images[0, 0].numpy()
    Image.fromarray(image).save(tmp_path / "x.png")
    reading = prediction.Reading(
        tmp_path / "x.png", prediction.Prediction(["1"], [math.nan], math.inf, None),
        {"picture": np.zeros((2, 2))},
    )  # fmt: skip
    monkeypatch.setattr(prediction, "of_files", lambda *args, **values: [reading])
    words = ["predict", str(tmp_path / "x.png"), "--checkpoint", "digits", "--json"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    (record,) = strict(done.stdout)
    assert record["lengths"] == [None] and record["reconstruction_sse"] is None


def test_numbers_of_a_folder_are_one_table():
    def run(path):
        words = ["redraw", str(path), "--table", "csv"]
        return list(csv.reader(io.StringIO(CliRunner().invoke(main, words).stdout)))

    root = discovery.root() / "figures/binding"
    files = sorted(root.glob("*.json"))
    whole, each = run(root), [run(path) for path in files]
    assert whole[0] == ["file", *each[0][0]]
    rows = [[path.stem, *row] for path, one in zip(files, each, strict=True) for row in one[1:]]
    assert whole[1:] == rows and len(rows) > 100
