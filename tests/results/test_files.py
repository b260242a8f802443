"""Results on disk: files of this and of earlier versions are read back."""

import csv
import io
import json
import math
import shutil
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest
import torch
from helpers.command_line import refused, run

from capsviz import discovery
from capsviz.analysis import Analysis
from capsviz.results import files as results
from capsviz.statistics.estimate import Estimate

ABOUT = {"analysis": "mine", "kind": "Result", "width": "single"}


class Warp(NamedTuple):
    kind: str
    amount: float


class Result(NamedTuple):
    """Every kind of value that a result may have."""

    share: Estimate  # (3,)
    absent: Estimate | None
    grid: np.ndarray  # (2, 3) float32
    sizes: np.ndarray  # (2,) int64
    loss: float
    n: int
    names: list[str]
    parts: dict[str, np.ndarray]
    each: list[Estimate]
    warps: list[Warp]
    late: str = "default"


def result(**others):
    share = Estimate(
        np.array([0.5, math.nan, 0.25]),
        np.array([[0.4, 0.6], [math.nan, math.nan], [0.0, 1.0]]),
        30,
        Estimate(np.array([0.0, 0.1, 0.2]), np.zeros((3, 2)), 30),
    )
    grid = np.array([[0.1, math.nan, 3], [4, 5, 6]], np.float32)
    values = {
        "share": share, "absent": None, "grid": grid, "sizes": np.array([3, 2**40]),
        "loss": math.nan, "n": 30, "names": ["a", "b"], "parts": {"a": np.arange(4.0)},
        "each": [Estimate(0.5, [0.4, 0.6], 9), Estimate(np.zeros(2), np.ones((2, 2)), 9)],
        "warps": [Warp("shift", 1.0)],
    }  # fmt: skip
    return Result(**{**values, **others})


def refuse(constant):
    raise AssertionError(f"{constant} is no JSON")


@pytest.fixture
def mine(monkeypatch):
    """A user-defined analysis; a test may add to its module."""
    module = ModuleType("mine")
    module.Mine = type("Mine", (Analysis,), {"Result": Result})
    monkeypatch.setattr(discovery, "load", lambda package, name, what: module)
    return module


@pytest.mark.parametrize("limit", [10, 1_000_000])
def test_every_kind_of_value_is_read_back_unchanged(mine, tmp_path, monkeypatch, limit):
    monkeypatch.setattr(results, "INLINE_BYTES", limit)
    written = result()
    *_, path = results.write_result(tmp_path / "x", written, ABOUT)
    assert path.with_suffix(".npz").exists() == (limit == 10)
    read, about = results.read_result(path)
    assert results.to_json(read) == results.to_json(written)
    assert (read.grid.dtype, read.sizes.dtype) == (np.float32, np.int64)
    assert isinstance(read.each[0], Estimate) and read.each[1].ci95.shape == (2, 2)
    assert read.warps == [{"kind": "shift", "amount": 1.0}]
    assert about["kind"] == "Result" and about["capsviz"]
    if limit == 10:
        path.with_suffix(".npz").unlink()
        with pytest.raises(ValueError, match=r"needs x\.npz beside it"):
            results.read_result(path)


def test_the_file_is_strict_json_where_nan_is_null(mine, tmp_path):
    (path,) = results.write_result(tmp_path / "x", result(), ABOUT)
    values = json.loads(path.read_text(), parse_constant=refuse)["result"]
    assert values["loss"] is None and values["grid"]["data"][1] is None
    assert values["share"]["estimate"]["value"]["data"] == [0.5, None, 0.25]
    assert values["grid"]["data"][0] == 0.1, "the shortest form of a float32"


def write_old(path, change):
    """Write a result as an earlier version did, after `change` of its fields."""
    results.write_result(path, result(), ABOUT)
    path = path.with_suffix(".json")
    about = json.loads(path.read_text())
    change(about["result"])
    path.write_text(json.dumps(about))
    return path


def test_only_fields_with_a_default_may_be_missing_and_unknown_fields_are_refused(mine, tmp_path):
    path = write_old(tmp_path / "x", lambda values: values.pop("late"))
    assert results.read_result(path)[0].late == "default"
    for change in (lambda values: values.pop("names"), lambda values: values.update(more=1)):
        path = write_old(tmp_path / "y", change)
        with pytest.raises(ValueError, match=r"made by another version of 'mine': run it again"):
            results.read_result(path)


