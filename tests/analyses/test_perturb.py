"""Perturb: sheets decode the very poses they say, effects are those of a decoder that is known."""

import numpy as np
import pytest
import torch
from helpers.plain_capsnet import Foreign
from scipy.stats import t
from torch import nn

from capsviz import results
from capsviz.analyses import perturb
from capsviz.statistics.comparison import holm
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.moments import moments

DIGITS = [str(k) for k in range(10)]


class Boxes(nn.Module):
    """A network whose poses are given by the images, and whose decoder draws a soft box.

    Dimensions 0 to 3 of a pose are, in units of 0.1, the box's shift along x, its height, its slant
    (1: the top leans right by a pixel per row), and nothing.
    """

    grid = (1, 1, 1)

    def look(self, images, *, keep, couplings=None, iterations=None):
        poses = images[:, 0, :2, :4] - 0.5
        return {"poses": poses[None], "lengths": poses.norm(dim=-1)}

    def decode(self, poses, classes):
        pose = 10 * poses[torch.arange(len(poses)), classes].double()
        shift, taller, lean, _ = pose[:, :, None, None].unbind(1)
        axis = torch.arange(41, dtype=torch.float64) - 20
        y, x = axis[None, :, None], axis[None, None, :]
        inside = 4 - (x - shift - lean * y).abs()
        within = 9 + taller / 2 - y.abs()
        return (torch.sigmoid(3 * inside) * torch.sigmoid(3 * within))[:, None].float()


@pytest.fixture
def boxes(generator):
    """Images (30, 1, 41, 41) whose poses scatter about 0 by up to 0.1; class 1 is the longer."""
    images = torch.full((30, 1, 41, 41), 0.5)
    images[:, 0, 1, :4] += 0.2 * torch.rand(30, 4, generator=generator) - 0.1
    return images


@pytest.fixture
def measured(boxes):
    return perturb.evaluate(Boxes(), boxes, capsule=1, classes=["a", "b"], dataset="boxes")


@pytest.fixture(scope="module")
def foreign():
    return Foreign()


@pytest.fixture(scope="module")
def twos(digits):
    images, labels = digits
    return images[labels == 2][:12]


@pytest.fixture(scope="module")
def statistics(foreign, twos):
    return perturb.evaluate(foreign, twos, capsule=2, classes=DIGITS, dataset="digits")


def effect(statistics, dimension, measure):
    return statistics.effect.value[dimension, statistics.measures.index(measure)]


def test_effects_of_a_decoder_that_moves_stretches_and_slants_are_found(measured):
    assert effect(measured, 0, "x_px") == pytest.approx(1, abs=0.02)
    assert effect(measured, 1, "height_px") == pytest.approx(1, abs=0.05)
    # one unit shears by 45 degrees from upright: half the difference of +45 and -45, about
    assert effect(measured, 2, "slant_deg") == pytest.approx(-45, abs=6)
    assert abs(effect(measured, 0, "height_px")) < 1e-3
    assert abs(effect(measured, 1, "x_px")) < 0.05


def test_captions_name_the_largest_clear_effect_and_none_where_nothing_changes(measured):
    texts = perturb.captions(measured)
    low, high = measured.effect.ci95[0, measured.measures.index("x_px")]
    assert 0 < high - low < 0.001
    text = f"centre further right by {(low + high) / 2:.3f} ±0.001 px"
    assert texts[0] == text, "no second one that is half as large"
    assert texts[1].startswith("taller by") and texts[2].startswith("leans left by")
    assert texts[3] == "no clear effect"
    assert "dim 3: no clear effect" in perturb.Effects().findings(measured)


