"""affnist_like against its specification."""

import pytest
import torch

from capsviz import data
from capsviz.data import affnist_like
from capsviz.transforms import warps


def sample(n=60):
    """Images of scikit-learn's digits, 28 x 28, as a split."""
    return data.load("digits", "test").first(n)


def test_images_follow_from_the_numbers_that_are_returned():
    part = sample(7)
    made, numbers = affnist_like.make(part)
    assert made.images.shape == (7, 1, 40, 40) and made.images.dtype == torch.uint8
    assert torch.equal(made.labels, part.labels)
    for i in range(7):
        one = {name: values[i] for name, values in numbers._asdict().items()}
        padded = part.pad(6).images[i : i + 1].float()
        expected = warps.warp(padded, warps.matrix((40, 40), **one)).round()
        assert torch.equal(made.images[i : i + 1].float(), expected)


def test_the_numbers_are_drawn_by_the_specification():
    """Ranges, and quantiles of uniform draws (Kolmogorov-Smirnov, significance 0.1 %)."""
    from scipy.stats import kstest

    part = sample(360)
    drawn = [affnist_like.make(part, v)[1] for v in range(8)]
    for name, low, high in (
        ("angle_deg", -20, 20),
        ("shear", -0.2, 0.2),
        ("scale_x", 0.8, 1.2),
        ("scale_y", 0.8, 1.2),
    ):
        values = torch.cat([getattr(numbers, name) for numbers in drawn])
        assert low <= values.min() and values.max() <= high
        assert kstest((values - low) / (high - low), "uniform").pvalue > 0.001, name


def test_no_ink_is_lost():
    """Against the same maps on a canvas large enough for anything."""
    part = sample(250)
    margin = 30
    for variant in range(8):
        made, numbers = affnist_like.make(part, variant)
        large = part.pad(affnist_like.PAD_PX + margin).images.float()
        whole = warps.warp(large, warps.matrix(tuple(large.shape[2:]), **numbers._asdict()))
        inside = whole[:, :, margin:-margin, margin:-margin]
        assert (inside - made.images).abs().max() < 0.51  # rounding to whole grey levels
        inside.zero_()
        assert whole.max() < 1e-3  # of 255


def test_places_fill_the_whole_range_that_keeps_the_ink():
    """A dot of one pixel, not turned nor scaled, may stand anywhere on the canvas."""
    dot = torch.zeros(1, 1, 40, 40)
    dot[0, 0, 12, 30] = 1
    identity = warps.matrix((40, 40))
    (left, right), (up, down) = affnist_like.shift_ranges(dot, identity)
    expected = (-30, 9, -12, 27)
    assert [float(x) for x in (left, right, up, down)] == pytest.approx(expected, abs=0.01)


def test_ink_that_fits_under_no_draw_is_refused(generator, monkeypatch):
    monkeypatch.setattr(affnist_like, "SCALE", (1.1, 1.2))
    with pytest.raises(ValueError, match="too large for a canvas of 40 x 40"):
        affnist_like.draw(torch.ones(2, 1, 40, 40), generator=generator)
