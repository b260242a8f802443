"""Published tables: their runs, interrupted series, rows; and the commands of findings."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import command_line

from capsviz import checkpoint, discovery
from capsviz.commands import reproduce as command
from capsviz.experiments import reproduce, reproduced, reproductions
from capsviz.inputs import runs as replicates
from capsviz.nn import models
from capsviz.statistics.intervals import wilson
from capsviz.training import run as pipeline
from capsviz.training.recipe import Recipe, differing

SHAPES = {"cifar10": ((3, 32, 32), 10), "svhn": ((3, 32, 32), 10), "smallnorb": ((2, 48, 48), 5)}
TINY = {"channels": 8, "types": 2, "hidden": [16, 16]}
PLAN = {"epochs": 1, "limit": 40, "precision": "fp32"}
PAGE = discovery.root() / "docs/findings.md"
SERIES = sorted(path.parent.name for path in discovery.folder(reproduced.SEEDS).glob("*/runs.json"))


def run(*words):
    return command_line.run("reproduce", *words)


def cells():
    whole = Recipe(dataset="digits", options=TINY)
    plain = Recipe(dataset="digits", options={**TINY, "reconstruction_weight": 0.0})
    return [
        reproductions.Cell("with", ("yes",), whole, "0.25"),
        reproductions.Cell("without", ("no",), plain),
    ]


@pytest.fixture
def table(monkeypatch):
    made = SimpleNamespace(
        labels=("Decoder",), cells=cells, caption="A table.\n\nMore.", epochs=50, apart=False
    )
    monkeypatch.setattr(reproduce, "get", lambda name: made)
    return made


def card(error, *, n=1000, sse=5.0, **more):
    """Return the part of a run's card that tables read."""
    test = {
        "n": n,
        "error_percent": error,
        "accuracy_ci95": wilson(n - round(error * n / 100), n),
        "margin_loss": 0.01,
        "reconstruction_sse": sse,
    }
    return {
        "dataset": {"name": "digits"},
        "recipe": {"epochs": 2, "batch_size": 128, "schedule": "linear", **more},
        "weights": {"parameters": 1234},
        "training": {
            "hardware": "a machine",
            "precision": "bf16",
            "epoch": more.get("epochs", 2),
            "images": 55_000,
        },
        "results": {"test": test},
    }


def write(folder, name, seed, results):
    """Write a card as the result of the row with that name."""
    (whole,) = (asdict(cell.recipe) for cell in cells() if cell.run == name)
    results = {**results, "recipe": {**whole, **results["recipe"], "seed": seed}}
    path = reproduce.result_path(
        folder, name, Recipe(epochs=results["recipe"]["epochs"], seed=seed)
    )
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(results))
    return path


@pytest.mark.parametrize("name", reproductions.available())
def test_every_run_of_a_table_can_be_built(name):
    module = reproductions.get(name)
    for cell in module.cells():
        assert len(cell.labels) == len(module.labels)
        shape, classes = SHAPES.get(cell.recipe.dataset, ((1, 28, 28), 10))
        crop = cell.recipe.crop_px
        assert crop is None or crop < shape[1]
        shape = shape if crop is None else (shape[0], crop, crop)
        with torch.device("meta"):
            model = models.build(cell.recipe.model, shape, classes, **cell.recipe.options)
        assert sum(p.numel() for p in model.parameters()) > 1e5


def test_runs_of_one_name_are_one_run_in_all_tables():
    named = {}
    for name in reproductions.available():
        for cell in reproductions.get(name).cells():
            assert named.setdefault(cell.run, cell.recipe) == cell.recipe
    assert len({str(recipe) for recipe in named.values()}) == len(named)


def test_a_series_trains_missing_runs_and_none_twice(table, tmp_path):
    plan = reproduce.Plan(tmp_path, **PLAN)
    reproduce.run("any", 1, plan)
    first = {path: path.stat().st_mtime_ns for path in tmp_path.glob("1-epochs/*.json")}
    assert {path.name for path in first} == {"with-0.json", "without-0.json"}
    (tmp_path / "1-epochs/without-0.json").unlink()
    lines = []
    reproduce.run("any", 2, plan, report=lines.append)
    made = [line.partition(":")[0] for line in lines if "test error" in line]
    assert made == ["without-0", "with-1", "without-1"]
    kept = tmp_path / "1-epochs/with-0.json"
    assert kept.stat().st_mtime_ns == first[kept]
    header, rows, caption, _ = reproduce.gather("any", tmp_path)
    assert header == ["Decoder", *reproduce.MEASURES]
    assert [(row[0], row[2], row[3]) for row in rows] == [("yes", "1", "2"), ("no", "1", "2")]
    assert rows[0][6] != "–" and rows[1][6] == "–" and rows[0][7] == "0.25"
    assert "1 epoch of 40 training images" in caption