def test_a_caption_names_a_second_effect_that_is_at_least_half_as_large(measured):
    standardised = measured.standardised.copy()
    width, stroke = (measured.measures.index(name) for name in ("width_px", "thickness_px"))
    standardised[1] = 0
    value, ends = measured.effect.value.copy(), measured.effect.ci95.copy()
    for m, size in ((width, 1.0), (stroke, -0.6)):
        standardised[1, m] = value[1, m] = size
        ends[1, m] = size - 0.01, size + 0.01
    effect = Estimate(value, ends, measured.effect.n)
    both = measured._replace(standardised=standardised, effect=effect)
    assert perturb.captions(both)[1] == "wider by 1.00 ±0.01 px, thinner by 0.60 ±0.01 px"
    standardised[1, stroke] = -0.4
    assert perturb.captions(both)[1] == "wider by 1.00 ±0.01 px"


def test_clear_effects_are_those_of_holms_method_over_the_whole_table(measured):
    """Twin: p-values from scipy; intervals alone would let more through."""

    draw = np.random.default_rng(4)
    effect = draw.normal(size=(4, 6)) * np.array([4, 2, 1, 1])[:, None]
    half = t.ppf(0.975, measured.n - 1)
    ends = np.stack([effect - half, effect + half], 2)
    measured = measured._replace(effect=Estimate(effect, ends))
    p = 2 * t.sf(np.abs(effect), measured.n - 1).ravel()
    clear = perturb.clear(measured)
    assert np.array_equal(clear.ravel(), holm(p) < 0.05) and 0 < clear.sum() < 24
    outside = (measured.effect.low > 0) | (measured.effect.high < 0)
    assert clear.sum() < outside.sum() and (outside | ~clear).all()


def test_a_sheet_shows_the_six_dimensions_that_change_the_image_most(digits):
    model = Foreign(E=9)
    images, labels = digits
    statistics = perturb.evaluate(
        model, images[labels == 2][:9], capsule=2, classes=DIGITS, dataset="digits"
    )
    few = perturb.change_each(model, images[:1], statistics=statistics)
    every = perturb.change_each(model, images[:1], statistics=statistics, every=True)
    assert few.dimensions == np.argsort(-statistics.difference.value)[:6].tolist()
    assert every.dimensions == list(range(9)) and few.count == every.count == 9
    for row, d in enumerate(few.dimensions):
        assert np.array_equal(few.images[row], every.images[d])
        assert few.captions[row] == every.captions[d]
        assert f"dim {d}: {few.captions[row]}" in perturb.Sheet().findings(few)
    assert few.tests == 54


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [
        (1, 0.02, "1.00 ±0.02"),
        (1, 0.0024, "1.000 ±0.002"),
        (1, 0.00004, "1.000 ±0.001"),  # an interval of some width never reads as none
        (0.0004, 0.0003, "0.0004 ±0.0003"),  # what is clear of zero reads so
        (0.008, 0.012, "0.01 ±0.01"),
    ],
)
def test_a_mean_and_its_interval_have_digits_enough(mean, half, text):
    assert perturb.plus_minus(mean, half) == text


@pytest.mark.parametrize(
    ("span", "step"), [(0.5, 0.1), (0.1, 0.1), (0.0986, 0.09), (0.0087, 0.008), (0, 0.1)]
)
def test_a_step_is_no_longer_than_the_poses_of_a_class_span(span, step):
    values = np.linspace(0, span / 0.9, 201)[:, None].repeat(3, 1)
    assert perturb.step_within(np.quantile(values, [0.05, 0.95], axis=0).T) == pytest.approx(step)


