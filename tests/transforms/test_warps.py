import pytest
import torch

from capsviz.transforms.warps import FAMILIES, family_matrix, matrix, rotate, warp

SIZES = pytest.mark.parametrize("size", [(28, 28), (9, 9), (8, 8)])


def draw(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def square(matrices):
    """(B, 2, 3) -> (B, 3, 3)."""
    last = torch.tensor([0.0, 0.0, 1.0]).expand(len(matrices), 1, 3)
    return torch.cat([matrices, last], 1)


@SIZES
@pytest.mark.parametrize("turns", [1, 2, 3, -1])
def test_quarter_turns_are_rot90(size, turns):
    images = draw(2, 3, *size)
    expected = torch.rot90(images, turns, (2, 3))  # counter-clockwise
    torch.testing.assert_close(rotate(images, 90.0 * turns), expected, rtol=0, atol=1e-5)


def test_a_scale_of_two_doubles_distances_from_the_centre():
    image = torch.zeros(1, 1, 13, 13)
    image[0, 0, 6, 6] = image[0, 0, 6, 8] = image[0, 0, 5, 6] = 1
    found = warp(image, matrix((13, 13), scale_x=2.0, scale_y=3.0))[0, 0]
    assert found[6, 6] > 0.99 and found[6, 10] > 0.99 and found[3, 6] > 0.99


def test_shear_adds_to_y_in_proportion_to_x():
    image = torch.zeros(1, 1, 13, 13)
    image[0, 0, 6] = 1  # a level line through the centre
    found = warp(image, matrix((13, 13), shear=0.5))[0, 0]
    for x in range(0, 13, 2):
        assert found[:, x].argmax() == 6 + 0.5 * (x - 6)


def test_the_order_is_rotate_shear_scale_shift():
    size = (12, 17)
    steps = [
        {"angle_deg": 20.0},
        {"shear": 0.3},
        {"scale_x": 1.5, "scale_y": 0.7},
        {"shift_x_px": 2.0, "shift_y_px": -3.0},
    ]
    expected = torch.eye(3)[None]
    for step in steps:
        expected = square(matrix(size, **step)) @ expected
    together = {name: value for step in steps for name, value in step.items()}
    torch.testing.assert_close(square(matrix(size, **together)), expected, rtol=0, atol=1e-5)


def test_a_matrix_says_where_a_pixel_goes():
    # by hand, with y down: (8, 5) is 2 right of the centre (6, 5); a quarter turn puts it 2 above
    place = matrix((11, 13), angle_deg=90.0, shift_x_px=1.0)[0] @ torch.tensor([8.0, 5.0, 1.0])
    torch.testing.assert_close(place, torch.tensor([7.0, 3.0]))


@pytest.mark.parametrize(("images", "matrices"), [(4, 4), (1, 4), (3, 1)])
def test_images_and_matrices_go_in_pairs_or_one_goes_with_all(images, matrices):
    drawn = draw(images, 2, 15, 15)
    values = {"angle_deg": [0.0, 30.0, -75.0, 180.0], "shift_x_px": [0.0, 1.5, 2.0, -3.0]}
    values = {name: torch.tensor(some[:matrices]) for name, some in values.items()}
    together = warp(drawn, matrix((15, 15), **values, scale_y=1.2))
    assert len(together) == max(images, matrices)
    for b, found in enumerate(together):
        one = {name: float(some[b % matrices]) for name, some in values.items()}
        alone = warp(drawn[b % images][None], matrix((15, 15), **one, scale_y=1.2))
        torch.testing.assert_close(found, alone[0])


@pytest.mark.parametrize("fill", ["black", "edge", "mean"])
def test_what_comes_from_outside_is_zero_the_nearest_pixel_or_the_mean(fill):
    images = draw(2, 3, 9, 9)
    found = warp(images, matrix((9, 9), shift_x_px=3.0), fill)
    edge = images[..., :1].expand(-1, -1, -1, 3)
    mean = images.mean((2, 3), keepdim=True).expand_as(edge)
    expected = {"black": torch.zeros_like(edge), "edge": edge, "mean": mean}[fill]
    torch.testing.assert_close(found[..., :3], expected)
    torch.testing.assert_close(found[..., 3:], images[..., :-3])
    turned = rotate(images, 45.0, fill)
    assert turned.min() >= 0 and turned.max() <= 1 + 1e-6


@pytest.mark.parametrize("shape", [(3, 2, 28, 28), (2, 1, 21, 19), (1, 1, 40, 40)])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_neutral_size_of_every_family_leaves_every_pixel(name, shape):
    images = (draw(*shape) * 255).round() / 255
    same = warp(images, family_matrix(name, FAMILIES[name].neutral, shape[2:]))
    # noise changes by up to 1 from pixel to pixel, where float32 coordinates are off by a few 1e-6
    torch.testing.assert_close(same, images, rtol=0, atol=1e-5)
    assert torch.equal((same * 255).round(), (images * 255).round())


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("rotation", 90, lambda images: torch.rot90(images, 1, (2, 3))),
        ("shift-x", 3, lambda images: torch.nn.functional.pad(images, (3, 0))[..., :-3]),
        ("shift-y", -2, lambda images: torch.nn.functional.pad(images, (0, 0, 0, 2))[..., 2:, :]),
    ],
)
def test_a_family_warps_by_its_size_in_its_unit(name, size, expected):
    images = draw(2, 2, 11, 11)
    found = warp(images, family_matrix(name, size, (11, 11)))
    torch.testing.assert_close(found, expected(images), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [("rotatoin", 0, "did you mean 'rotation'"), ("scale", 0, "above 0"), ("scale", -1, "above 0")],
)
def test_what_is_no_warp_of_a_family_is_refused(name, size, message):
    with pytest.raises(ValueError, match=message):
        family_matrix(name, size, (8, 8))