def test_a_result_must_have_the_length_and_seed_of_its_path(table, tmp_path):
    reproduce.run("any", 1, reproduce.Plan(tmp_path, **PLAN))
    kept = tmp_path / "1-epochs/with-0.json"
    for other in ("1-epochs/with-4.json", "7-epochs/with-0.json"):
        path = tmp_path / other
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(kept.read_bytes())
        with pytest.raises(ValueError, match=r"expected 1-epochs/RUN-0\.json"):
            reproduce.gather("any", tmp_path, epochs=int(other[0]))
        path.unlink()


def test_an_interrupted_series_resumes_its_unfinished_run(table, tmp_path, monkeypatch):
    """After Ctrl-C at the end of the first epoch, that epoch is not repeated."""
    words = ["any", "--epochs", "2", "--seeds", "1", "--limit", "40", "--precision", "fp32"]
    fit = pipeline.fit

    def stopped(*given, on_epoch, **more):
        def once(epoch, model):
            on_epoch(epoch, model)
            raise KeyboardInterrupt

        return fit(*given, on_epoch=once, **more)

    def into(folder, *more):
        return run(*words, *more, "--folder", tmp_path / folder)

    monkeypatch.setattr(pipeline, "fit", stopped)
    first = into("stopped")
    assert first.exit_code == 1 and "Run the same command to resume" in first.stderr
    assert len([*(tmp_path / "stopped").rglob("epochs.csv")]) == 1
    monkeypatch.setattr(pipeline, "fit", fit)
    refused = into("stopped", "--batch-size", "64")
    assert refused.exit_code == 2 and "choose another folder" in refused.stderr
    assert into("stopped").stderr.count("epoch 1/2") == 1
    assert into("whole").stderr.count("epoch 1/2") == 2
    cards = [
        json.loads((tmp_path / name / "2-epochs/with-0.json").read_text())
        for name in ("stopped", "whole")
    ]
    assert cards[0]["weights"]["sha256"] == cards[1]["weights"]["sha256"]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"batch_size": 64}, "differs in batch_size"),
        ({"precision": "bf16"}, "differs in precision"),
    ],
)
def test_results_on_other_terms_are_refused_before_training(
    table, tmp_path, monkeypatch, other, said
):
    there = card(0.3, epochs=1, limit=other.pop("limit", 40), **other)
    there["training"]["precision"] = other.get("precision", "fp32")
    write(tmp_path, "without", 0, there)
    monkeypatch.setattr(reproduce, "load_split", lambda *_: pytest.fail("it would train"))
    with pytest.raises(ValueError, match=rf"without-0\.json was made .*{said}"):
        reproduce.run("any", 1, reproduce.Plan(tmp_path, **PLAN), rows=("without",))


def test_several_seeds_give_mean_and_standard_deviation_and_one_its_interval(table, tmp_path):
    for seed, error in enumerate((0.3, 0.4, 0.8)):
        write(tmp_path, "with", seed, card(error, sse=4.0 + seed))
    lossy = card(0.7, sse=None)
    lossy["dataset"]["notice"] = "these are copies"
    lossy["training"]["epoch"] = 1  # the best one
    write(tmp_path, "without", 0, lossy)
    _, rows, caption, commands = reproduce.gather("any", tmp_path)
    end = " --batch-size 128 --schedule linear --precision bf16"
    which = "--seeds 1 --rows without", "--seeds 3 --rows with"
    assert commands == [f"capsviz reproduce any --epochs 2 {one}{end}" for one in which]
    spread = np.std([0.3, 0.4, 0.8], ddof=1)
    assert rows[0][:5] == ["yes", "1,234", "2", "3", f"0.50 ± {spread:.3f}"]
    assert rows[0][5:] == ["0.0100 ± 0.00000", "5.0 ± 1.00", "0.25"]
    low, high = wilson(7, 1000)
    assert rows[1][2] == "2 (best: 1)"
    assert rows[1][4] == f"0.70 [{100 * low:.2f}, {100 * high:.2f}]"
    assert caption.startswith("A table. More. 2 epochs of 55,000 training images, batches of 128, ")
    how = "schedule linear, bf16, a machine; 1,000 test images."
    assert how in caption and caption.endswith("Note: these are copies.")