def test_effects_are_half_differences_of_two_decodings_averaged_over_images(
    foreign, twos, statistics
):
    with torch.no_grad():
        poses = foreign.look(twos, keep=())["poses"][-1]

        def measured_at(dimension, step):
            """Moments (12, 6) and pictures, image by image."""
            pictures = []
            for pose in poses:
                moved = pose.clone()
                moved[2, dimension] += step
                pictures.append(foreign.decode(moved[None], torch.tensor([2]))[0])
            pictures = torch.stack(pictures).numpy()
            return np.stack(moments(pictures), 1), pictures

        before, itself = measured_at(0, 0.0)
        step = statistics.step
        assert 0 < step < 0.1, "the poses of this network are small"
        assert statistics.spread == pytest.approx(before.std(0, ddof=1), rel=1e-4)
        for d in range(5):
            (up, pictures), (down, _) = measured_at(d, step), measured_at(d, -step)
            change = (up - down) / 2
            half = 2.201 * change.std(0, ddof=1) / 12**0.5  # Student's t of 12 images
            assert statistics.effect.value[d] == pytest.approx(change.mean(0), abs=1e-4)
            high = statistics.effect.high[d] - statistics.effect.value[d]
            assert high == pytest.approx(half, abs=1e-4)
            moved = np.abs(pictures - itself).mean((1, 2, 3))
            assert statistics.difference.value[d] == pytest.approx(moved.mean(), rel=1e-4)
            expected = np.quantile(poses[:, 2, d].numpy(), [0.05, 0.95])
            assert statistics.quantiles[d] == pytest.approx(expected, abs=1e-6)
    expected = statistics.effect.value / statistics.spread
    assert statistics.standardised == pytest.approx(expected)
    assert statistics.n == 12


@pytest.mark.parametrize("span", ["paper", "data"])
def test_a_sheet_decodes_the_pose_with_one_dimension_changed(foreign, twos, statistics, span):
    found = perturb.change_each(foreign, twos[:1], 2, statistics=statistics, span=span)
    with torch.no_grad():
        poses = foreign.look(twos[:1], keep=())["poses"][-1]
        for d in range(5):
            for column, value in enumerate(found.values[d]):
                moved = poses.clone()
                moved[0, 2, d] = value
                expected = foreign.decode(moved, torch.tensor([2]))[0].numpy()
                assert np.abs(found.images[d, column] / 255 - expected).max() <= 0.51 / 255
            own = found.own[d]
            assert found.values[d, own] == pytest.approx(float(poses[0, 2, d]), abs=1e-6)
            assert (found.images[d, own] == found.reconstruction).all()
            if span == "data":
                others = np.delete(found.values[d], own)
                assert others == pytest.approx(np.linspace(*statistics.quantiles[d], 10))
    assert (np.diff(found.values, axis=1) >= 0).all() and found.values.shape == (5, 11)


def test_images_whose_reconstruction_is_black_are_left_out(boxes):
    class Fading(Boxes):
        def decode(self, poses, classes):
            seen = (poses[:, 1, 3] > 0)[:, None, None, None]
            return super().decode(poses, classes) * seen

    boxes[:, 0, 1, 3] = 0.5 + torch.tensor([0.2] * 20 + [-0.2] * 10)
    found = perturb.evaluate(Fading(), boxes, capsule=1, classes=["a", "b"], dataset="x")
    assert found.n == 20 and np.isfinite(found.effect.value).all()
    with pytest.raises(ValueError, match="at least 2 images"):
        perturb.evaluate(Fading(), boxes[19:], capsule=1, classes=["a", "b"], dataset="x")


def test_measures_without_a_dark_ground_are_said_to_be_of_brightness(foreign, twos):
    """As on photographs: what is lighter than its ground is no thing that grows wider."""
    about = {"capsule": 2, "classes": DIGITS, "dataset": "noise"}
    for images, said in ((twos, False), (1 - 0.9 * twos, True)):
        statistics = perturb.evaluate(foreign, images, **about)
        assert ("no dark background" in perturb.Effects().verdict(statistics)) == said
        title = results.draw("perturb", statistics, "single")._suptitle.get_text()
        assert ("brightness" in title) == said
    sheet = perturb.change_each(foreign, twos[:1], 2, statistics=statistics)
    light = sheet._replace(images=255 - sheet.images // 2)
    assert "no dark background" in perturb.Sheet().verdict(light)
