"""Corruptions of colours: what all of them keep, and each against its published definition."""

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from skimage import color

from capsviz.transforms import corruptions
from capsviz.transforms.imagenet_c import KINDS


def colour(name, images, severity=3, seed=0):
    return corruptions.apply(name, images, torch.Generator().manual_seed(seed), severity)


@pytest.fixture(scope="module")
def photographs():
    """Two smooth colour images (2, 3, 32, 32)."""
    noise = np.random.default_rng(0).random((2, 3, 32, 32))
    smooth = ndimage.gaussian_filter(noise, (0, 0, 2, 2))
    return torch.from_numpy((smooth - smooth.min()) / np.ptp(smooth)).float()


@pytest.mark.parametrize("name", KINDS)
def test_images_keep_shape_and_range_and_the_seed_alone_decides(name):
    images = torch.rand(3, 3, 21, 19, generator=torch.Generator().manual_seed(1))
    made = colour(name, images)
    assert made.shape == images.shape and made.min() >= 0 and made.max() <= 1
    assert torch.equal(made, (made * 255).round() / 255) and torch.equal(colour(name, images), made)


def test_kinds_of_grey_images_are_unknown_for_colours():
    assert corruptions.choose([], KINDS) == sorted(KINDS)
    with pytest.raises(ValueError, match="unknown corruption 'stripe'"):
        corruptions.choose(["stripe"], KINDS)
    with pytest.raises(ValueError, match="unknown corruption 'stripe', expected one of: bright"):
        colour("stripe", torch.zeros(1, 3, 28, 28))
    with pytest.raises(ValueError, match="1 or 3 channels, got 2"):
        colour("fog", torch.zeros(1, 2, 28, 28))


def test_colours_are_changed_as_by_the_published_definitions(photographs):
    """Of severity 3, in scikit-image, Pillow and scipy, image by image, channels last."""
    each = photographs.permute(0, 2, 3, 1).double().numpy()
    edge = np.exp(-1 / (2 * 0.6**2)) / (1 + 2 * np.exp(-1 / (2 * 0.6**2)))
    spread = np.pad(np.outer([edge, 1 - 2 * edge, edge], [edge, 1 - 2 * edge, edge]), 1)

    def brightness(x):
        hsv = color.rgb2hsv(x)
        hsv[..., 2] = np.clip(hsv[..., 2] + 0.15, 0, 1)
        return color.hsv2rgb(hsv)

    def defocus_blur(x):
        return ndimage.convolve(x, spread[..., None], mode="mirror")

    def contrast(x):
        return (x - x.mean((0, 1))) * 0.4 + x.mean((0, 1))

    def pixelate(x):
        small = Image.fromarray((x * 255).round().astype(np.uint8)).resize((27, 27), 4)
        return np.asarray(small.resize((32, 32), 4)) / 255

    for expected in (brightness, defocus_blur, contrast, pixelate):
        made = colour(expected.__name__, photographs).permute(0, 2, 3, 1).numpy()
        for x, one in zip(each, made, strict=True):
            assert np.abs(expected(x).clip(0, 1) - one).max() <= 1.01 / 255, expected.__name__


def test_noise_of_colours_has_the_published_size_and_grows_with_the_severity(photographs):
    grey = torch.full((20, 3, 32, 32), 0.5)
    assert float(colour("gaussian_noise", grey).std()) == pytest.approx(0.08, rel=0.03)
    assert float(colour("shot_noise", grey).var()) == pytest.approx(0.5 / 100, rel=0.05)
    hit = (colour("impulse_noise", grey) - 0.5).abs() > 0.1
    assert float(hit.float().mean()) == pytest.approx(0.03, rel=0.1)
    for name in set(KINDS) - {"glass_blur", "elastic_transform"}:  # whose numbers do not all grow
        weak, strong = (colour(name, photographs, severity) - photographs for severity in (1, 5))
        assert 0 < weak.abs().mean() < strong.abs().mean(), name


def test_an_elastic_image_is_an_affine_map_at_severity_1(photographs):
    y, x = np.mgrid[:32, :32] / 31.0
    slope = torch.from_numpy(np.stack([x, y, (x + y) / 2])[None]).float()
    made = colour("elastic_transform", slope, 1, seed=3)[0].double().numpy()
    inside = np.s_[12:20, 12:20]
    for one in made:  # linear in the middle: no second differences, but for rounding
        assert np.abs(np.diff(one[inside], 2, 0)).max() < 3 / 255
    assert np.abs(made - slope[0].numpy())[:, 12:20, 12:20].max() > 2 / 255


def test_glass_copies_near_pixels_and_leaves_the_first_rows(photographs):
    made = colour("glass_blur", photographs, 1)
    assert (made[..., :2, :] - photographs[..., :2, :]).abs().max() < 1.01 / 255
    near = torch.stack([photographs[0, :, 2 - a : 32 - a, 2 - b : 32 - b]
                        for a in (0, 1) for b in (0, 1)])  # fmt: skip
    apart = (near - made[0, :, 2:, 2:]).abs().amax(1).amin(0)
    assert apart.max() < 1.01 / 255
