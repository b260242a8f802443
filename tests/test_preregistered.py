"""Verdicts of docs/preregistered.md on training runs that are made up."""

import json

import numpy as np
import pytest
from helpers.training_runs import write_runs

from benchmarks import preregistered, shipped
from capsviz import discovery

SEEDS = range(10, 20)
ACCURACY = 0.99 + 0.001 * np.sin(np.arange(10.0))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "SEEDS", tmp_path)
    monkeypatch.setattr(shipped, "BESIDE", tmp_path)
    return tmp_path


def write_affine(folder, name, outside):
    """Write a result of `affine` over runs; it is a shipped one with other accuracies outside."""
    place = "trained/seeds/mnist-slim-uniform-10-epochs/affine-*.json"
    (path,) = discovery.root().glob(place)
    about = json.loads(path.read_text(encoding="utf-8"))
    about["runs"]["seeds"] = list(SEEDS)
    values = [[[0.99, 0.95, one]] for one in outside]
    runs = about["result"]["accuracy"]["estimate"]["runs"]
    runs.update(shape=[len(outside), 1, 3], data=np.ravel(values).tolist())
    (folder / name / "affine-x.json").write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("apart", "verdict", "detectable"),
    [
        (np.zeros(10), "equivalent", "0.01"),
        (0.003 + 0.0001 * np.cos(np.arange(10)), "different", "0.01"),
        (np.resize([0.003, -0.003], 10), "not settled", "0.31"),  # s.d. 0.316 points
    ],
)
def test_runs_of_a_known_difference_get_their_verdict(folder, apart, verdict, detectable):
    assert preregistered.verdicts("a") == "Not run yet: three less one iteration."
    early = [0.1, 0.2, 0.3]  # of seeds that are not in the plan
    for name, values in (
        ("mnist-iterations-3", [*early, *(ACCURACY + apart)]),
        ("mnist-iterations-1", [*early[::-1], *ACCURACY]),
    ):
        write_runs(folder / name, name, dict(zip([0, 1, 2, *SEEDS], values, strict=True)))
    header, _, row = preregistered.verdicts("a").splitlines()
    assert header.startswith("| comparison | value | pairs | difference | margin | verdict |")
    cells = row.strip("| ").split(" | ")
    assert cells[2] == "10 of 20" and cells[4:] == ["0.05", verdict, detectable]
    assert cells[3].startswith(f"{100 * apart.mean():+.2f} [")


def test_a_value_is_paired_by_seed_and_what_is_absent_is_said(folder):
    outside = 0.9 + 0.01 * np.sin(np.arange(10.0))
    for name, less in (("mnist-capsules-plain", 0.03), ("mnist-pooling-plain", 0.0)):
        write_runs(folder / name, name, dict(zip(SEEDS, ACCURACY, strict=True)))
        write_affine(folder, name, outside - less)
    table, left = preregistered.verdicts("b").split("\n\n")
    accuracy, inside, out = (row.strip("| ").split(" | ") for row in table.splitlines()[2:])
    assert accuracy[1:6] == ["accuracy", "10 of 10", "+0.00 [-0.01, +0.01]", "0.1", "equivalent"]
    assert inside[1] == "accuracy inside" and inside[5] == "equivalent"
    assert out[3] == "-3.00 [-3.00, -3.00]" and out[5] == "different"
    missing = "without decoder (error, corruptions, AUROC, broken digits), with decoder"
    assert left == f"Not run yet: {missing}."
