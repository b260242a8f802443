"""Corruptions: by discovery, what all of them keep; and each against its definition in scipy."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import ndimage, stats

from capsviz.transforms import corruptions
from capsviz.transforms.mnist_c import RISES_PX, blur_along, plasma, zigzag_corners

NAMES = corruptions.names()
PUBLISHED = {
    "shot_noise", "impulse_noise", "glass_blur", "motion_blur", "shear", "scale", "rotate",
    "brightness", "translate", "stripe", "fog", "spatter", "dotted_line", "zigzag", "canny_edges",
}  # fmt: skip
SIGNS = (-1, 1)
FIXED = {"brightness", "canny_edges", "scale", "stripe"}  # nothing in them is random


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def corrupt(name, images, seed=0):
    return corruptions.apply(name, images, seeded(seed))


def test_the_corruptions_are_the_15_of_mnist_c():
    assert set(NAMES) == PUBLISHED and len(NAMES) == 15


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(28, 28), (21, 19)])
def test_images_keep_shape_and_range_on_the_grid_of_grey_values(name, shape):
    images = torch.rand(5, 1, *shape, generator=seeded())
    before = images.clone()
    made = corrupt(name, images)
    assert made.shape == images.shape and made.dtype == torch.float32
    assert torch.equal(made, (made * 255).round() / 255)
    assert made.min() >= 0 and made.max() <= 1 and torch.equal(images, before)
    assert not torch.allclose(made, images, atol=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_alone_decides_and_equal_images_get_draws_of_their_own(name, digits):
    images = digits[0][:1].expand(8, -1, -1, -1)
    first = corrupt(name, images)
    torch.manual_seed(7)
    assert torch.equal(corrupt(name, images), first)
    assert torch.equal(corrupt(name, images, seed=1), first) == (name in FIXED)
    assert (len(torch.unique(first, dim=0)) == 1) == (name in FIXED)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 2, 28, 28), "1 or 3 channels, got 2"),
        (torch.full((2, 1, 28, 28), 255.0), r"in \[0, 1\]"),
        (torch.zeros(2, 1, 28, 7), "at least 8 x 8"),
    ],
)
def test_other_images_are_refused(images, message):
    with pytest.raises(ValueError, match=message):
        corrupt("fog", images)


def test_an_unknown_corruption_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"'frog', expected one of: .*did you mean 'fog'"):
        corrupt("frog", torch.zeros(1, 1, 28, 28))
    with pytest.raises(ValueError, match="unknown corruption"):
        corruptions.choose(["fog", "gaussian_noise"])
    assert corruptions.choose(["zigzag", "fog"]) == ["fog", "zigzag"]
    assert corruptions.choose([]) == NAMES


def test_shot_noise_is_poisson_of_three_photons_cut_at_white():
    made = corrupt("shot_noise", torch.full((100, 1, 28, 28), 0.6))
    counts = (made * 3).round()
    assert (made - counts / 3).abs().max() < 1e-3 and set(counts.unique().tolist()) == {0, 1, 2, 3}
    law = stats.poisson(3 * 0.6)
    expected = [law.pmf(0), law.pmf(1), law.pmf(2), law.sf(2)]
    found = [(counts == k).double().mean().item() for k in range(4)]
    assert np.allclose(found, expected, atol=5 * 0.5 / made.numel() ** 0.5)
    assert corrupt("shot_noise", torch.zeros(1, 1, 28, 28)).max() == 0


def test_impulse_noise_hits_17_percent_and_half_of_them_white():
    made = corrupt("impulse_noise", torch.full((100, 1, 28, 28), 102 / 255))
    n = made.numel()
    white, black, kept = ((made == v).double().mean().item() for v in (1, 0, 102 / 255))
    assert white + black + kept == pytest.approx(1)
    deviation = (0.17 * 0.83 / n) ** 0.5
    assert abs(white + black - 0.17) < 4 * deviation
    assert abs(white - black) < 4 * (0.17 / n) ** 0.5


def test_brightness_adds_a_half_and_stripe_inverts_seven_columns_at_either_side(digits):
    images = (digits[0][:3] * 255).round() / 255
    assert (corrupt("brightness", images) - (images + 0.5).clamp(max=1)).abs().max() <= 0.51 / 255
    expected = images.clone()
    expected[..., :7] = 1 - expected[..., :7]
    expected[..., 21:] = 1 - expected[..., 21:]
    assert torch.allclose(corrupt("stripe", images), expected, atol=1e-6)


def test_glass_blur_is_its_definition_pixel_by_pixel(digits):
    images, draws = digits[0][:3], seeded(4)
    steps = (2 * 26 * 26, 3)
    swapped = torch.randint(0, 2, steps, generator=draws).numpy()
    up, left = torch.randint(0, 2, (2, *steps), generator=draws).numpy() - 1
    made = corrupt("glass_blur", images, seed=4)[:, 0].numpy()
    for b in range(3):
        x = ndimage.gaussian_filter1d(images[b, 0].double().numpy(), 0.7, axis=0, mode="nearest")
        x, step = np.floor(x * 255 + 1e-3) / 255, 0
        for _ in range(2):
            for i in range(27, 1, -1):
                for j in range(27, 1, -1):
                    if swapped[step, b]:
                        k, m = i + up[step, b], j + left[step, b]
                        x[i, j], x[k, m] = x[k, m], x[i, j]
                    step += 1
        expected = ndimage.gaussian_filter1d(x, 0.7, axis=0, mode="nearest")
        assert np.abs(made[b] - expected).max() <= 0.51 / 255


@pytest.mark.parametrize("angle", [0.0, 0.3, -0.78, 0.785])
def test_motion_blur_is_half_a_gaussian_along_a_line(angle):
    images = torch.rand(1, 1, 9, 11, generator=seeded(), dtype=torch.float64)
    weights = np.exp(-(np.arange(21) ** 2) / 18)
    weights /= weights.sum()
    expected = np.zeros((9, 11))
    for y in range(9):
        for x in range(11):
            for i, weight in enumerate(weights):
                down, right = np.ceil([i * np.sin(angle) - 0.5, i * np.cos(angle) - 0.5])
                row, column = np.clip([y + down, x + right], 0, [8, 10]).astype(int)
                expected[y, x] += weight * images[0, 0, row, column]
    made = blur_along(images, torch.tensor([angle], dtype=torch.float64))
    assert np.allclose(made[0, 0], expected, atol=1e-12)


def test_motion_blur_turns_to_both_sides_by_at_most_45_degrees():
    images = torch.zeros(400, 1, 28, 28)
    images[:, :, 14, 26] = 1
    y, x = corrupt("motion_blur", images)[:, 0].nonzero().T[1:]
    down, left = y - 14, 26 - x
    assert left.min() == 0 and (down.abs() <= left).all()
    assert (down > 0.8 * left)[left > 5].any() and (down < -0.8 * left)[left > 5].any()


def test_plasma_is_the_diamond_square_algorithm_on_a_torus():
    made, draws, side = plasma(2, 8, seeded(3)).double().numpy(), seeded(3), 8
    map_, step, noise = np.zeros((2, side, side)), side, 1.0
    while step > 1:
        half, m = step // 2, side // step
        centre, top, left = (
            (torch.rand(2, m, m, generator=draws) * 2 - 1).numpy() * noise for _ in range(3)
        )

        def mean(b, *places):
            return sum(map_[b, y % side, x % side] for y, x in places) / 4

        places = [(b, i, j) for b in range(2) for i in range(m) for j in range(m)]
        for b, i, j in places:
            y, x = i * step, j * step
            corners = (y, x), (y + step, x), (y, x + step), (y + step, x + step)
            map_[b, y + half, x + half] = mean(b, *corners) + centre[b, i, j]
        for b, i, j in places:
            y, x = i * step, j * step
            round_top = (y, x), (y, x + step), (y + half, x + half), (y - half, x + half)
            round_left = (y, x), (y + step, x), (y + half, x + half), (y + half, x - half)
            map_[b, y, x + half] = mean(b, *round_top) + top[b, i, j]
            map_[b, y + half, x] = mean(b, *round_left) + left[b, i, j]
        step, noise = half, noise / 1.4**2
    low, high = map_.min((1, 2), keepdims=True), map_.max((1, 2), keepdims=True)
    assert np.allclose(made, (map_ - low) / (high - low), atol=1e-5)


def test_fog_is_three_times_a_fractal_scaled_back_to_the_maximum(digits):
    images = digits[0][:4] * torch.tensor([1, 0.5, 0.2, 0])[:, None, None, None]
    white = images.amax((1, 2, 3), keepdim=True)
    fractal = plasma(4, 256, seeded())[:, None, :28, :28]
    expected = (images + 3 * fractal) * white / (white + 3)
    assert (corrupt("fog", images) - expected).abs().max() <= 0.51 / 255
    assert fractal.std() > 0.01 and corrupt("fog", images)[3].max() == 0


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
    noise = 0.65 + 0.3 * torch.randn(images.shape, generator=seeded(2))
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


@pytest.mark.parametrize("down", RISES_PX)
def test_a_zigzag_is_the_level_one_turned_and_ends_near_its_row(down):
    turns = np.array(zigzag_corners(28, down))
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
        turns = zigzag_corners(28, down)
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
