import pytest
import torch

from capsviz.augment import shift, to_float


def by_loop(image, down, right):
    """Move an image (C, H, W) pixel by pixel, zeros elsewhere."""
    moved = torch.zeros_like(image)
    C, H, W = image.shape
    for c in range(C):
        for y in range(H):
            for x in range(W):
                if 0 <= y + down < H and 0 <= x + right < W:
                    moved[c, y + down, x + right] = image[c, y, x]
    return moved


def every_shift(image, most):
    span = range(-most, most + 1)
    return {(down, right): by_loop(image, down, right) for down in span for right in span}


def found_shifts(images, moved, most):
    """Which of the (2 most + 1)^2 shifts was done to each image."""
    names = []
    for image, result in zip(images, moved, strict=True):
        same = [
            name
            for name, expected in every_shift(image, most).items()
            if torch.equal(result, expected)
        ]
        assert len(same) == 1
        names.append(same[0])
    return names


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("most", [1, 2])
def test_each_image_is_moved_whole_pixels_and_filled_with_zeros(most, dtype, generator):
    images = torch.randint(1, 255, (6, 2, 5, 7), generator=generator).to(dtype)
    moved = shift(images, most, generator=generator)
    assert moved.shape == images.shape and moved.dtype == dtype
    found_shifts(images, moved, most)


def test_all_25_shifts_of_two_pixels_occur_equally_often(generator):
    image = torch.randint(1, 255, (1, 1, 6, 5), generator=generator, dtype=torch.uint8)
    n = 2500
    moved = shift(image.expand(n, -1, -1, -1), 2, generator=generator)
    counts = {
        name: int((moved == expected).flatten(1).all(1).sum())
        for name, expected in every_shift(image[0], 2).items()
    }
    assert len(counts) == 25 and sum(counts.values()) == n
    assert min(counts.values()) > 60 and max(counts.values()) < 145  # 100 ± 4 deviations


def test_images_of_one_batch_are_moved_differently(generator):
    images = torch.randint(1, 255, (1, 1, 6, 5), generator=generator).expand(20, -1, -1, -1)
    assert len(set(found_shifts(images, shift(images, 2, generator=generator), 2))) > 5


def test_channels_of_one_image_move_together(generator):
    images = torch.randint(1, 255, (8, 1, 6, 5), generator=generator).expand(-1, 3, -1, -1)
    moved = shift(images, 2, generator=generator)
    assert torch.equal(moved, moved[:, :1].expand(-1, 3, -1, -1))


def test_the_same_seed_gives_the_same_shifts(generator):
    images = torch.rand(8, 1, 6, 5, generator=generator)
    results = [shift(images, 2, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])


def test_no_shift_leaves_images_and_the_originals_are_never_changed(generator):
    images = torch.rand(8, 1, 6, 5, generator=generator)
    before = images.clone()
    assert torch.equal(shift(images, 0), before)
    shift(images, 2, generator=generator)
    assert torch.equal(images, before)


def test_bytes_become_floats_in_0_1():
    images = to_float(torch.tensor([[[[0, 51, 255]]]], dtype=torch.uint8))
    assert images.dtype == torch.float32
    torch.testing.assert_close(images, torch.tensor([[[[0, 0.2, 1.0]]]]))