@pytest.mark.parametrize("field", ["names", "n", "grid", "share", "late"])
def test_a_required_field_that_is_empty_is_named(mine, tmp_path, field):
    path = write_old(tmp_path / "x", lambda values: values.update({field: None}))
    with pytest.raises(ValueError, match=f"is damaged: {field} is empty, expected "):
        results.read_result(path)


@pytest.mark.parametrize("field", ["analysis", "kind"])
@pytest.mark.parametrize("value", [{}, [], True, 3, None])
def test_a_name_of_another_type_is_refused_with_a_clear_message(tmp_path, field, value):
    about = {"analysis": "routing", "kind": "Result", "width": "single", "result": {}}
    (tmp_path / "a.json").write_text(json.dumps(about | {field: value}))
    with pytest.raises(ValueError, match=r"unknown analysis|another version of 'routing'"):
        results.read_result(tmp_path / "a.json")


@pytest.mark.parametrize(
    "value",
    [
        math.nan, -math.inf, np.float32("nan"), np.array([1.0, np.nan]), torch.tensor([math.nan]),
        {"a": [math.nan]}, (math.inf, {"b": Estimate(np.nan, [np.nan, 1.0])}),
    ],
)  # fmt: skip
def test_nan_is_null_everywhere(value):
    assert "null" in results.to_json(value)
    json.loads(results.to_json(value), parse_constant=refuse)


@pytest.mark.parametrize("package", ["capsviz.commands", "capsviz.analyses"])
def test_commands_print_json_with_the_writer_of_files(package):
    for path in discovery.folder(package).rglob("*.py"):
        assert "json.dumps" not in path.read_text(encoding="utf-8"), path


def test_files_with_equal_names_are_listed_with_their_folders(tmp_path):
    (file, *_) = sorted((discovery.root() / "figures/binding").glob("*.json"))
    copy = shutil.copy(file, tmp_path)
    printed = run("redraw", file, copy, "--table", "csv").stdout.splitlines()[1:]
    named = {line.partition(",")[0] for line in printed}
    assert named == {str(Path(one).with_suffix("")) for one in (file, copy)}


def test_numbers_of_a_folder_are_one_table():
    def table(path):
        return list(csv.reader(io.StringIO(run("redraw", path, "--table", "csv").stdout)))

    root = discovery.root() / "figures/binding"
    files = sorted(root.glob("*.json"))
    whole, each = table(root), [table(path) for path in files]
    assert whole[0] == ["file", *each[0][0]]
    rows = [[path.stem, *row] for path, one in zip(files, each, strict=True) for row in one[1:]]
    assert whole[1:] == rows and len(rows) > 100
    first, second = files[:2]
    printed = run("redraw", first, second, "--table", "md").stdout.splitlines()
    assert printed[0] == str(first) and f"{second}" in printed[1:]
    assert run("redraw", first, second, "--table", "tex").stdout.startswith(f"% {first}\n")
    assert run("redraw", first, "--table", "md").stdout.startswith("| ")
    bare, named = (
        root.parent / "rotate-mnist-2-0.json",
        root.parent / "sweep-rotation-mnist-1000-images.json",
    )
    both = run("redraw", bare, named, "--table", "md")
    assert both.exit_code == 0 and f"{bare} is left out: no numbers" in both.stderr
    assert both.stdout.startswith(f"{named}\n\n| ")
    refused(run("redraw", bare, "--table", "md"), f"'{bare}' has no numbers with intervals")
    refused(run("redraw", first, "--table", "md", "--width", 3, "--latex"), "drop --width, --latex")
    trained = discovery.folder("capsviz.trained") / "seeds"
    (runs,) = trained.glob("cifar10/routing-*-runs.json")  # names no other recipes
    assert run("redraw", runs, "--table", "tex").stdout.count("(3 training runs)") == 1
    seeds = trained / "digits-paper-stem"
    assert {row[0] for row in table(seeds)[1:]} == {
        path.stem for path in seeds.glob("*digits*.json")
    }
