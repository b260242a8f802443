"""The table of a series against numbers worked out by hand, its drawings, and the command."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from analyses import _affnist_command as series_command
from analyses import affnist
from capsviz import affine_scores, data, discovery, figures, generalisation
from capsviz.cli import main


def result(network, seed, hits, state="matched", **more):
    """What `generalisation.run` writes, of given hits."""
    hits = np.array(hits, bool)
    accuracy = {"n": len(hits), "accuracy": float(hits.mean()), "accuracy_ci95": [0, 1]}
    terms = {"target": 0.9923, "checks": 4, "epochs": 50, "batch_size": 128}
    terms |= {"limit": None, "train_limit": None}
    return {
        "network": network, "seed": seed, "state": state, "parameters": 1000,
        "terms": {**terms, "precision": "bf16"},
        "held_out": {"accuracy": 0.993}, "test": {"accuracy": 0.99}, "affnist": None,
        "affnist_like": {**accuracy, "right": affine_scores.pack(hits)}, **more,
    }  # fmt: skip


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


def test_accuracies_are_means_over_seeds_with_their_range(series):
    found = affnist.compute(series)
    assert found.networks == ["capsnet", "average", "average"]
    assert found.states == ["matched", "matched", "full"]
    assert found.seeds == [[0, 1], [0, 2], [0]]
    by_seed = [r["affnist_like"]["accuracy"] for r in series]
    assert found.affine[0] == pytest.approx(np.mean(by_seed[:2]))
    np.testing.assert_allclose(found.affine_range[0], sorted(by_seed[:2]))
    assert found.n == 400 and found.target == 0.9923


def test_the_gap_is_paired_over_the_seeds_that_both_have(series):
    found = affnist.compute(series)
    a, b = (
        affine_scores.unpack(series[i]["affnist_like"]["right"], 400).astype(float) for i in (2, 0)
    )
    difference = a - b
    assert found.gap[1] == pytest.approx(difference.mean())
    half = 1.959964 * difference.std(ddof=1) / np.sqrt(400)
    np.testing.assert_allclose(found.gap_ci95[1], difference.mean() + np.array([-half, half]))
    assert np.isnan(found.gap[0]) and np.isnan(found.gap[2])  # itself, and no CapsNet in full


def test_variants_of_one_digit_count_as_one(monkeypatch):
    """Four equal variants of each of 50 digits say no more than one of each."""
    monkeypatch.setattr(affine_scores, "ORIGINALS", 50)
    hits = np.random.default_rng(1).random(50) < 0.6
    one = affnist.compute([result("capsnet", 0, hits)])
    four = affnist.compute([result("capsnet", 0, np.tile(hits, 4))])
    np.testing.assert_allclose(four.affine_ci95, one.affine_ci95)


def test_results_that_cannot_be_compared_are_refused(series):
    with pytest.raises(ValueError, match="no results yet"):
        affnist.compute([])
    others = {"target": 0.9, "checks": 1, "batch_size": 32, "train_limit": 9, "precision": "fp32"}
    for name, value in others.items():
        other = {**series[0], "terms": {**series[0]["terms"], name: value}}
        with pytest.raises(ValueError, match=f"the results differ in {name}"):
            affnist.compute([*series, other])
    with pytest.raises(ValueError, match="differ in images of affnist_like: 2, 400"):
        affnist.compute([*series, result("resnet", 0, [1, 0])])


def test_full_results_of_unlike_length_are_refused_and_matched_ones_are_not(series):
    longer = {**series[2], "seed": 5, "terms": {**series[2]["terms"], "epochs": 90}}
    assert affnist.compute([*series, longer]).seeds[1] == [0, 2, 5]
    with pytest.raises(ValueError, match="full results differ in epochs: 50, 90"):
        affnist.compute([*series, {**longer, "state": "full"}])


def test_real_affnist_is_reported_where_it_was_scored(series):
    series[0]["affnist"] = {"accuracy": 0.79, "n": 10}
    assert np.isnan(affnist.compute(series).affnist).all()  # one seed of two
    series[1]["affnist"] = {"accuracy": 0.77, "n": 10}
    found = affnist.compute(series)
    assert found.affnist[0] == pytest.approx(0.78) and np.isnan(found.affnist[1:]).all()


def test_variants_stand_beside_their_original(digits):
    part = data.load("digits", "test")
    found = affnist.variants(part)
    assert found.images.shape == (10, 17, 1, 40, 40) and found.images.dtype == np.uint8
    first = part.images[int((part.labels == 4).nonzero()[0]), 0].numpy()
    np.testing.assert_array_equal(found.images[4, 0, 0, 6:-6, 6:-6], first)
    assert len({image.tobytes() for image in found.images[4]}) == 17


@pytest.mark.parametrize("width", [3.5, 7.16])
def test_every_row_is_drawn_and_survives_the_disk(series, tmp_path, width):
    made = affnist.compute(series)
    path = figures.save(tmp_path / "a", "affnist", made, formats=("png",), width=width)[-1]
    again, _ = figures.read_result(path)
    np.testing.assert_array_equal(again.gap, made.gap)
    drawn = figures.draw("affnist", again, width)
    left = drawn.axes[0]
    assert [t.get_text() for t in left.get_yticklabels()] == [
        "CapsNet, 3 iterations",
        "ConvNet, average pooling",
    ]
    for style, values in (("full", made.affine), ("none", made.test)):
        points = [
            x
            for line in left.lines
            if line.get_marker() in "os" and line.get_fillstyle() == style
            for x in line.get_xdata()
        ]
        np.testing.assert_allclose(points, 100 * values)


def command(*words, **more):
    return CliRunner().invoke(main, ["affnist", *words], **more)


def test_the_command_draws_and_tabulates_what_is_there(series, tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    for r in series:
        path = generalisation.result_path(folder, r["network"], r["seed"], r["state"])
        path.write_text(json.dumps(r))
    out = tmp_path / "out"
    found = command("--folder", str(folder), "--output", str(out), "--format", "png")
    assert found.exit_code == 0, found.output
    assert {p.name for p in out.iterdir()} == {
        "affnist.md", "affnist.tex", "affnist.json", "affnist.png",
    }  # fmt: skip
    text = (out / "affnist.md").read_text()
    made = affnist.compute(series)
    assert f"{100 * made.affine[1]:.2f}" in text and f"{100 * made.gap[1]:+.2f} [" in text
    assert "matched at 99.23 % held-out accuracy" in found.output
    assert "1 seed)" in found.output


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--run", "--seeds", "0"), 2, "at least 1 seed, got 0"),
        (("--networks", "capsnet-2"), 2, "unknown network 'capsnet-2'"),
        (("--folder", "nowhere"), 2, "no results yet: make some by capsviz affnist --run"),
        (("--limit", "5", "--epochs", "3"), 2, "drop --epochs, --limit or add --run"),
        (("--run", "--match-accuracy", "99.23"), 2, "must be in (0, 1), got 99.23"),
        (("--run", "--epochs", "0"), 2, "epochs must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(words, code, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = command(*words)
    assert found.exit_code == code and text in found.output, found.output
    assert len(found.output.strip().splitlines()) == 1


def test_the_shipped_figure_is_of_the_shipped_results():
    drawn, _ = figures.read_result(discovery.folder("figures") / "affnist.json")
    made = affnist.compute(series_command.shipped())
    assert drawn.networks == made.networks
    for name in ("held_out", "test", "affine", "gap_ci95"):
        np.testing.assert_array_equal(getattr(drawn, name), getattr(made, name))
