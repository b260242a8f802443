"""Sweep: the numbers are those of single images warped one by one, for each network alone."""

import json
import shutil
from itertools import product

import numpy as np
import pytest
import torch
from helpers.command_line import run
from helpers.fixtures import build_tiny
from helpers.plain_capsnet import Foreign
from scipy.integrate import trapezoid

from capsviz import checkpoint, discovery
from capsviz.analyses.sweep import Sweep
from capsviz.analyses.sweep import measure as measures
from capsviz.inputs import context
from capsviz.inputs.opening import open_inputs, open_networks
from capsviz.results.sets import Settings
from capsviz.statistics import calibration
from capsviz.statistics.intervals import paired_interval, wilson
from capsviz.transforms.warps import family_matrix, matrix, sizes, warp

LABELS = torch.arange(8) % 3
FEW = {"start": -60, "stop": 90, "step": 50.0, "grid": 1}


def measured(networks, images, **options):
    return Sweep().measure(networks, images, LABELS, dataset="noise", **FEW | options)


@pytest.fixture
def networks(tiny):
    return {"one": tiny, "two": Foreign((1, 21, 19), classes=3).eval()}


@pytest.fixture
def result(networks, tiny_images):
    return measured(networks, tiny_images)


def lengths(network, image):
    with torch.no_grad():
        return network.look(image, keep=("lengths",))["lengths"][0]


def test_each_size_is_one_warp_of_each_original(networks, tiny_images, result):
    assert result.sizes.tolist() == [-60, -10, 40, 90]
    some = list(networks.values())
    for k, (a, size) in product(range(2), enumerate(result.sizes)):
        by = family_matrix("rotation", size, (21, 19))
        own = [lengths(some[k], warp(tiny_images[[i]], by).clamp(0, 1)) for i in range(8)]
        right = np.array([int(s.argmax()) == int(LABELS[i]) for i, s in enumerate(own)])
        assert result.accuracy.value[k, a] == right.mean()
        true = np.mean([float(s[LABELS[i]]) for i, s in enumerate(own)])
        assert result.true_score.value[k, a] == pytest.approx(true, rel=1e-5)
        winner = np.array([float(s.max()) for s in own])
        ece = calibration.compare_calibration(winner[None], right[None], np.ones((9, 8)))
        assert result.calibration.value[k, a] == pytest.approx(ece.value[0], abs=1e-5)


def test_the_area_is_the_trapezoid_over_the_range(result):
    for k in range(2):
        area = trapezoid(result.accuracy.value[k], result.sizes) / 150
        assert result.area.value[k] == pytest.approx(area)
    assert result.area.difference.value == pytest.approx(result.area.value - result.area.value[0])
    assert measures.area_weights(np.array([0.0, 1.0, 4.0])) == pytest.approx([1 / 8, 1 / 2, 3 / 8])


def test_the_worst_case_is_correct_under_every_warp_of_the_grid(networks, tiny_images, result):
    right_under_all, some = np.ones((2, 8), bool), list(networks.values())
    for k, angle, x, y in product(range(2), [0], [-3, 0, 3], [-3, 0, 3]):
        by = matrix((21, 19), angle_deg=angle, shift_x_px=x, shift_y_px=y)
        for i in range(8):
            own = lengths(some[k], warp(tiny_images[[i]], by).clamp(0, 1))
            right_under_all[k, i] &= int(own.argmax()) == int(LABELS[i])
    assert result.worst.value.tolist() == right_under_all.mean(1).tolist()
    assert 0 < result.worst.value.max() < 1
    assert result.worst.ci95[1] == pytest.approx(wilson(int(right_under_all[1].sum()), 8))
    gained, lost = (
        int((right_under_all[1] & ~right_under_all[0]).sum()),
        int((right_under_all[0] & ~right_under_all[1]).sum()),
    )
    assert result.worst.difference.ci95[1] == pytest.approx(paired_interval(gained, lost, 8))


def test_results_do_not_depend_on_chunks_or_on_the_other_networks(
    networks, tiny_images, result, monkeypatch
):
    monkeypatch.setattr(measures, "CHUNK_VALUES", 3 * 21 * 19)
    values = measured(networks, tiny_images)
    assert np.allclose(values.true_score.value, result.true_score.value, atol=1e-6)
    assert values.worst.value.tolist() == result.worst.value.tolist()
    values = measured({"two": networks["two"]}, tiny_images)
    assert np.allclose(values.accuracy.ci95[0], result.accuracy.ci95[1])
    assert values.worst.value[0] == result.worst.value[1]


