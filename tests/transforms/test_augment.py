"""Images in batches: every image by its own draw, against loops and torchvision."""

import pytest
import torch
from helpers.crop_windows import windows

from capsviz.transforms.augment import Augmentation, draw_offsets, shift


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("most", [0, 1, 2])
def test_shifts_are_by_whole_pixels_filled_with_zeros_and_all_occur_equally_often(
    most, dtype, generator
):
    image = torch.randint(1, 255, (2, 6, 6), generator=generator).to(dtype)
    images = image.expand(2500, -1, -1, -1)
    moved = shift(images, most, generator=generator)
    assert moved.shape == images.shape and moved.dtype == dtype
    ways = windows(image, most, 6).values()
    counts = [int((moved == way).flatten(1).all(1).sum()) for way in ways]
    mean = 2500 / len(counts)
    assert len(counts) == (2 * most + 1) ** 2 and sum(counts) == 2500
    assert max(abs(count - mean) for count in counts) <= 4.5 * mean**0.5
    assert torch.equal(images[7], image), "the originals are never changed"


def test_shifts_alone_are_drawn_as_they_always_were():
    draws, again = (torch.Generator().manual_seed(3) for _ in range(2))
    expected = torch.randint(0, 5, (2, 100), generator=again)
    assert torch.equal(draw_offsets(100, 2, generator=draws), expected)
    assert torch.equal(draws.get_state(), again.get_state())
    draws = Augmentation(2).draw(100, (1, 9, 9), generator=torch.Generator().manual_seed(3))
    assert torch.equal(draws.offsets, expected)
    assert (draws.mirrored, draws.brightness, draws.contrast) == (None, None, None)


@pytest.mark.parametrize("strength", [{"rotation_deg": 30}, {"shear_deg": 30}])
@pytest.mark.parametrize("upright", [False, True])
def test_angles_are_those_of_pixels_where_images_are_not_square(strength, upright):
    def angle(height):
        image, middle = torch.zeros(1, 1, height, 121), height // 2
        if upright:
            image[..., middle - 10 : middle + 11, 60] = 1
        else:
            image[..., middle, 50:71] = 1
        one, draws = Augmentation(**strength), torch.Generator().manual_seed(1)
        moved, _ = one.apply(image, one.draw(1, (1, height, 121), generator=draws))
        spread = torch.cov(torch.stack(torch.nonzero(moved[0, 0] > 0.3).double().unbind(1)))
        return float(torch.rad2deg(torch.atan2(2 * spread[0, 1], spread[0, 0] - spread[1, 1]) / 2))

    assert angle(41) == pytest.approx(angle(121), abs=1)


def places(images, drawing, margin, size):
    """Where each image was cut, and whether it was mirrored."""
    offsets = []
    for image, result in zip(images, drawing, strict=True):
        known = windows(image, margin, size).items()
        here = [(at, False) for at, w in known if torch.equal(w, result)]
        here += [(at, True) for at, w in known if torch.equal(w.flip(2), result)]
        assert len(here) == 1, here
        offsets += here
    return offsets


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize(("margin", "size"), [(0, 5), (1, 5), (2, 4)])
def test_crops_are_all_windows_in_a_margin_of_zeros_and_half_may_be_mirrored(
    margin, size, flip, generator
):
    images = torch.randint(1, 255, (400, 2, 6, 7), generator=generator, dtype=torch.uint8)
    augmentation = Augmentation(margin, crop_px=size, flip=flip)
    draws = augmentation.draw(400, (2, 6, 7), generator=generator)
    made = augmentation.apply(images, draws)[0]
    assert made.shape == (400, 2, size, size) and made.dtype == torch.float32
    found = places(images / 255, made, margin, size)
    mirrored = sum(mirrored for _, mirrored in found)
    assert 160 <= mirrored <= 240 if flip else mirrored == 0  # 200 and 4 deviations
    assert {at for at, _ in found} == set(windows(images[0], margin, size))


@pytest.mark.parametrize("channels", [1, 3])
def test_brightness_and_contrast_are_those_of_torchvision(channels, generator):
    from torchvision.transforms.v2 import functional as torchvision

    images = torch.randint(0, 256, (12, channels, 6, 7), generator=generator, dtype=torch.uint8)
    augmentation = Augmentation(brightness=0.6, contrast=0.9)
    draws = augmentation.draw(12, (channels, 6, 7), generator=generator)
    for k, made in enumerate(augmentation.apply(images, draws)[0]):
        expected = torchvision.adjust_brightness(images[k] / 255, float(draws.brightness[k]))
        expected = torchvision.adjust_contrast(expected, float(draws.contrast[k]))
        torch.testing.assert_close(made, expected, atol=1e-6, rtol=1e-5)


def test_factors_are_uniform_around_one_and_differ_between_images(generator):
    draws = Augmentation(brightness=0.25, contrast=1.0).draw(4000, (1, 6, 6), generator=generator)
    for factors, strength in ((draws.brightness, 0.25), (draws.contrast, 1.0)):
        assert 1 - strength <= factors.min() < 1 - 0.99 * strength
        assert 1 + 0.99 * strength < factors.max() <= 1 + strength
        assert abs(factors.mean() - 1) < 0.04 * strength  # 4 deviations
    assert not torch.allclose((draws.brightness - 1) * 4, draws.contrast - 1)


