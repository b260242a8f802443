"""--json is strict JSON: a number that is none is null, and commands have one writer of it."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest
import torch
from helpers.command_line import run

from capsviz import discovery
from capsviz.results.files import to_json
from capsviz.statistics.estimate import Estimate


@pytest.mark.parametrize(
    "value",
    [
        math.nan, -math.inf, np.float32("nan"), np.array([1.0, np.nan]), torch.tensor([math.nan]),
        {"a": [math.nan]}, (math.inf, {"b": Estimate(np.nan, [np.nan, 1.0])}),
    ],
)  # fmt: skip
def test_what_is_no_number_is_null_wherever_it_stands(value):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    assert "null" in to_json(value)
    json.loads(to_json(value), parse_constant=refuse)


@pytest.mark.parametrize("package", ["capsviz.commands", "capsviz.analyses"])
def test_commands_print_json_by_that_writer_alone(package):
    for path in discovery.folder(package).rglob("*.py"):
        assert "json.dumps" not in path.read_text(encoding="utf-8"), path


def test_numbers_of_a_folder_are_one_table():
    def table(path):
        return list(csv.reader(io.StringIO(run("redraw", path, "--table", "csv").stdout)))

    root = discovery.root() / "figures/binding"
    files = sorted(root.glob("*.json"))
    whole, each = table(root), [table(path) for path in files]
    assert whole[0] == ["file", *each[0][0]]
    rows = [[path.stem, *row] for path, one in zip(files, each, strict=True) for row in one[1:]]
    assert whole[1:] == rows and len(rows) > 100
