"""Corruptions that warp, cover or trace an image, each against its definition in scipy."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import ndimage

from capsviz.transforms import corruptions
from capsviz.transforms.corruptions import zigzag

SIGNS = (-1, 1)


def corrupt(name, images, seed=0):
    return corruptions.apply(name, images, torch.Generator().manual_seed(seed))


def pulled(image, linear):
    """An output place (x, y) from the centre comes from `linear` times it; by scipy."""
    swapped = np.asarray(linear)[::-1, ::-1]  # rows are y for scipy
    centre = (np.array(image.shape) - 1) / 2
    offset = centre - swapped @ centre
    return ndimage.affine_transform(image, swapped, offset, order=1, mode="grid-constant")


def sheared(sign):
    s = 0.4 * sign
    return [[1, -np.sin(s)], [0, np.cos(s)]]


def rotated(sign):
    s = 0.4 * sign
    return [[np.cos(s), -np.sin(s)], [np.sin(s), np.cos(s)]]


def scaled(sign):
    return [[1 / 0.7, 0], [0, 1 / 0.7]]


@pytest.mark.parametrize(
    ("name", "linear"), [("shear", sheared), ("rotate", rotated), ("scale", scaled)]
)
def test_an_affine_corruption_is_its_map_about_the_centre(name, linear, digits):
    images = digits[0][:12]
    made, found = corrupt(name, images)[:, 0].numpy(), []
    for image, one in zip(images[:, 0].double().numpy(), made, strict=True):
        errors = [np.abs(pulled(image, linear(sign)) - one).max() for sign in SIGNS]
        assert min(errors) <= 1.01 / 255
        found.append(int(np.argmin(errors)))
    assert name == "scale" or set(found) == {0, 1}


def test_a_translation_is_by_three_pixels_along_each_axis(digits):
    images = digits[0][:40]
    made, found = corrupt("translate", images), []
    padded = torch.nn.functional.pad(images, (3,) * 4)
    for b in range(40):
        cuts = {(y, x): padded[b, :, y : y + 28, x : x + 28] for y in (0, 6) for x in (0, 6)}
        found += [place for place, cut in cuts.items() if torch.allclose(cut, made[b], atol=1e-6)]
    assert len(found) == 40 and set(found) == {(0, 0), (0, 6), (6, 0), (6, 6)}


def test_spatter_covers_by_grey_where_blurred_noise_is_thick(digits):
    images = digits[0][:5]
    noise = 0.65 + 0.3 * torch.randn(images.shape, generator=torch.Generator().manual_seed(2))
    made, covered = corrupt("spatter", images, seed=2)[:, 0].numpy(), 0
    for image, one, made_one in zip(images[:, 0].numpy(), noise[:, 0].numpy(), made, strict=True):
        liquid = ndimage.gaussian_filter(one.astype(float), 1.0, mode="nearest")
        mud = ndimage.gaussian_filter((liquid > 0.65).astype(float), 1.5, mode="nearest")
        mud[mud < 0.8] = 0
        covered += (mud > 0).sum()
        assert np.abs(image * (1 - mud) + mud * 63 / 255 - made_one).max() <= 0.52 / 255
    assert covered > 100


def bar(x0, y0, x1, y1, side=28):
    """A line of soft ink, pixel by pixel."""
    made = np.zeros((side, side))
    for y in range(side):
        for x in range(int(np.floor(x0)), min(side, int(np.ceil(x1)))):
            distance = abs(y - (y0 + (y1 - y0) / (x1 - x0) * (x - x0)))
            if distance < 2.3:
                made[y, x] = np.clip(1 + np.log(1 - distance / 2.3), 0, 1)
    return made


def nearest(image, candidates):
    """Index and difference of the candidate that is nearest to an image."""
    errors = [np.abs(candidate - image).max() for candidate in candidates]
    return int(np.argmin(errors)), min(errors)


def test_a_dotted_line_runs_from_edge_to_edge_two_columns_off_two_on():
    made = corrupt("dotted_line", torch.zeros(12, 1, 28, 28))[:, 0].numpy()
    on = np.arange(28) // 2 % 2 == 1
    ends = [(a, b) for a in range(27) for b in range(27)]
    candidates = [bar(0, a, 27, b) * on for a, b in ends]
    found = [nearest(one, candidates) for one in made]
    assert max(error for _, error in found) <= 0.51 / 255 and len({i for i, _ in found}) > 6
    assert made[:, :, [0, 1, 4, 5, 24, 25, 27]].max() == 0 and (made[:, :, 2].max(1) > 0.5).all()


def test_a_level_zigzag_turns_every_four_pixels_two_up_and_two_down():
    turns = [(2, 0), (4, 2), (8, -2), (12, 2), (16, -2), (20, 2), (24, -2), (25, -1 / 3)]
    assert np.allclose(zigzag.corners(28, 0), turns)


@pytest.mark.parametrize("down", zigzag.RISES_PX)
def test_a_zigzag_is_the_level_one_turned_and_ends_near_its_row(down):
    turns = np.array(zigzag.corners(28, down))
    back = np.arctan(down / 23)
    x, y = (turns - [2, 0]).T
    along, off = np.cos(back) * x + np.sin(back) * y, np.cos(back) * y - np.sin(back) * x
    assert np.allclose(along[:-1], [0, 2, 6, 10, 14, 18, 22])
    assert np.allclose(off[:-1], [0, 2, -2, 2, -2, 2, -2])
    assert along[-1] == pytest.approx(np.hypot(23, down)) and -0.34 < off[-1] < -0.28


def test_a_zigzag_is_drawn_over_the_image_line_by_line():
    made = corrupt("zigzag", torch.zeros(8, 1, 28, 28))[:, 0].numpy()
    candidates = []
    for down in range(-5, 5):
        turns = zigzag.corners(28, down)
        for row in range(27):
            lines = [bar(a, b + row, c, d + row) for (a, b), (c, d) in pairwise(turns)]
            candidates.append(sum(lines).clip(0, 1))
    found = [nearest(one, candidates) for one in made]
    assert max(error for _, error in found) <= 0.51 / 255 and len({i for i, _ in found}) > 4


def canny(image):
    """Canny's edges of one image, pixel by pixel."""
    smooth = ndimage.gaussian_filter(image, 1.0, mode="constant")
    smooth /= ndimage.gaussian_filter(np.ones_like(image), 1.0, mode="constant")
    down, right = ndimage.sobel(smooth, 0), ndimage.sobel(smooth, 1)
    length, thin = np.hypot(down, right), np.zeros(image.shape, bool)
    for y in range(1, image.shape[0] - 1):
        for x in range(1, image.shape[1] - 1):
            dy, dx, here = down[y, x], right[y, x], length[y, x]
            if here < 0.1:
                continue
            step = np.array([dy, dx]) / max(abs(dy), abs(dx))  # to the next row or column
            around = []
            for side in SIGNS:
                py, px = y + side * step[0], x + side * step[1]
                around.append(ndimage.map_coordinates(length * inner(image), [[py], [px]], order=1))
            thin[y, x] = max(around)[0] <= here + 1e-12
    labels, _ = ndimage.label(thin, np.ones((3, 3)))
    return thin & np.isin(labels, np.unique(labels[thin & (length >= 0.2)]))


def inner(image):
    """1 for pixels that are not at the border."""
    return np.pad(np.ones(np.array(image.shape) - 2), 1)


def test_canny_edges_are_those_of_the_method_pixel_by_pixel(digits):
    images = digits[0][:12].double()
    made = corrupt("canny_edges", images)[:, 0].numpy()
    expected = np.stack([canny(image) for image in images[:, 0].numpy()])
    assert set(np.unique(made)) == {0, 1} and expected.sum() > 200
    assert (made != expected).sum() <= 2  # equal lengths, told apart by rounding
