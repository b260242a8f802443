"""Published tables: their runs, an interrupted series that goes on, and what the rows say."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from capsviz import discovery, models, reproduce, reproductions
from capsviz.cli import main
from capsviz.intervals import wilson
from capsviz.recipe import Recipe

TINY = {"channels": 8, "types": 2, "hidden": [16, 16]}
PLAN = {"epochs": 1, "limit": 40, "precision": "fp32"}


def cells():
    whole = Recipe(dataset="digits", options=TINY)
    plain = Recipe(dataset="digits", options={**TINY, "reconstruction_weight": 0.0})
    return [
        reproductions.Cell("with", ("yes",), whole, "0.25"),
        reproductions.Cell("without", ("no",), plain),
    ]


@pytest.fixture
def table(monkeypatch):
    made = SimpleNamespace(LABELS=("Decoder",), cells=cells, __doc__="A table.\n\nMore.")
    monkeypatch.setattr(reproduce, "get", lambda name: made)
    return made


def card(error, *, n=1000, sse=5.0, **more):
    """What a run leaves, as far as tables read it."""
    shared = {"epochs": 2, "batch_size": 128, "schedule": "linear", "limit": None}
    test = {"n": n, "error_percent": error, "margin_loss": 0.01, "reconstruction_sse": sse}
    return {
        "recipe": {**shared, "precision": "bf16", "seed": 0, **more},
        "weights": {"parameters": 1234},
        "training": {"hardware": "a machine"},
        "results": {"test": test},
    }


def write(folder, name, seed, found):
    reproduce.result_path(folder, name, seed).write_text(json.dumps(found))


@pytest.mark.parametrize("name", reproductions.available())
def test_every_run_of_a_table_can_be_built(name):
    module = reproductions.get(name)
    for cell in module.cells():
        assert len(cell.labels) == len(module.LABELS)
        channels, size = (3, 24) if cell.recipe.dataset in ("cifar10", "svhn") else (1, 28)
        size = cell.recipe.crop_px or size
        with torch.device("meta"):
            model = models.build(
                cell.recipe.model, (channels, size, size), 10, **cell.recipe.options
            )
        assert sum(p.numel() for p in model.parameters()) > 1e6


def test_runs_of_one_name_are_one_run_in_all_tables():
    named = {}
    for name in reproductions.available():
        for cell in reproductions.get(name).cells():
            assert named.setdefault(cell.run, cell.recipe) == cell.recipe
    assert len({str(recipe) for recipe in named.values()}) == len(named)


def test_a_series_makes_what_is_missing_and_nothing_twice(table, tmp_path):
    plan = reproduce.Plan(tmp_path, **PLAN)
    reproduce.run("any", 1, plan)
    first = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.json")}
    assert {path.name for path in first} == {"with-0.json", "without-0.json"}
    reproduce.result_path(tmp_path, "without", 0).unlink()
    said = []
    reproduce.run("any", 2, plan, report=said.append)
    made = [line.partition(":")[0] for line in said if "test error" in line]
    assert made == ["without-0", "with-1", "without-1"]
    kept = reproduce.result_path(tmp_path, "with", 0)
    assert kept.stat().st_mtime_ns == first[kept]
    header, rows, caption = reproduce.gather("any", tmp_path)
    assert header == ["Decoder", *reproduce.MEASURES]
    assert [(row[0], row[2]) for row in rows] == [("yes", "2"), ("no", "2")]
    assert rows[0][5] != "–" and rows[1][5] == "–" and rows[0][6] == "0.25"
    assert "1 epoch of 40 images" in caption


def test_results_by_another_recipe_are_refused(table, tmp_path):
    reproduce.run("any", 1, reproduce.Plan(tmp_path, **PLAN))
    with pytest.raises(ValueError, match=r"another recipe.*batch_size"):
        reproduce.run("any", 1, reproduce.Plan(tmp_path, **PLAN, batch_size=64))


def test_several_seeds_give_mean_and_standard_deviation_and_one_its_interval(table, tmp_path):
    for seed, error in enumerate((0.3, 0.4, 0.8)):
        write(tmp_path, "with", seed, card(error, sse=4.0 + seed))
    write(tmp_path, "without", 0, card(0.7, sse=None))
    _, rows, _ = reproduce.gather("any", tmp_path)
    spread = np.std([0.3, 0.4, 0.8], ddof=1)
    assert rows[0] == ["yes", "1,234", "3", f"0.50 ± {spread:.3f}", "0.0100", "5.0", "0.25"]
    low, high = wilson(7, 1000)
    assert rows[1][3] == f"0.70 [{100 * low:.2f}, {100 * high:.2f}]"


def test_a_row_without_results_says_so(table, tmp_path):
    write(tmp_path, "with", 0, card(0.3))
    _, rows, _ = reproduce.gather("any", tmp_path)
    assert rows[1][2] == "not run"


def test_unlike_results_damaged_ones_and_none_are_refused(table, tmp_path):
    with pytest.raises(ValueError, match="no results of the table"):
        reproduce.gather("any", tmp_path)
    write(tmp_path, "with", 0, card(0.3))
    write(tmp_path, "without", 0, card(0.3, epochs=9))
    with pytest.raises(ValueError, match="differ in epochs: 2, 9"):
        reproduce.gather("any", tmp_path)
    reproduce.result_path(tmp_path, "without", 0).write_text("{}")
    with pytest.raises(ValueError, match=r"without-0.json is not the result of a run"):
        reproduce.gather("any", tmp_path)


def test_data_that_are_not_there_are_reported_and_the_rest_is_made(table, tmp_path, monkeypatch):
    load = reproduce.pipeline.load

    def without_digits(recipe, split, root):
        if recipe.dataset == "svhn":
            raise FileNotFoundError("svhn belongs there")
        return load(recipe, split, root)

    monkeypatch.setattr(reproduce.pipeline, "load", without_digits)
    absent = reproductions.Cell("svhn", ("svhn",), Recipe(dataset="svhn", options=TINY))
    table.cells = lambda: [absent, *cells()[:1]]
    said = []
    reproduce.run("any", 2, reproduce.Plan(tmp_path, **PLAN), report=said.append)
    assert said.count("svhn: not run, svhn belongs there") == 1
    assert reproduce.result_path(tmp_path, "with", 1).exists()
    table.cells = lambda: [absent]
    with pytest.raises(FileNotFoundError, match="svhn belongs there"):
        reproduce.run("any", 1, reproduce.Plan(tmp_path, **PLAN))


def test_the_command_lists_tables_and_refuses_wrong_input(tmp_path):
    run = CliRunner().invoke(main, ["reproduce"])
    assert run.exit_code == 0
    for name in reproductions.available():
        assert f"{name} " in run.output
        assert discovery.summary("capsviz.reproductions", name) in run.output
    folder = ["--folder", str(tmp_path)]
    for words, said in (
        (["papr", *folder], "unknown table 'papr'"),
        (["paper", "--seeds", "0", *folder], "at least 1 seed"),
        (["paper", "--epochs", "0", *folder], "epochs must be at least 1"),
        (["paper", "--show", "--epochs", "3", *folder], "drop --epochs"),
        (["paper", "--show", *folder], "no results of the table 'paper'"),
    ):
        run = CliRunner().invoke(main, ["reproduce", *words])
        assert run.exit_code == 2 and said in run.output, (words, run.output)


def test_the_command_prints_a_table_and_writes_it(table, tmp_path):
    write(tmp_path, "with", 0, card(0.3))
    run = CliRunner().invoke(main, ["reproduce", "any", "--show", "--folder", str(tmp_path)])
    assert run.exit_code == 0 and "| yes | 1,234 | 1 | 0.30 [" in run.stdout
    assert (tmp_path / "tables/any.md").read_text().startswith("| Decoder |")
    assert r"\begin{table}" in (tmp_path / "tables/any.tex").read_text()
    run = CliRunner().invoke(
        main, ["reproduce", "any", "--show", "--json", "--folder", str(tmp_path)]
    )
    assert json.loads(run.stdout)["header"][0] == "Decoder"
