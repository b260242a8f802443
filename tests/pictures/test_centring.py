"""Whatever ink comes, the network sees it as MNIST's: bright, 20 pixels long, centred by mass."""

import numpy as np
import pytest
from helpers.photographs import photograph
from PIL import Image

from capsviz.pictures import centring


def stroke(shape=(300, 400), at=(40, 60), size=(200, 30)):
    picture = np.zeros(shape, np.float32)
    picture[at[0] : at[0] + size[0], at[1] : at[1] + size[1]] = 1
    return picture


def digit(digits, n=0):
    return (digits[0][n, 0] * 255).byte().numpy()


def centre_of_mass(image):
    return [float((axis * image).sum() / image.sum()) for axis in np.indices(image.shape)]


def test_a_photograph_shows_what_a_clean_scan_would_20_pixels_long_and_centred_by_mass(digits):
    for n in range(8):
        enlarged = Image.fromarray(digit(digits, n)).resize((400, 400), Image.Resampling.BICUBIC)
        clean = centring.mnist_style(np.asarray(enlarged))["input"]
        seen = centring.mnist_style(np.asarray(photograph(digit(digits, n), n)))["input"]
        assert np.corrcoef(seen.ravel(), clean.ravel())[0, 1] > 0.95
        rows, columns = (np.flatnonzero(seen.any(axis)) for axis in (1, 0))
        assert 19 <= max(np.ptp(rows), np.ptp(columns)) + 1 <= 20
        assert np.allclose(centre_of_mass(seen), 13.5, atol=0.51) or 0 in (rows[0], columns[0])
        assert seen.dtype == np.float32 and seen.shape == (28, 28) and 0.95 < seen.max() <= 1


@pytest.mark.parametrize("size", [(28, 28), (40, 40), (20, 33)])
def test_a_block_is_placed_as_worked_out_by_hand(size):
    seen = centring.place(stroke(at=(0, 0), shape=(200, 100), size=(200, 100)), size)
    tall = round(20 / 28 * min(size))
    wide = round(tall / 2)
    assert seen.shape == size and seen.sum() == tall * wide
    middle = [(side - 1) / 2 for side in size]
    assert np.allclose(centre_of_mass(seen), middle, atol=0.51)


def test_a_lopsided_shape_is_centred_by_mass_and_not_by_its_box():
    shape = np.zeros((100, 100), np.float32)
    shape[:, :20] = shape[80:, :] = 1  # an L
    seen = centring.place(shape, (28, 28))
    columns = np.flatnonzero(seen.any(0))
    assert columns.mean() > 16 and np.allclose(centre_of_mass(seen), 13.5, atol=0.51)


def test_dark_on_light_is_the_same_as_its_inverse_and_is_said_to_be():
    dark, bright = (centring.mnist_style(picture) for picture in (1 - stroke(), stroke()))
    assert np.array_equal(dark["input"], bright["input"])
    assert np.array_equal(bright["inverted"], bright["grey"])
    assert np.array_equal(dark["inverted"], 1 - dark["grey"])


def test_bytes_floats_grey_and_colour_are_the_same():
    grey = (stroke() * 255).astype(np.uint8)
    expected = centring.mnist_style(stroke())["input"]
    assert np.array_equal(centring.mnist_style(grey)["input"], expected)
    assert np.allclose(centring.mnist_style(np.dstack([grey] * 3))["input"], expected, atol=1e-5)


def test_an_image_of_the_networks_size_is_left_as_it_is(digits):
    image = digits[0][5, 0].numpy()
    bright, dark = centring.mnist_style(image), centring.mnist_style(1 - image)
    assert np.array_equal(bright["input"], image)
    assert np.allclose(dark["input"], image, atol=1e-6)


def test_a_sheet_on_a_dark_table_is_read_as_the_sheet_alone(digits):
    sheet = np.asarray(photograph(digit(digits), 3)) / np.float32(255)
    table = np.pad(sheet, 150, constant_values=0.1)
    seen, alone = (centring.mnist_style(picture)["input"] for picture in (table, sheet))
    assert np.corrcoef(seen.ravel(), alone.ravel())[0, 1] > 0.95


@pytest.mark.parametrize("width", [2, 3, 5])
def test_a_thin_line_is_thickened_to_what_mnist_shows(width):
    corner = stroke(size=(200, width)) + stroke(at=(240, 60), size=(width, 200))
    across = centring.mnist_style(corner)["input"][6:16].sum(1)
    assert 1.3 <= across.mean() <= 2.2  # pixels of full ink across the upright line
    thick = np.ones((200, 30), np.float32)
    assert centring.thicken(thick, 20) is thick


def test_other_shapes_and_words_are_refused():
    for shape in [(3,), (4, 5, 6), (0, 5), (1, 4, 5)]:
        with pytest.raises(ValueError, match=r"expected \(h, w\) or \(h, w, 3\)"):
            centring.mnist_style(np.zeros(shape))
    with pytest.raises(ValueError, match="unknown inversion 'y'"):
        centring.mnist_style(stroke(), invert="y")
