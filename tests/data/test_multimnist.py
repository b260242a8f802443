"""MultiMNIST: two digits of different classes, moved and added; affnist_like: as it is said."""

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, chisquare

from capsviz import data
from capsviz.data import affnist_like
from capsviz.data.multimnist import make, partners
from capsviz.inputs.opening import Inputs
from capsviz.transforms import warps


@pytest.fixture(scope="module")
def plain():
    return data.load("digits", "test")


@pytest.fixture(scope="module")
def overlaid(plain):
    return make(plain)


def moved(image, down, right):
    """An image (28, 28) on 36 x 36, by a loop over its pixels."""
    canvas = np.zeros((36, 36), np.uint8)
    for y in range(28):
        for x in range(28):
            canvas[y + 4 + down, x + 4 + right] = image[y, x]
    return canvas


def test_an_image_is_the_sum_of_its_parts_cut_off_at_255(overlaid):
    total = overlaid.parts.numpy().astype(int).sum(1)
    np.testing.assert_array_equal(overlaid.images.numpy(), np.minimum(total, 255))
    assert (total > 255).any()


def test_each_part_is_a_whole_digit_of_its_class_moved_by_up_to_4_pixels(plain, overlaid):
    ways = [(down, right) for down in range(-4, 5) for right in range(-4, 5)]
    for i in range(6):
        for k in range(2):
            part, distances = overlaid.parts[i, k, 0].numpy(), []
            same_ink = plain.images.flatten(1).sum(1) == int(part.sum())
            for j in (same_ink & (plain.labels == overlaid.labels[i, k])).nonzero().flatten():
                digit = plain.images[j, 0].numpy()
                distances += [j for way in ways if np.array_equal(part, moved(digit, *way))]
            assert distances
            if overlaid.labels[i, k] == plain.labels[i]:
                assert i in distances, "one of the two is the digit itself"


def dot(n):
    """n images of a single pixel in the middle, of two classes in turn."""
    images = torch.zeros(n, 1, 28, 28, dtype=torch.uint8)
    images[:, 0, 14, 14] = 9
    return data.Dataset(images, torch.arange(n) % 2, ("a", "b"), "dots", "train")


@pytest.fixture(scope="module")
def places():
    """Where the two dots of 8,100 images are (8100, 2), as numbers of pixels; each is whole."""
    parts = make(dot(8100)).parts[:, :, 0].flatten(2)
    assert parts.sum(2).eq(9).all()
    return parts.argmax(2)


def test_shifts_are_uniform_and_independent_of_one_another(places):
    """Chi-square over all (9 x 9) shifts of a digit, and over pairs; significance 0.1 %."""
    down, right = places // 36 - 18, places % 36 - 18
    for one, two in (
        (down[:, 0], right[:, 0]),
        (down[:, 0], down[:, 1]),
        (right[:, 1], down[:, 1]),
    ):
        counts = np.histogram2d(one.numpy(), two.numpy(), bins=np.arange(-4.5, 5))[0]
        assert counts.sum() == 8100 and chisquare(counts.ravel()).pvalue > 0.001


def test_either_digit_comes_first_equally_often():
    plain = dot(2000)
    first = int((make(plain).labels[:, 0] == plain.labels).sum())
    assert binomtest(first, 2000).pvalue > 0.001


def test_partners_are_of_another_class_and_all_equally_likely(generator):
    labels = torch.tensor([3, 0, 3, 2, 0, 2, 2])
    draws = torch.stack([partners(labels, generator=generator) for _ in range(2000)])
    for i, label in enumerate(labels):
        counts = torch.bincount(draws[:, i], minlength=7)
        assert (counts[labels == label] == 0).all()
        assert chisquare(counts[labels != label].numpy()).pvalue > 0.001
    with pytest.raises(ValueError, match=r"different classes are needed, got \[0, 3\]"):
        partners(torch.ones(3, dtype=torch.long), generator=generator)


def test_splits_are_made_of_their_own_digits_only(digits_for_mnist):
    """By the pixels of each digit, in order, wherever it was moved to."""

    def ink(images):
        return {tuple(image[image > 0].tolist()) for image in images.flatten(0, -4)}

    own = {split: ink(data.load("digits", split).images) for split in data.SPLITS}
    for split in data.SPLITS:
        parts = data.load("multimnist", split).first(150).parts
        assert ink(parts) <= own[split]
        assert all(not ink(parts) & own[other] for other in data.SPLITS if other != split)


def test_what_needs_one_thing_in_each_image_refuses_two(overlaid, tiny):
    for ask in (
        overlaid.single,
        lambda: overlaid.nth_of_class(2, 0),
        Inputs(tiny, overlaid, "x").images,
    ):
        with pytest.raises(ValueError, match="multimnist shows 2 objects in each image"):
            ask()


def test_a_sample_keeps_the_parts_of_its_images(overlaid):
    some = overlaid.sample(20)
    assert some.parts.shape[0] == len(some) == 20 and overlaid.sample(None) is overlaid
    _, labels = next(iter(torch.utils.data.DataLoader(some, batch_size=5)))
    assert torch.equal(labels, some.labels[:5]) and some[0][0].shape == some.image_shape
    for image, parts in zip(some.images, some.parts, strict=True):
        assert torch.equal(image.int(), parts.int().sum(0).clamp(max=255))
    with pytest.raises(ValueError, match="expected 1 to 360"):
        overlaid.sample(361)


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
