"""Corruptions: by discovery, what all of them keep; and those of single pixels, one by one."""

import numpy as np
import pytest
import torch
from scipy import ndimage, stats

from capsviz.transforms import corruptions
from capsviz.transforms.corruptions import fog, motion_blur

NAMES = corruptions.names()
PUBLISHED = {
    "shot_noise", "impulse_noise", "glass_blur", "motion_blur", "shear", "scale", "rotate",
    "brightness", "translate", "stripe", "fog", "spatter", "dotted_line", "zigzag", "canny_edges",
}  # fmt: skip
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
def test_the_seed_alone_decides(name, digits):
    images = digits[0][:6]
    first = corrupt(name, images)
    torch.manual_seed(7)
    assert torch.equal(corrupt(name, images), first)
    assert torch.equal(corrupt(name, images, seed=1), first) == (name in FIXED)


@pytest.mark.parametrize("name", sorted(set(NAMES) - FIXED))
def test_equal_images_of_a_batch_get_draws_of_their_own(name, digits):
    made = corrupt(name, digits[0][:1].expand(8, -1, -1, -1))
    assert len(torch.unique(made, dim=0)) > 1


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 3, 28, 28), "3 channels"),
        (torch.zeros(28, 28), r"\(N, C, H, W\)"),
        (torch.zeros(2, 1, 28, 28, dtype=torch.uint8), "float images"),
        (torch.zeros(0, 1, 28, 28), "float images"),
        (torch.full((2, 1, 28, 28), 255.0), r"in \[0, 1\]"),
        (torch.full((2, 1, 28, 28), float("nan")), r"in \[0, 1\]"),
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


def test_brightness_adds_a_half():
    images = torch.tensor([0, 51, 204]).repeat(1, 1, 8, 4) / 255
    expected = torch.tensor([127.5, 178.5, 255]).repeat(1, 1, 8, 4)
    assert ((corrupt("brightness", images) * 255) - expected).abs().max() <= 0.51


def test_stripe_inverts_seven_columns_at_either_side(digits):
    images = digits[0][:3]
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
    made = motion_blur.blur(images, torch.tensor([angle], dtype=torch.float64))
    assert np.allclose(made[0, 0], expected, atol=1e-12)


def test_motion_blur_turns_to_both_sides_by_at_most_45_degrees():
    images = torch.zeros(400, 1, 28, 28)
    images[:, :, 14, 26] = 1
    y, x = corrupt("motion_blur", images)[:, 0].nonzero().T[1:]
    down, left = y - 14, 26 - x
    assert left.min() == 0 and (down.abs() <= left).all()
    assert (down > 0.8 * left)[left > 5].any() and (down < -0.8 * left)[left > 5].any()


def test_plasma_is_the_diamond_square_algorithm_on_a_torus():
    made, draws, side = fog.plasma(2, 8, seeded(3)).double().numpy(), seeded(3), 8
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
    fractal = fog.plasma(4, 256, seeded())[:, None, :28, :28]
    expected = (images + 3 * fractal) * white / (white + 3)
    assert (corrupt("fog", images) - expected).abs().max() <= 0.51 / 255
    assert fractal.std() > 0.01 and corrupt("fog", images)[3].max() == 0