def test_sizes_hold_both_ends_where_the_step_allows():
    assert sizes("rotation", -30, 30, 15).tolist() == [-30, -15, 0, 15, 30]
    assert sizes("shift-x", 0, 10, 4).tolist() == [0, 4, 8]
    assert 1 in sizes("scale") and len(sizes("rotation")) == 37
    for wrong, message in (((0, 90, 1e-3), "too many"), ((0, 90, 0), "step above 0")):
        with pytest.raises(ValueError, match=message):
            sizes("rotation", *wrong)


@pytest.fixture
def other(tmp_path):
    """A second network for the digits, on disk."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = checkpoint.models.build("average", (1, 28, 28), 10, channels=(2, 3))
    card = {"name": "digits-tiny", "dataset": {"name": "digits"}}
    return str(checkpoint.save(tmp_path / "own" / "tiny.safetensors", model, card))


def test_the_figure_set_compares_with_the_baselines_that_fit(tmp_path, other, monkeypatch):
    small = checkpoint.save(
        tmp_path / "small.safetensors", build_tiny(), {"name": "small", "dataset": {"name": "x"}}
    )
    files = {"digits-average": other, "digits-small": small, "mnist-resnet": None}
    opened = open_inputs(checkpoint="digits")
    monkeypatch.setattr(checkpoint, "shipped", lambda: ["digits", *files])
    load = checkpoint.load
    monkeypatch.setattr(
        checkpoint, "load", lambda name, **more: load(files.get(name, name), **more)
    )
    [(stem, values)] = context.of_figure_set(Sweep(), opened, Settings(n=6))
    assert stem == "sweep-rotation-digits-6-images"
    assert values.names == ["digits", "digits-tiny"] and values.n == 6
    unnamed = open_networks([], dataset="digits")  # the same rule
    assert [one.name for one in unnamed] == values.names


def test_networks_of_ones_own_come_after_checkpoints_and_all_know_where_the_data_are(tmp_path):
    own = tmp_path / "own.py"
    own.write_text("import capsviz\ndef build():\n    return capsviz.load('digits-em')\n")
    names = ["digits", "digits-matrix"]
    opened = open_networks(names, network=[f"{own}:build"], dataset="digits", data_dir=tmp_path)
    assert [one.source for one in opened] == [*names, f"{own}:build"]
    with_shipped = open_networks([], dataset="digits", data_dir=tmp_path)
    assert {one.data_dir for one in (*opened, *with_shipped)} == {tmp_path}


def invoke(tmp_path, *args):
    output = ["--format", "png", "--output", str(tmp_path / "out")]
    return run("sweep", *args, *output)


def test_runs_of_one_recipe_are_called_by_their_folders_too(blank, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a/seed-1", "b/seed-1", "mine"):
        shutil.copytree(run_of_digits(tmp_path), tmp_path / name)
    asked = ("--from", 0, "--to", 0, "--n", 9, "--no-worst", "--json")
    done = invoke(tmp_path / "one", "digits", "mine", *asked)
    assert json.loads(done.stdout)["names"] == ["digits", "mine"]
    done = invoke(tmp_path / "two", "a/seed-1", "b/seed-1", *asked)
    assert json.loads(done.stdout)["names"] == ["a/seed-1", "b/seed-1"]
    done = invoke(tmp_path / "three", "mine", "mine", *asked)
    assert done.exit_code == 2 and "different networks" in done.stderr


def run_of_digits(tmp_path):
    """The shipped weights as a run of one's own."""
    folder = tmp_path / "run"
    if not folder.is_dir():
        folder.mkdir()
        for ending in ("safetensors", "json"):
            shutil.copy(discovery.root() / f"trained/digits.{ending}", folder / f"digits.{ending}")
    return folder


def test_images_that_all_fail_at_the_same_sizes_prove_no_certainty():
    counts = np.full((9, 8), 1.0)
    one = measures.mean_area(np.stack([np.full(8, 0.5), np.full(8, 0.75)]), counts)
    assert tuple(one.ci95[0]) == pytest.approx(wilson(4, 8))
    assert tuple(one.ci95[1]) == pytest.approx(wilson(6, 8))
    ends = 0.25 + np.array(paired_interval(0, 0, 8))
    assert tuple(one.difference.ci95[1]) == pytest.approx(tuple(ends.clip(-1, 1)))
    assert tuple(one.difference.ci95[0]) == (0, 0)