def test_unlike_results_damaged_ones_and_none_are_refused(table, tmp_path):
    with pytest.raises(ValueError, match="no results of the table"):
        reproduce.gather("any", tmp_path)
    write(tmp_path, "with", 0, card(0.3))
    write(tmp_path, "without", 0, card(0.3, batch_size=64))
    with pytest.raises(ValueError, match=r"differ in batch_size \(128, 64\)"):
        reproduce.gather("any", tmp_path)
    path = write(tmp_path, "without", 0, card(0.3, learning_rate=0.5))
    with pytest.raises(ValueError, match=r"another recipe \(it differs in learning_rate\)"):
        reproduce.gather("any", tmp_path)
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"without-0.json is not the result of a run"):
        reproduce.gather("any", tmp_path)


def test_runs_of_an_earlier_version_of_a_plugin_are_refused(table, plugin, tmp_path, monkeypatch):
    text = "from capsviz.nn.routing.dynamic import route\n"
    path = plugin("routing/mine.py", text)
    recipe = Recipe(dataset="digits", options={**TINY, "routing": "mine"})
    monkeypatch.setattr(table, "cells", lambda: [reproductions.Cell("mine", ("yes",), recipe)])
    plan = reproduce.Plan(tmp_path / "made", **PLAN)
    reproduce.run("table", 1, plan)
    result, run_folder = plan.folder / "1-epochs/mine-0.json", plan.folder / "1-epochs/runs/mine-0"
    before = json.loads(result.read_text())
    assert reproduce.run("table", 1, plan) == 1
    path.write_text(f"{text}# an edit\n")
    with pytest.raises(ValueError, match=r"mine-0.json was made with another routing"):
        reproduce.run("table", 1, plan)
    note = "the code of its routing, a plug-in, has changed since the weights were saved"
    assert checkpoint.load(run_folder).card["notes"] == [note]
    result.unlink()
    with pytest.raises(ValueError, match="holds a run with another routing"):
        reproduce.run("table", 1, plan)
    reproduce.run("table", 2, replace(plan, folder=tmp_path / "anew"))
    (tmp_path / "anew/1-epochs/mine-0.json").write_text(json.dumps(before))
    with pytest.raises(ValueError, match="the results differ in the plug-ins of mine"):
        reproduce.gather("table", tmp_path / "anew")
    runs = {"old": before, "new": json.loads((tmp_path / "anew/1-epochs/mine-1.json").read_text())}
    with pytest.raises(ValueError, match="not of the recipe of 'old': plug-ins"):
        replicates.check(runs)


def test_the_longest_of_the_fullest_series_is_gathered_unless_epochs_are_given(table, tmp_path):
    def errors(**options):
        return [row[4][:4] for row in reproduce.gather("any", tmp_path, **options).rows]

    write(tmp_path, "with", 0, card(0.3))
    write(tmp_path, "without", 0, card(0.4))
    write(tmp_path, "with", 0, card(0.2, epochs=10))  # a run that stands in another table too
    assert errors() == ["0.30", "0.40"]
    assert errors(epochs=10) == ["0.20", "–"]
    write(tmp_path, "without", 0, card(0.1, epochs=10))
    assert errors() == ["0.20", "0.10"]
    with pytest.raises(ValueError, match="no results of the table 'any' after 3 epochs"):
        reproduce.gather("any", tmp_path, epochs=3)


def test_rows_that_are_not_compared_have_their_own_longest_runs(table, tmp_path):
    table.apart = True
    write(tmp_path, "with", 0, card(0.3))
    write(tmp_path, "without", 0, card(0.4))
    write(tmp_path, "with", 0, card(0.2, epochs=10, batch_size=64))
    _, rows, caption, _ = reproduce.gather("any", tmp_path)
    assert [(row[2], row[4][:4]) for row in rows] == [("10", "0.20"), ("2", "0.40")]
    assert "2 or 10 epochs of 55,000 training images, batches of 64 or 128" in caption
    assert [row[2] for row in reproduce.gather("any", tmp_path, epochs=2).rows] == ["2", "2"]


