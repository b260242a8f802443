"""Rotate: the numbers are those of single images turned one by one."""

import numpy as np
import pytest
import torch
from helpers.fixtures import build_tiny
from helpers.plain_capsnet import Foreign

from capsviz.analyses import rotate
from capsviz.analyses.rotate import draw
from capsviz.analyses.rotate.draw import frames
from capsviz.nn import models
from capsviz.transforms.warps import rotate as turn

CLASSES = ["a", "b", "c"]
ONE = rotate.Rotate()


@pytest.fixture
def result(tiny, tiny_images):
    return ONE.measure(tiny, tiny_images[:1], 1, classes=CLASSES, step=60.0)


def test_each_angle_is_one_warp_of_the_original(tiny, tiny_images, result):
    assert result.angles_deg.tolist() == [0, 60, 120, 180, 240, 300, 360]
    for i, angle in enumerate(result.angles_deg):
        image = turn(tiny_images[:1], float(angle)).clamp(0, 1)
        with torch.no_grad():
            output = tiny(image)
            winner = output.lengths.argmax(1)
            made = tiny.decode(output.poses, winner)
        assert np.allclose(result.lengths[i], output.lengths[0], atol=1e-6)
        assert result.predicted[i] == int(winner)
        assert result.sse[i] == pytest.approx(float((made - image).square().sum()), rel=1e-4)
        assert np.abs(result.inputs[i] / 255 - image[0].numpy()).max() <= 0.5 / 255 + 1e-6


def test_changes_name_the_first_angle_of_each_prediction(result):
    predicted = np.array([2, 2, 0, 0, 1, 1, 2])
    found = rotate.changes(result._replace(predicted=predicted))
    assert found == [(0, "c"), (120, "a"), (240, "b"), (360, "c")]
    assert "as a from 120°" in ONE.findings(result._replace(predicted=predicted))


def test_the_animation_has_a_frame_for_each_angle_but_the_repeated_last(result, monkeypatch):
    made = list(frames(result, 360))
    assert len(made) == 6 and made[0].shape[1] == 360 and made[0].dtype == np.uint8
    assert (made[0] != made[3]).any()
    monkeypatch.setattr(draw, "FRAMES", 4)
    assert len(list(frames(result, 300))) == 3  # of many angles every k-th


def test_pictures_of_one_angle_no_label_and_colour_are_drawn():
    model = Foreign(image_shape=(3, 20, 24), classes=4)
    image = torch.rand(1, 3, 20, 24)
    found = ONE.measure(model, image, classes=["plane", "car", "bird", "cat"], stop=0.0)
    assert len(list(frames(found, 300))) == 1
    ONE.draw(found, width=3.5)
    assert found.inputs.shape == (1, 3, 20, 24)


def test_a_network_without_decoder_is_turned_without_reconstructions(tiny_images):
    model = build_tiny(reconstruction_weight=0.0)
    found = ONE.measure(model, tiny_images[:1], 1, classes=CLASSES, step=60.0)
    assert found.reconstructions is None and found.sse is None
    with torch.no_grad():
        lengths = model(turn(tiny_images[:1], 60.0).clamp(0, 1)).lengths
    assert np.allclose(found.lengths[1], lengths[0], atol=1e-6)
    strip = ONE.draw(found).axes[0]
    assert [label.get_text() for label in strip.get_yticklabels()] == ["input"]
    assert len(list(frames(found, 300))) == 6


def test_a_network_without_capsules_is_turned_by_its_probabilities(tiny_images):
    model = models.build("cnn", tiny_images.shape[1:], 3, kernel=3, channels=(4, 4, 4), hidden=(8,))
    found = ONE.measure(model, tiny_images[:1], 1, classes=CLASSES, step=60.0)
    assert found.score == "probability" and np.allclose(found.lengths.sum(1), 1, atol=1e-5)
    assert ONE.draw(found).axes[-1].get_ylabel() == "probability"
