"""Detect: scores are those of single images, and shares are counts."""

from unittest import mock

import numpy as np
import pytest
import torch
from helpers import command_line, noise_images
from PIL import Image
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from capsviz import pictures
from capsviz.analyses.detect import Detect, measure
from capsviz.experiments import attacks
from capsviz.inputs.opening import open_inputs
from capsviz.statistics.intervals import wilson
from capsviz.transforms import warps

LABELS = torch.arange(8) % 3
SETS = ["unchanged", "APGD 0.1", "adaptive 0.1", "rotated 90°", "rotated 45°–315°", "other"]
QUICK = {"classes": ["a", "b", "c"], "dataset": "noise", "steps": 2, "eps": (0.1,)}

model = noise_images.model


def validation():
    return torch.rand(20, 1, 21, 19, generator=torch.Generator().manual_seed(3))


def run(model, images, labels=LABELS, *, other=None, held_out=None, **more):
    """Measure with another data set and validation images instead of those of `inputs`."""
    other = images.flip(3).square() if other is None else other
    beside = validation() if held_out is None else held_out, {"other": other}, []
    with mock.patch.object(measure, "beside", lambda inputs, n, foreign: beside):
        return Detect().measure(model, images, labels, inputs=None, **QUICK | more)


@pytest.fixture
def result(model, tiny_images):
    return run(model, tiny_images)


def looked_at(model, images):
    """Return predictions, and distances (N, J) to every capsule's reconstruction, one by one."""
    with torch.no_grad():
        output = [model(image[None]) for image in images]
        made = [[model.decode(o.poses, torch.tensor([j])) for j in range(3)] for o in output]
    won = np.array([int(o.lengths.argmax()) for o in output])
    gaps = [[float((m - i).norm()) for m in row] for row, i in zip(made, images, strict=True)]
    return won, np.array(gaps), made


def test_scores_are_those_of_single_images(model, tiny_images, result):
    """Controls: another capsule, the winning capsule of the next image, the class average."""
    own = looked_at(model, validation())[0]
    assert len(set(own.tolist())) < 3  # a class that is never predicted: the average of all
    average = [validation()[own == j if j in own else slice(None)].mean(0) for j in range(3)]
    look, ball = attacks.on_scores(model, attacks.LOSSES["apgd-ce"]), attacks.Ball(0.1)
    how = {"steps": QUICK["steps"], "leave": False}
    shown = {
        "unchanged": tiny_images,
        "APGD 0.1": attacks.apgd(model, look, tiny_images, LABELS, ball, **how).images,
        "rotated 90°": warps.rotate(tiny_images, 90.0).clamp(0, 1),
        "other": tiny_images.flip(3).square(),
    }
    for name, images in shown.items():
        a = SETS.index(name)
        won, gaps, made = looked_at(model, images)
        assert result.predicted[a].tolist() == won.tolist()
        assert np.allclose(result.values[a, 0], gaps[range(8), won], atol=1e-4)
        for i in range(8):
            others = np.delete(gaps[i], won[i])
            assert np.abs(others - result.values[a, 1, i]).min() < 1e-4
            after = (i + 1) % 8
            far = float((made[after][won[after]] - images[i]).norm())
            assert result.values[a, 2, i] == pytest.approx(far, abs=1e-4)
            far = float((average[won[i]] - images[i]).norm())
            assert result.values[a, 3, i] == pytest.approx(far, abs=1e-4)


def test_shares_are_counts_with_wilson_intervals(result):
    limit = np.percentile(result.validation, 95)
    assert result.threshold == pytest.approx(limit)
    for a, name in enumerate(SETS):
        wrong = [
            name == "other" or p != t
            for p, t in zip(result.predicted[a], LABELS.tolist(), strict=True)
        ]
        far = [d > limit for d in result.values[a, 0]]
        missed = [w and not f for w, f in zip(wrong, far, strict=True)]
        for share, made in (("misclassified", wrong), ("flagged", far), ("undetected", missed)):
            estimate = getattr(result, share)[a]
            assert estimate.value == sum(made) / 8
            assert tuple(estimate.ci95) == pytest.approx(wilson(sum(made), 8))


def test_aurocs_are_against_the_first_set_and_gains_against_the_controls(result):
    for a, s in np.ndindex(len(SETS) - 1, 5):
        both = np.concatenate([result.values[0, s], result.values[a + 1, s]])
        assert result.auroc.value[a, s] == pytest.approx(roc_auc_score([0] * 8 + [1] * 8, both))
    assert np.allclose(result.gain.value, result.auroc.value[:, :1] - result.auroc.value[:, 1:])


def test_intervals_of_aurocs_near_1_and_of_their_gains_cover_the_truth():
    """Scores of normal distributions with AUROC 0.99 and 0.98, where percentiles undercover."""
    draw, covered = np.random.default_rng(0), []
    moved = np.sqrt(2) * norm.ppf([[0.99], [0.98]])
    for seed in range(60):
        values = np.stack([draw.normal(size=(2, 20)), draw.normal(size=(2, 20)) + moved])
        area, gain = measure.areas(values, [False, True], seed)
        covered.append(
            [area.low[0, 0] <= 0.99 <= area.high[0, 0], gain.low[0, 0] <= 0.01 <= gain.high[0, 0]]
        )
    assert (np.mean(covered, 0) >= 0.93).all()


def test_another_data_set_with_too_few_images_is_left_out(monkeypatch, tmp_path):
    from capsviz import data

    opened = open_inputs(dataset="digits", data_dir=tmp_path)
    small = opened.dataset.first(4)
    there = data.load

    def load(name, *given, **more):
        return small if name == "fashion_mnist" else there(name, *given, **more)

    monkeypatch.setattr(data, "load", load)
    held_out, others, missing = measure.beside(opened, 5)
    assert len(held_out) == 180 and others == {} and "'fashion_mnist' has 4 images" in missing[0]
    assert measure.beside(opened, 4)[1]["fashion_mnist"].shape == (4, 1, 28, 28)
    with pytest.raises(ValueError, match="'fashion_mnist' has 4 images"):
        measure.beside(opened, 5, "fashion_mnist")
    for k in range(3):
        shown = np.zeros((60, 40), np.uint8)
        shown[10:50, 18 : 22 + 4 * k] = 255
        Image.fromarray(shown).save(tmp_path / f"{k}.png")
    _, others, _ = measure.beside(opened, 3, str(tmp_path))
    expected = [pictures.open_image(tmp_path / f"{k}.png", opened.model) for k in range(3)]
    assert torch.equal(others[tmp_path.name], torch.cat(expected))


def test_the_command_attacks_the_embedded_digits(blank, tmp_path):
    asked = ["detect", "--checkpoint", "digits", "--data-dir", str(tmp_path), "--n", "4"]
    asked += ["--steps", "1", "--eps", "0.1", "--format", "png", "--output", str(tmp_path)]
    done = command_line.run(*asked)
    assert done.exit_code == 0, done.output
    assert "adaptive 0.1" in done.stdout and "fashion_mnist is left out" in done.stdout
    stem = "detect-digits-4-images-eps-0.1-steps-1"
    ends = (".json", ".png", "-distances.png", "-examples.png")
    assert {p.name for p in tmp_path.glob("detect*")} == {f"{stem}{end}" for end in ends}