def test_missing_data_are_reported_and_other_rows_are_trained(table, tmp_path, monkeypatch):
    load = reproduce.load_split

    def without_digits(recipe, split, root):
        if recipe.dataset == "svhn":
            raise FileNotFoundError("svhn belongs there")
        return load(recipe, split, root)

    monkeypatch.setattr(reproduce, "load_split", without_digits)
    absent = reproductions.Cell("svhn", ("svhn",), Recipe(dataset="svhn", options=TINY))
    table.cells = lambda: [absent, *cells()[:1]]
    lines = []
    reproduce.run("any", 2, reproduce.Plan(tmp_path, **PLAN), report=lines.append)
    assert lines.count("svhn: not run, svhn belongs there") == 1
    assert (tmp_path / "1-epochs/with-1.json").exists()
    table.cells = lambda: [absent]
    with pytest.raises(FileNotFoundError, match="svhn belongs there"):
        reproduce.run("any", 1, reproduce.Plan(tmp_path, **PLAN))


def test_the_command_lists_the_tables():
    listed = run().output
    for name in reproductions.available():
        assert f"{name} " in listed and reproductions.get(name).title in listed


def test_a_task_for_which_no_run_is_left_does_nothing_and_is_no_error(table, tmp_path):
    done = run("any", "--folder", tmp_path, "--task", "7/8")
    assert done.exit_code == 0 and done.stdout == ""
    assert done.stderr == "nothing for task 7/8: there are 6 runs\n"
    assert not any(tmp_path.iterdir())


def test_the_command_prints_a_table_and_writes_it(table, tmp_path):
    write(tmp_path, "with", 0, card(0.3))
    done = run("any", "--show", "--folder", tmp_path)
    assert done.exit_code == 0 and "| yes | 1,234 | 2 | 1 | 0.30 [" in done.stdout
    assert (tmp_path / "tables/any.md").read_text().startswith("| Decoder |")
    assert r"\begin{table*}" in (tmp_path / "tables/any.tex").read_text()
    shown = run("any", "--show", "--json", "--folder", tmp_path)
    assert json.loads(shown.stdout)["header"][0] == "Decoder"


@pytest.mark.parametrize("name", SERIES)
def test_a_series_is_trained_by_its_name_with_the_recipe_that_its_runs_had(name):
    about = json.loads((discovery.folder(reproduced.SEEDS) / name / "runs.json").read_text())
    called, recipe = pipeline.prepare(name, {"seed": 7})
    assert called == name and recipe.seed == 7
    assert differing({**about["terms"], "seed": 7}, recipe) == set()


def test_the_commands_of_a_finding_are_those_of_its_page():
    sections = re.split(r"(?m)^## \d+\. ", PAGE.read_text(encoding="utf-8"))[1:]
    assert len(sections) == len(reproduced.FINDINGS)
    for number, (section, one) in enumerate(zip(sections, reproduced.FINDINGS, strict=True), 1):
        assert one.claim == section.partition("\n")[0] + "."
        block = section.rpartition("\n```\n")[0].rpartition("```\n")[2]
        lines = [line.partition("#")[0].split() for line in block.splitlines()]
        assert ["capsviz", "reproduce", str(number)] in lines
        known = [words.format(seeds="trained/seeds").split() for words in one.measured]
        for _, *words in lines:
            if words[0] not in ("reproduce", "train", "affnist") and "{" not in str(words):
                assert words in known, words


def test_a_finding_is_measured_from_folders_that_are_there(monkeypatch, tmp_path):
    folder = tmp_path / "two words"
    for name in SERIES:
        (folder / name).mkdir(parents=True)
    monkeypatch.setattr(reproduced.discovery, "folder", lambda _: folder)
    places = {
        Path(word)
        for one in reproduced.FINDINGS
        for words in reproduced.commands(one)
        for word in words
        if str(tmp_path) in word
    }
    assert len(places) > 9 and all(place.is_dir() for place in places)


def test_a_finding_is_measured_and_its_remaining_trainings_are_listed(monkeypatch, tmp_path):
    called = []

    def run_one(command):
        called.append(command[3:])
        return SimpleNamespace(returncode=int("dose" in command))

    monkeypatch.setattr(command, "subprocess", SimpleNamespace(run=run_one))
    done = run("1", "--folder", tmp_path)
    assert ["transplant", "--n", "1000", "--output", str(tmp_path), "--force"] in called
    assert len(called) == len(reproduced.FINDINGS[0].measured)
    assert "capsviz train mnist-2-iterations-10-epochs --seed S" in done.stdout
    assert "--seeds-of 'runs/mnist-2-iterations-10-epochs-*' --n 1000\n" in done.stdout
    assert done.exit_code == 1 and "3 of 6 commands failed" in done.stderr
    shown = run("5", "--show")
    assert shown.exit_code == 0 and len(called) == 6 and "mnist-slim-pooled" in shown.stdout
