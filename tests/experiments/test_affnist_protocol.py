"""The affNIST protocol: stopping at the target, resuming after a kill, results and transforms."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from capsviz import data
from capsviz.checkpoint import read_tensors
from capsviz.data import affnist_like
from capsviz.experiments import affnist as generalisation
from capsviz.experiments.affnist import Plan, read, result_path, run, unpack
from capsviz.files import LOCK
from capsviz.nn import models


@pytest.fixture
def little(monkeypatch, request):
    """Use `digits` instead of MNIST, and networks that train in a second."""
    load = data.load

    def smaller(name, split, root=None, **options):
        if name == "affnist":
            raise FileNotFoundError(name)
        part = load("digits" if name == "mnist" else name, split, root, **options)
        return part.first(min(len(part), 64))

    def variants(limit, root=None):
        part = load("digits", "test").first(20)
        return affnist_like.make(part)[0]

    monkeypatch.setattr(data, "load", smaller)
    monkeypatch.setattr(generalisation, "like", variants)
    for cached in (generalisation.real, generalisation.held_out):
        cached.cache_clear()
    request.addfinalizer(generalisation.held_out.cache_clear)
    tiny = ("average", {"channels": [4, 5], "kernel": 5})
    monkeypatch.setattr(generalisation, "NETWORKS", {"capsnet": tiny, "resnet": tiny})


def plan(folder, **more):
    return Plan(folder, **{"epochs": 2, "checks": 1, "target": 0.01, **more})


def test_training_stops_at_the_first_check_that_reaches_the_target(little, tmp_path):
    run("resnet", 0, plan(tmp_path, full=False))
    (found,) = read(tmp_path)
    assert (found["network"], found["seed"], found["state"]) == ("resnet", 0, "matched")
    hits = unpack(found["affnist_like"]["right"], 20)
    assert hits.mean() == found["affnist_like"]["accuracy"] and found["affnist_like"]["n"] == 20
    assert found["affnist"] is None and found["recipe"]["shift_px"] == 6
    assert (found["training"]["epoch"], found["training"]["step"]) == (1, 1)
    assert not result_path(tmp_path, "resnet", 0, "full").exists()
    assert found["held_out"]["accuracy"] >= 0.01


def test_matched_and_scored_weights_are_the_averaged_ones(little, tmp_path):
    kept = {}
    for name, ema in (("plain", None), ("hardly", 1e-9), ("averaged", 0.9)):
        run("resnet", 0, plan(tmp_path / name, ema=ema, batch_size=16, epochs=1))
        runs = tmp_path / name / "runs" / "resnet-0"
        kept[name] = read_tensors(runs / "matched.safetensors")[0]  # after the only epoch
        full, matched = read(tmp_path / name)
        assert matched["terms"]["ema"] == ema and matched["test"] == full["test"]
        if ema is not None:
            state = read_tensors(runs / "state.safetensors")[0]
            for key, value in kept[name].items():
                assert torch.equal(value, state[f"ema.{key}"])
    for key, value in kept["plain"].items():
        torch.testing.assert_close(kept["hardly"][key], value)
        assert not torch.equal(kept["averaged"][key], value)


def test_a_full_series_has_both_results_and_repeats_neither(little, tmp_path):
    run("resnet", 1, plan(tmp_path))
    paths = [result_path(tmp_path, "resnet", 1, s) for s in generalisation.STATES]
    before = [path.read_bytes() for path in paths]
    lines = []
    run("resnet", 1, plan(tmp_path), report=lines.append)
    assert [path.read_bytes() for path in paths] == before and lines == []
    (tmp_path / "affnist-folder-af.json").write_text("{}")  # a figure in the same folder
    assert [r["state"] for r in read(tmp_path)] == ["full", "matched"]
    assert json.loads(before[1])["training"]["epoch"] == 2


def test_a_run_that_is_killed_at_any_of_its_writes_resumes_to_the_same_results(
    little, tmp_path, monkeypatch
):
    replace, written = os.replace, []

    def lasting(folder):
        """Return the paths that a run writes, and its results without times."""
        paths = [path for path in folder.rglob("*") if path.is_file() and path.name != LOCK]
        results = {path.name: json.loads(path.read_text()) for path in folder.glob("*.json")}
        scored = {name: (one["test"], one["affnist_like"]) for name, one in results.items()}
        return {path.relative_to(folder) for path in paths}, scored

    def last_write(number):
        def write(temporary, path):
            written.append(path)
            if len(written) == number:
                shutil.copy(temporary, f"{path.parent}/.{path.name}.abcd_123")  # as a kill leaves
                raise KeyboardInterrupt
            replace(temporary, path)

        written.clear()
        return write

    monkeypatch.setattr(os, "replace", last_write(0))
    run("resnet", 0, plan(tmp_path / "whole", checks=2, batch_size=16))
    writes = written.copy()
    assert len(writes) > 7
    for number in {path.name: k for k, path in enumerate(map(Path, writes), 1)}.values():
        folder = tmp_path / f"killed-{number}"
        monkeypatch.setattr(os, "replace", last_write(number))
        with pytest.raises(KeyboardInterrupt):
            run("resnet", 0, plan(folder, checks=2, batch_size=16))
        monkeypatch.setattr(os, "replace", replace)
        run("resnet", 0, plan(folder, checks=2, batch_size=16))
        assert lasting(folder) == lasting(tmp_path / "whole"), writes[number - 1]


def test_a_target_that_is_never_reached_is_reported_and_leaves_no_match(little, tmp_path):
    lines = []
    run("resnet", 0, plan(tmp_path, target=0.999), report=lines.append)
    assert any("99.90% was not reached in 2 epochs" in line for line in lines)
    assert not result_path(tmp_path, "resnet", 0, "matched").exists()
    assert result_path(tmp_path, "resnet", 0, "full").exists()


def test_results_with_other_terms_are_refused(little, tmp_path):
    run("resnet", 0, plan(tmp_path))
    for other in ({"target": 0.02}, {"checks": 2}, {"limit": 5}, {"train_limit": 32}, {"ema": 0.9}):
        with pytest.raises(ValueError, match=f"made with {next(iter(other))}.*another --folder"):
            run("resnet", 0, plan(tmp_path, **other))
    with pytest.raises(ValueError, match="made with epochs 2, got 1"):
        run("resnet", 0, plan(tmp_path, epochs=1))


def test_a_run_that_was_begun_with_other_terms_is_refused(little, tmp_path):
    unreached = plan(tmp_path, target=0.999, full=False, epochs=1)
    run("resnet", 0, unreached)
    terms = tmp_path / "runs" / "resnet-0" / "terms.json"
    for other in ({"target": 0.02}, {"batch_size": 16}, {"train_limit": 32}):
        with pytest.raises(ValueError, match=rf"resnet-0 was made with {next(iter(other))}.*, got"):
            run("resnet", 0, plan(tmp_path, **{"target": 0.999, "full": False, **other}))
    run("resnet", 0, plan(tmp_path, target=0.999, full=False, epochs=2))  # may be lengthened
    terms.write_text("[1]")
    with pytest.raises(ValueError, match=r"terms\.json holds no terms of a run"):
        run("resnet", 0, unreached)
    terms.unlink()  # begun before these were kept
    run("resnet", 0, plan(tmp_path, target=0.99, full=False, epochs=2))
    assert not terms.exists()


def test_a_full_training_can_be_lengthened(little, tmp_path):
    run("resnet", 0, plan(tmp_path))
    run("resnet", 0, plan(tmp_path, epochs=3))
    full, matched = read(tmp_path)
    assert full["training"]["epoch"] == full["terms"]["epochs"] == 3
    assert matched["terms"]["epochs"] == 2


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"target": 99.23}, "target must be less than 1, got 99.23"),
        ({"limit": 320_001}, "limit must be at most 320000, got 320001"),
    ],
)
def test_impossible_plans_are_refused(tmp_path, wrong, text):
    with pytest.raises(ValueError, match=text):
        Plan(tmp_path, **wrong)


@pytest.mark.parametrize("name", generalisation.NETWORKS)
def test_every_network_has_a_recipe_that_builds(name, tmp_path):
    recipe = generalisation.recipe(name, 0, Plan(tmp_path))
    with torch.device("meta"):
        network = models.build(recipe.model, (1, 40, 40), 10, **recipe.options)
    assert sum(p.numel() for p in network.parameters()) > 1e5


@pytest.fixture
def digits_for_mnist(monkeypatch):
    load = data.load
    digits = load("digits", "test").first(30)
    monkeypatch.setattr(data, "load", lambda name, split, root, **_: digits)
    return digits


def test_drawn_transforms_are_those_of_the_images_variant_by_variant(digits_for_mnist):
    drawn = generalisation.draw_transforms(50)
    for variant, part in ((0, slice(0, 30)), (1, slice(30, 50))):
        own = affnist_like.make(digits_for_mnist, variant)[1]
        for name, values in own._asdict().items():
            np.testing.assert_allclose(drawn[name][part], values[: len(drawn[name][part])])


def test_transforms_are_drawn_if_more_are_needed_than_are_shipped(digits_for_mnist):
    np.testing.assert_array_equal(
        generalisation.transforms(10_001)["shear"][:7], generalisation.draw_transforms(7)["shear"]
    )


def test_the_shipped_transforms_equal_those_drawn_from_mnist(mnist_root):
    shipped = generalisation.transforms(10_000)
    drawn = generalisation.draw_transforms(10_000, mnist_root)
    for name in affnist_like.Transforms._fields:
        np.testing.assert_array_equal(shipped[name], drawn[name])
