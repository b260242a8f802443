"""One image in several networks, and one pose changed."""

import json

import numpy as np
import pytest
import torch
from helpers.command_line import fine, run
from helpers.figure_checks import assert_fits
from helpers.fixtures import build_tiny

from capsviz import results, tracing
from capsviz.analyses import view
from capsviz.analyses.view import Warp, redecode
from capsviz.transforms.warps import rotate

NAMES = {"classes": ("a", "b", "c"), "names": ["one"]}


def test_the_scores_are_those_of_each_network_on_the_warped_image(tiny, tiny_images):
    other, image = build_tiny(iterations=1), tiny_images[:1]
    how = Warp(angle_deg=40.0)
    found = view.compute(
        tiny, image, 1, classes=NAMES["classes"], others=[other], names=["one", "two"], warp=how
    )
    rotated = rotate(image, 40.0).clamp(0, 1)
    for k, network in enumerate((tiny, other)):
        expected = tracing.trace(network, rotated, keep=("lengths",)).lengths[0].numpy()
        np.testing.assert_allclose(found.scores[k], expected, rtol=1e-5)
    assert found.warp["angle_deg"] == 40 and found.warp["scale"] == 1
    assert (found.image != found.warped).any()
    for warp, fill in ((how, "edge"), (Warp(), "black")):  # nothing is outside an image as it is
        seen = view.compute(tiny, image, 1, **NAMES, warp=warp, fill="edge")
        assert seen.fill == fill


def test_a_change_is_added_to_one_class_and_decoded(tiny, tiny_images):
    found = view.compute(tiny, tiny_images[:1], capsule=1, changed=[(2, 0.3)], **NAMES)
    poses = tracing.trace(tiny, tiny_images[:1], keep=("poses",)).poses[-1].clone()
    np.testing.assert_array_equal(found.pose, poses[0, 1])
    poses[0, 1, 2] += 0.3
    expected = tracing.decode(tiny, poses, torch.tensor([1]))[0]
    np.testing.assert_array_equal(found.changed, (expected * 255).round().byte().numpy())


def test_a_network_without_a_decoder_shows_no_decoded_image(tiny_images):
    found = view.compute(build_tiny(reconstruction_weight=0), tiny_images[:1], **NAMES)
    assert found.own is None and found.changed is None
    assert_fits(results.draw("view", found))
    assert redecode(build_tiny(reconstruction_weight=0), np.zeros((3, 6)), 0, [0] * 6) is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"capsule": -1}, "no class -1"),
        ({"changed": [(6, 0.1)]}, "dimensions 0 to 5"),
        ({"warp": Warp(angle_deg=float("nan"))}, "an angle within ±360°, got 1 and nan°"),
    ],
)
def test_a_class_changes_or_a_warp_that_do_not_fit_are_refused(tiny, tiny_images, wrong, message):
    with pytest.raises(ValueError, match=message):
        view.compute(tiny, tiny_images[:1], **NAMES, **wrong)


def test_interventions_reach_the_first_network(tiny, tiny_images):
    found = view.compute(
        tiny, tiny_images[:1], **NAMES, couplings="uniform", routing="couplings uniform"
    )
    expected = tracing.trace(tiny, tiny_images[:1], keep=("lengths",), couplings="uniform").lengths
    np.testing.assert_allclose(found.scores[0], expected[0].numpy(), rtol=1e-6)
    assert "changed: couplings uniform" in view.View().verdict(found)


def test_the_command_writes_what_it_says(tmp_path):
    args = "view --checkpoint digits --digit 3 --angle 20 --change 4 0.2 --format png --json"
    done = fine(run(*args.split(), "--output", tmp_path))
    found = json.loads(done.stdout)
    assert found["changes"][4] == 0.2 and found["warp"]["angle_deg"] == 20
    result, about = results.read_result(tmp_path / "view-digits-3-0-angle-20-change-4-0.2.json")
    assert about["analysis"] == "view" and result.label == 3
    np.testing.assert_allclose(result.scores, found["scores"])
