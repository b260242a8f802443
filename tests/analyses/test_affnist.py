"""The table of a series against numbers computed by hand, its drawings, and the command."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.command_line import fine, run

from capsviz import data, results
from capsviz.analyses import affnist
from capsviz.analyses.affnist import measure
from capsviz.analyses.affnist import series as series_of
from capsviz.experiments import affnist as generalisation


def result(network, seed, hits, state="matched", **more):
    """Return what the experiment writes for given correct answers."""
    hits = np.array(hits, bool)
    accuracy = {"n": len(hits), "accuracy": float(hits.mean()), "accuracy_ci95": [0, 1]}
    terms = {"target": 0.9923, "checks": 4, "epochs": 50, "batch_size": 128}
    terms |= {"limit": None, "train_limit": None}
    return {
        "network": network, "seed": seed, "state": state, "parameters": 1000,
        "terms": {**terms, "precision": "bf16"},
        "held_out": {"accuracy": 0.993}, "test": {"accuracy": 0.99}, "affnist": None,
        "affnist_like": {**accuracy, "right": generalisation.pack(hits)}, **more,
    }  # fmt: skip


def tabulate(series, n=400):
    """Return the table for images that are all shifted as far as in training, or by 7 px."""
    names = ("angle_deg", "shear", "scale_x", "scale_y", "shift_x_px", "shift_y_px")
    moves = dict.fromkeys(names, np.ones(n)) | {"shift_x_px": 6 + np.arange(n) % 2.0}
    return affnist.tabulate(series, moves)


@pytest.fixture
def series():
    draw = np.random.default_rng(0).random((4, 400))
    return [
        result("capsnet", 0, draw[0] < 0.8),
        result("capsnet", 1, draw[1] < 0.7),
        result("average", 0, draw[2] < 0.9),
        result("average", 2, draw[3] < 0.9),
        result("average", 0, draw[2] < 0.95, state="full"),
    ]


def test_the_gap_is_paired_over_the_seeds_that_both_have(series):
    table = tabulate(series)
    assert table.networks == ["capsnet", "average", "average"]
    assert table.states == ["matched", "matched", "full"] and table.seeds == [[0, 1], [0, 2], [0]]
    by_seed = [r["affnist_like"]["accuracy"] for r in series]
    assert table.affine.value[0] == pytest.approx(np.mean(by_seed[:2]))
    np.testing.assert_allclose(table.affine_range[0], sorted(by_seed[:2]))
    a, b = (
        generalisation.unpack(series[i]["affnist_like"]["right"], 400).astype(float) for i in (2, 0)
    )
    difference = a - b
    gap = table.affine.difference
    assert gap.value[1] == pytest.approx(difference.mean())
    half = 1.959964 * difference.std(ddof=1) / np.sqrt(400)
    np.testing.assert_allclose(gap.ci95[1], difference.mean() + np.array([-half, half]))
    assert np.isnan(gap.value[0]) and np.isnan(gap.value[2])  # itself, and no CapsNet in full


def test_intervals_are_over_digits_and_over_seeds():
    one = np.random.default_rng(0).random(400) < 0.8
    alike = tabulate([result("capsnet", seed, one) for seed in range(3)]).affine
    alone = tabulate([result("capsnet", 0, one)]).affine
    np.testing.assert_allclose(alike.ci95, alone.ci95)  # seeds that agree add nothing
    hits = [one.copy() for _ in range(3)]
    hits[1][:40], hits[2][40:60] = False, False
    unlike = tabulate([result("capsnet", seed, h) for seed, h in enumerate(hits)]).affine
    shares, mean = [h.mean() for h in hits], np.mean(hits, 0)
    digits = 1.959964 * mean.std(ddof=1) / 20
    seeds = 4.302653 * np.std(shares, ddof=1) / 3**0.5  # Student's t of two degrees of freedom
    half = np.hypot(digits, seeds)
    np.testing.assert_allclose(unlike.ci95[0], [mean.mean() - half, mean.mean() + half], rtol=1e-5)
    hits = [np.ones(400, bool), np.ones(400, bool), one]
    ends = tabulate([result("capsnet", seed, h) for seed, h in enumerate(hits)]).affine
    assert ends.high[0] == 1 and ends.low[0] > 0  # no share is above 1


def test_variants_of_one_digit_count_as_one(monkeypatch):
    """Four equal variants of each of 50 digits give no more information than one of each."""
    monkeypatch.setattr(generalisation, "ORIGINALS", 50)
    hits = np.random.default_rng(1).random(50) < 0.6
    one = tabulate([result("capsnet", 0, hits)], 50)
    four = tabulate([result("capsnet", 0, np.tile(hits, 4))], 200)
    np.testing.assert_allclose(four.affine.ci95, one.affine.ci95)


def test_results_that_cannot_be_compared_are_refused(series):
    with pytest.raises(ValueError, match="no results yet"):
        tabulate([])
    other = {**series[0], "terms": {**series[0]["terms"], "target": 0.9}}
    with pytest.raises(ValueError, match="the results differ in target"):
        tabulate([*series, other])
    with pytest.raises(ValueError, match="differ in images of affnist_like: 2, 400"):
        tabulate([*series, result("resnet", 0, [1, 0])])


def test_tasks_divide_networks_times_seeds_and_draw_nothing(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(
        series_of.experiment, "run", lambda name, seed, *_, **__: ran.append((name, seed))
    )
    monkeypatch.chdir(tmp_path)
    words = ["affnist", "--run", "--seeds", "2", "--folder", "shared", "--task"]
    for i in (1, 2, 3):
        done = run(*words, f"{i}/3")
        assert done.exit_code == 0 and not done.stdout, done.output
    everything = [(name, seed) for seed in range(2) for name in series_of.experiment.NETWORKS]
    assert sorted(ran) == sorted(everything) and ran[1] == everything[3]


def test_variants_are_drawn_beside_their_original(digits):
    part = data.load("digits", "test")
    table = affnist.variants(part)
    assert table.images.shape == (10, 17, 1, 40, 40) and table.images.dtype == np.uint8
    first = part.images[int((part.labels == 4).nonzero()[0]), 0].numpy()
    np.testing.assert_array_equal(table.images[4, 0, 0, 6:-6, 6:-6], first)
    assert len({image.tobytes() for image in table.images[4]}) == 17


def test_the_command_draws_and_tabulates_what_is_there(series, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = Path("results")
    folder.mkdir()
    for r in series:
        path = generalisation.result_path(folder, r["network"], r["seed"], r["state"])
        path.write_text(json.dumps(r))
    out = tmp_path / "out"
    found = fine(run("affnist", "--folder", folder, "--output", out, "--format", "png"))
    assert {p.name for p in out.iterdir()} == {
        f"affnist-folder-results{end}" for end in (".md", ".tex", ".json", ".png", "-factors.png")
    }
    text = (out / "affnist-folder-results.md").read_text()
    table = tabulate(series)
    assert f"{100 * table.affine.value[1]:.2f}" in text
    assert f"{100 * table.affine.difference.value[1]:+.2f} [" in text
    assert "accuracy on affnist_like, average, full" in found.output


@pytest.fixture
def moved():
    """Only the shift of 400 images matters: CapsNet errs beyond 6 px."""
    draw = np.random.default_rng(2)
    transforms = {
        "angle_deg": draw.uniform(-20, 20, 400), "shear": draw.uniform(-0.2, 0.2, 400),
        "scale_x": draw.uniform(0.8, 1.2, 400), "scale_y": draw.uniform(0.8, 1.2, 400),
        "shift_x_px": draw.uniform(-10, 10, 400), "shift_y_px": draw.uniform(-3, 3, 400),
    }  # fmt: skip
    beyond = abs(transforms["shift_x_px"]) > 6
    capsnet = np.where(beyond, draw.random(400) < 0.3, draw.random(400) < 0.95)
    other = draw.random(400) < 0.9
    return transforms, beyond, [result("capsnet", 0, capsnet), result("resnet", 0, other)]


def hits(one):
    return generalisation.unpack(one["affnist_like"]["right"], one["affnist_like"]["n"])


def test_inside_and_outside_are_accuracies_by_the_size_of_the_shift(moved):
    transforms, beyond, series = moved
    table = affnist.tabulate(series, transforms)
    capsnet, resnet = map(hits, series)
    assert table.share_outside == pytest.approx(beyond.mean())
    for estimate, mask in ((table.inside, ~beyond), (table.outside, beyond)):
        assert estimate.value[0] == pytest.approx(capsnet[mask].mean())
        less = resnet[mask].astype(float) - capsnet[mask]
        assert estimate.difference.value[1] == pytest.approx(less.mean())
        half = np.diff(estimate.difference.ci95[1])[0] / 2
        assert half == pytest.approx(1.96 * less.std() / np.sqrt(mask.sum()), rel=0.02)


def test_a_factor_is_binned_and_all_but_the_shift_inside_the_training_shifts(moved):
    transforms, beyond, series = moved
    table = affnist.tabulate(series, transforms)
    largest = np.maximum(abs(transforms["shift_x_px"]), abs(transforms["shift_y_px"]))
    bin_of = (largest >= 7) & (largest < 8)
    assert table.by_factor.value[0, 0, 4] == pytest.approx(hits(series[0])[bin_of].mean())
    assert table.levels[0, 4] == pytest.approx(largest[bin_of].mean())
    angle = transforms["angle_deg"]
    first = (angle < -15) & ~beyond
    assert table.by_factor.value[1, 1, 0] == pytest.approx(hits(series[1])[first].mean())


def test_a_factor_is_drawn_even_if_a_bin_is_empty(moved):
    transforms, _, series = moved  # none is shifted by more than 10 px
    table = affnist.tabulate(series, transforms)
    shift, *_ = affnist.Series().draw(table, part="factors").axes
    assert np.isnan(table.levels[0]).tolist() == [False] * 6 + [True] * 2
    assert np.isfinite(shift.lines[0].get_xdata()).sum() == 6


def test_the_loss_is_attributed_to_the_factor_that_causes_it(moved, monkeypatch):
    transforms, _, series = moved
    assert affnist.tabulate(series, transforms).lost is None  # too few for a fit
    monkeypatch.setattr(measure, "FEWEST", 400)
    table = affnist.tabulate(series, transforms)
    assert table.lost.value[0].argmax() == 0 and table.lost.low[0, 0] > 0.15
    lost, upright = table.lost.value, table.upright
    np.testing.assert_allclose(upright - lost.sum(1), table.affine.value, atol=1e-4)
    np.testing.assert_allclose(table.lost_share.value.sum(1), 1)
    assert table.lost.difference.value[1, 0] == pytest.approx(lost[1, 0] - lost[0, 0])
    gap = 100 * table.outside.difference.value[1]
    assert f"{gap:+.1f} points outside" in affnist.Series().verdict(table)


def test_places_and_factors_are_drawn_and_read_back(moved, monkeypatch, tmp_path):
    transforms, _, series = moved
    monkeypatch.setattr(measure, "FEWEST", 400)
    table = affnist.tabulate(series, transforms)
    path = results.save(tmp_path / "a", "affnist", table, formats=())[-1]
    again, _ = results.read_result(path)
    np.testing.assert_array_equal(again.outside.difference.ci95, table.outside.difference.ci95)
    _, gap, lost, *_ = results.draw("affnist", again).axes
    (beyond,) = (x.get_xdata()[0] for x in gap.lines if x.get_marker() == "v")
    assert beyond == pytest.approx(100 * table.outside.difference.value[1])
    drawn = [x.get_xdata()[0] for x in lost.lines if x.get_marker() == "s"]
    np.testing.assert_allclose(drawn, 100 * table.lost.value.ravel())


def test_the_shipped_series_is_distinguished_by_position():
    """The numbers are fixed; no image is needed."""
    table = affnist.shipped()
    assert table.networks == ["capsnet", "cnn", "average", "resnet"]
    assert table.seeds == [[0, 1, 2], [0], [0, 1, 2], [0, 1, 2]] and table.target == 0.9923
    assert table.share_outside == pytest.approx(0.66, abs=0.005)
    np.testing.assert_allclose(table.affine.value, [0.789, 0.814, 0.927, 0.960], atol=0.001)
    np.testing.assert_allclose(table.inside.value, [0.954, 0.961, 0.956, 0.957], atol=0.001)
    np.testing.assert_allclose(table.outside.value, [0.705, 0.738, 0.913, 0.962], atol=0.001)
    assert (table.lost.value[:3].argmax(1) == 0).all() and table.lost.high[3, 0] < 0.01


def test_captions_count_no_image_that_lies_outside_among_those_inside():
    said = affnist.Series().caption(affnist.shipped(), "factors")
    assert said.count("10,000") == 1 and "on 10,000 images by shift" in said
    assert "inside training shifts by angle" in said
