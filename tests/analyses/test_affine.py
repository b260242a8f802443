"""Affine: variants keep their foreground, shares are counts, and gaps are paired over images."""

import numpy as np
import pytest
import torch
from helpers.command_line import fine, run
from helpers.plain_capsnet import Foreign

from capsviz import data, results
from capsviz.analyses.affine import Affine, measure
from capsviz.data.affnist_like import apply
from capsviz.inputs.opening import Inputs
from capsviz.results import sets
from capsviz.statistics.comparison import draw_resamples
from capsviz.tracing import scores


def measured(networks, images, labels, **options):
    return Affine().measure(
        networks, images, labels, dataset="x", **{"variants": 12, "trained_px": 2} | options
    )


class Middle(torch.nn.Module):
    """Predicts class 1 if most foreground is within `reach` pixels of the middle."""

    def __init__(self, reach):
        super().__init__()
        self.reach, self.like = reach, torch.nn.Parameter(torch.zeros(()))

    def forward(self, images):
        H, W = images.shape[2:]
        rows = (torch.arange(H) - (H - 1) / 2).abs() <= self.reach
        columns = (torch.arange(W) - (W - 1) / 2).abs() <= self.reach
        middle = images[:, :, rows][..., columns].sum((1, 2, 3))
        share = (middle / images.sum((1, 2, 3))).clamp(0, 1)
        return type("Output", (), {"lengths": torch.stack([1 - share, share], 1)})


@pytest.fixture(scope="module")
def dots():
    """30 images of class 1: a square of 4 pixels in the middle."""
    images = torch.zeros(30, 1, 28, 28)
    images[:, :, 12:16, 12:16] = 1
    return images, torch.ones(30, dtype=torch.long)


@pytest.fixture(scope="module")
def result(dots):
    """Two networks: one recognises shifts up to about 3 pixels, the other all shifts."""
    return measured({"near": Middle(4.5), "all": Middle(14)}, *dots)


def test_the_verdict_mentions_scales_that_do_not_fit(result, dots):
    assert abs(result.mean_scale - 1) < 0.02 and "mean scale" not in Affine().verdict(result)
    images = torch.zeros(30, 1, 28, 28)
    images[:, :, 1:27, 4:24] = 1
    large = measured({"x": Middle(14)}, images, dots[1])
    assert large.mean_scale < 0.95
    assert f"mean scale is {large.mean_scale:.2f}" in Affine().verdict(large)


def test_a_network_of_the_middle_loses_what_is_moved_further(result):
    near, everything = result.accuracy[0], result.accuracy[1]
    assert near.value[0] == 1 and near.value[1] > 0.95 and near.value[2] < 0.5
    assert np.array_equal(everything.value, [1, 1, 1])
    assert np.allclose(result.gap.value, 1 - result.accuracy.value[:, 1:])
    assert result.gap.difference.value[1, 1] < -0.5 and result.gap.difference.high[1, 1] < 0


def test_networks_without_errors_still_have_uncertain_gaps():
    right, within = np.ones((2, 6, 10), bool), np.arange(6)[:, None] < 3
    numbers = measure.statistics(
        right[:, 0], right, np.repeat(within, 10, 1), draw_resamples(10, resamples=100)
    )
    gap = numbers["gap"]
    assert (gap.difference.ci95[0] == 0).all()  # of the first to itself
    assert (gap.value == 0).all() and (gap.difference.low[1] < -0.2).all()
    assert (gap.difference.high[1] > 0.2).all()


def test_shares_are_counts_of_the_variants_at_each_place(result, dots):
    images, labels = dots
    hits, total = {True: 0, False: 0}, {True: 0, False: 0}
    for v in range(12):
        numbers = measure.draw(measure.whole(images), v, seed=0, fill="black")
        changed = apply(measure.whole(images), numbers)
        right = scores(Middle(4.5), changed / 255).argmax(1) == labels
        for i in range(30):
            x, y = float(numbers.shift_x_px[i]), float(numbers.shift_y_px[i])
            within = max(abs(x), abs(y)) <= 2
            hits[within] += int(right[i])
            total[within] += 1
    for place, within in ((1, True), (2, False)):
        assert result.accuracy.value[0, place] == pytest.approx(hits[within] / total[within])
    assert result.share_inside == pytest.approx(total[True] / 360)


def test_no_variant_loses_foreground_or_depends_on_the_others(digits):
    images = measure.whole(digits[0][:10])
    numbers, again, other = (measure.draw(images, v, seed=1, fill="black") for v in (3, 3, 4))
    assert torch.equal(numbers.angle_deg, again.angle_deg)
    assert not torch.equal(numbers.angle_deg, other.angle_deg)
    ink = images.sum((1, 2, 3)) * numbers.scale_x * numbers.scale_y
    changed = apply(images, numbers).sum((1, 2, 3)).double()
    assert torch.allclose(changed, ink, rtol=0.06)


def test_images_without_an_empty_frame_are_refused_and_left_out_of_figure_sets():
    part = data.Dataset(
        torch.full((4, 1, 28, 28), 9, dtype=torch.uint8), torch.zeros(4, dtype=torch.long),
        ("a", "b"), "x", "test",
    )  # fmt: skip
    model = Foreign()
    model.card = {"recipe": {"shift_px": 2}}
    inputs = Inputs(model, part, "foreign")
    assert "foreground" in sets.left_out("affine", inputs)
    with pytest.raises(ValueError, match="most images have foreground pixels at their border"):
        measured({"a": model}, *inputs.images(4))
    even = measured({"a": model}, *inputs.images(4), fill="edge", variants=9)
    assert len({image.tobytes() for image in even.examples}) == 1  # no border is seen
    assert 0 < even.share_inside < 1 and even.shifts_px.max() <= 0.2 * 28
    assert even.accuracy.value[0].tolist() == [even.accuracy.value[0, 0]] * 3
    assert "nearest pixels" in Affine().caption(even)
    model.card = {}
    assert "recipe does not record how far" in sets.left_out("affine", inputs)
    with pytest.raises(ValueError, match="add --within PX"):
        measured({"a": model}, *inputs.images(4), trained_px=None, inputs=inputs)


def test_the_command_takes_the_shifts_of_the_recipe(blank, tmp_path):
    fine(run("affine", "--checkpoint", "digits", "--n", 20, "--output", tmp_path))
    result, _ = results.read_result(tmp_path / "affine-digits-20-images.json")
    assert result.trained_px == 2 and result.n == 20 and result.variants == 4