def test_parts_are_cut_mirrored_and_brightened_as_their_image(generator):
    parts = torch.randint(0, 120, (30, 2, 3, 6, 7), generator=generator, dtype=torch.uint8)
    images = parts.sum(1).to(torch.uint8)
    augmentation = Augmentation(1, crop_px=5, flip=True, brightness=0.05)
    draws = augmentation.draw(30, (3, 6, 7), generator=generator)
    whole, alone = augmentation.apply(images, draws, parts)
    assert alone.shape == (30, 2, 3, 5, 5)
    torch.testing.assert_close(whole, alone.sum(1))
    assert torch.equal(whole, augmentation.apply(images, draws)[0])


def test_the_contrast_of_a_part_changes_as_that_of_equal_pixels_of_its_image(generator):
    images = torch.randint(0, 256, (5, 1, 6, 7), generator=generator, dtype=torch.uint8)
    parts = torch.stack((images, images // 2), 1)
    augmentation = Augmentation(contrast=0.8)
    draws = augmentation.draw(5, (1, 6, 7), generator=generator)
    whole, alone = augmentation.apply(images, draws, parts)
    assert torch.equal(whole, alone[:, 0])
    mean = whole.new_tensor([float(image.mean()) for image in images / 255])[:, None, None, None]
    factor = draws.contrast[:, None, None, None]
    expected = (factor * (images // 2 / 255) + (1 - factor) * mean).clamp(0, 1)
    torch.testing.assert_close(alone[:, 1], expected)


def test_draws_of_some_images_are_theirs(generator):
    augmentation = Augmentation(2, flip=True, brightness=0.3, contrast=0.3)
    images = torch.randint(0, 256, (9, 1, 6, 7), generator=generator, dtype=torch.uint8)
    draws, some = augmentation.draw(9, (1, 6, 7), generator=generator), torch.tensor([4, 1, 7])
    whole = augmentation.apply(images, draws)[0]
    assert torch.equal(augmentation.apply(images[some], draws.take(some))[0], whole[some])


@pytest.mark.parametrize(("fill", "mode"), [("edge", "replicate"), ("mean", "constant")])
def test_the_outside_of_shifted_and_rotated_images_may_be_their_edge_or_mean(fill, mode, generator):
    images = torch.randint(0, 256, (40, 3, 8, 8), generator=generator, dtype=torch.uint8)
    plain, mean = images / 255, (images / 255).mean((2, 3), keepdim=True)
    away = mean if fill == "mean" else torch.zeros(1)
    shifts = Augmentation(shift_px=3, fill=fill)
    draws = shifts.draw(40, (3, 8, 8), generator=generator)
    padded = torch.nn.functional.pad(plain - away, (3,) * 4, mode) + away
    for k, (row, column) in enumerate(draws.offsets.T.tolist()):
        expected = padded[k, :, row : row + 8, column : column + 8]
        torch.testing.assert_close(shifts.apply(images, draws)[0][k], expected)
    even = torch.full_like(images, 51)
    turned = Augmentation(2, rotation_deg=40, fill=fill)
    drawn = turned.draw(40, (3, 8, 8), generator=generator)
    torch.testing.assert_close(turned.apply(even, drawn)[0], even / 255)


@pytest.mark.parametrize("strength", [{"rotation_deg": 30}, {"scale": 0.3}, {"shear_deg": 20}])
def test_rotations_scales_and_shears_are_those_of_torchvision(strength, generator):
    from torchvision.transforms.v2 import functional as torchvision

    images = (torch.rand(50, 1, 7, 7, generator=generator) * 255).byte().repeat(1, 1, 4, 4)
    augmentation = Augmentation(**strength)
    draws = augmentation.draw(50, (1, 28, 28), generator=generator)
    found, seen = augmentation.apply(images, draws)[0], []
    for k, back in enumerate(draws.maps.unbind(2)):
        first, second = back[:, 0], back[:, 1]
        angle = float(torch.atan2(first[1], first[0]).rad2deg())
        lean = float(((first @ second) / first.norm() ** 2).atan().rad2deg())
        size = 1 / float(first.norm())
        expected = torchvision.affine(
            images[k] / 255, -angle, [0, 0], size, [lean, 0],
            interpolation=torchvision.InterpolationMode.BILINEAR,
        )  # fmt: skip
        torch.testing.assert_close(found[k], expected, atol=1e-4, rtol=0)
        seen.append({"rotation_deg": angle, "scale": size - 1, "shear_deg": lean})
    for name, limit in {"rotation_deg": 0, "scale": 0, "shear_deg": 0, **strength}.items():
        values = torch.tensor([one[name] for one in seen])
        assert values.abs().max() <= limit + 1e-4
        assert limit == 0 or (values.min() < -limit / 2 and values.max() > limit / 2)
