"""Strokes are told from paper, and the network sees them as MNIST's: bright, centred by mass."""

import numpy as np
import pytest
from helpers.photographs import photograph
from PIL import Image
from scipy import ndimage

from capsviz.pictures import strokes


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
        clean = strokes.mnist_style(np.asarray(enlarged))["input"]
        seen = strokes.mnist_style(np.asarray(photograph(digit(digits, n), n)))["input"]
        assert np.corrcoef(seen.ravel(), clean.ravel())[0, 1] > 0.95
        rows, columns = (np.flatnonzero(seen.any(axis)) for axis in (1, 0))
        assert 19 <= max(np.ptp(rows), np.ptp(columns)) + 1 <= 20
        assert np.allclose(centre_of_mass(seen), 13.5, atol=0.51) or 0 in (rows[0], columns[0])
        assert seen.dtype == np.float32 and seen.shape == (28, 28) and 0.95 < seen.max() <= 1


@pytest.mark.parametrize("size", [(28, 28), (40, 40), (20, 33)])
def test_a_block_is_placed_as_worked_out_by_hand(size):
    seen = strokes.place(stroke(at=(0, 0), shape=(200, 100), size=(200, 100)), size)
    tall = round(20 / 28 * min(size))
    wide = round(tall / 2)
    assert seen.shape == size and seen.sum() == tall * wide
    middle = [(side - 1) / 2 for side in size]
    assert np.allclose(centre_of_mass(seen), middle, atol=0.51)


def test_a_lopsided_shape_is_centred_by_mass_and_not_by_its_box():
    shape = np.zeros((100, 100), np.float32)
    shape[:, :20] = shape[80:, :] = 1  # an L
    seen = strokes.place(shape, (28, 28))
    columns = np.flatnonzero(seen.any(0))
    assert columns.mean() > 16 and np.allclose(centre_of_mass(seen), 13.5, atol=0.51)


def test_dark_on_light_is_the_same_as_its_inverse_and_is_said_to_be():
    dark, bright = (strokes.mnist_style(picture) for picture in (1 - stroke(), stroke()))
    assert np.array_equal(dark["input"], bright["input"])
    assert np.array_equal(bright["inverted"], bright["grey"])
    assert np.array_equal(dark["inverted"], 1 - dark["grey"])


def test_bytes_floats_grey_and_colour_are_the_same():
    grey = (stroke() * 255).astype(np.uint8)
    expected = strokes.mnist_style(stroke())["input"]
    assert np.array_equal(strokes.mnist_style(grey)["input"], expected)
    assert np.allclose(strokes.mnist_style(np.dstack([grey] * 3))["input"], expected, atol=1e-5)


def test_an_image_of_the_networks_size_is_left_as_it_is(digits):
    image = digits[0][5, 0].numpy()
    bright, dark = strokes.mnist_style(image), strokes.mnist_style(1 - image)
    assert np.array_equal(bright["input"], image)
    assert np.allclose(dark["input"], image, atol=1e-6)


def test_a_sheet_on_a_dark_table_is_read_as_the_sheet_alone(digits):
    sheet = np.asarray(photograph(digit(digits), 3)) / np.float32(255)
    table = np.pad(sheet, 150, constant_values=0.1)
    seen, alone = (strokes.mnist_style(picture)["input"] for picture in (table, sheet))
    assert np.corrcoef(seen.ravel(), alone.ravel())[0, 1] > 0.95


@pytest.mark.parametrize("width", [2, 3, 5])
def test_a_thin_line_is_thickened_to_what_mnist_shows(width):
    corner = stroke(size=(200, width)) + stroke(at=(240, 60), size=(width, 200))
    across = strokes.mnist_style(corner)["input"][6:16].sum(1)
    assert 1.3 <= across.mean() <= 2.2  # pixels of full ink across the upright line
    thick = np.ones((200, 30), np.float32)
    assert strokes.thicken(thick, 20) is thick


def test_other_shapes_and_words_are_refused():
    for shape in [(3,), (4, 5, 6), (0, 5), (1, 4, 5)]:
        with pytest.raises(ValueError, match=r"expected \(h, w\) or \(h, w, 3\)"):
            strokes.mnist_style(np.zeros(shape))
    with pytest.raises(ValueError, match="unknown inversion 'y'"):
        strokes.mnist_style(stroke(), invert="y")


def two_bars(shape=(60, 90)):
    """Bright ink on black (h, w): two bars, apart from each other and from the border."""
    picture = np.zeros(shape, np.float32)
    picture[10:50, 20:26] = picture[10:50, 50:57] = 1
    return picture


def test_otsu_leaves_the_least_variance_within_both_sides(digits):
    values = digits[0][3].numpy().ravel() * 255
    within = [
        sum(side.size * side.var() for side in (values[values <= t], values[values > t]))
        for t in np.arange(1, 254)
    ]
    found = strokes.otsu(values / 255, bins=256) * 255
    split = sum(
        side.size * side.var() for side in (values[values <= found], values[values > found])
    )
    assert split == pytest.approx(min(within), rel=0.01)


def test_a_bright_border_means_dark_ink_and_the_user_has_the_last_word():
    assert strokes.is_dark_on_light(1 - two_bars())
    assert not strokes.is_dark_on_light(two_bars())
    assert strokes.is_dark_on_light(two_bars(), "yes")
    assert not strokes.is_dark_on_light(1 - two_bars(), "no")
    with pytest.raises(ValueError, match="unknown inversion 'maybe', expected one of: auto"):
        strokes.is_dark_on_light(two_bars(), "maybe")


@pytest.mark.parametrize("bright", [False, True])
def test_dark_corners_do_not_hide_which_is_the_ink(bright):
    y, x = np.mgrid[-1:1:60j, -1:1:90j]
    paper = 0.9 - 0.3 * (x**2 + y**2)  # its border is darker than the middle of its range
    picture = np.where(two_bars() > 0, 0.1 * paper, paper).astype(np.float32)
    assert strokes.is_dark_on_light(1 - picture if bright else picture) is not bright


def test_ink_is_found_where_it_is_on_a_slope_of_light():
    truth = two_bars()
    slope = np.linspace(0, 0.5, 90, dtype=np.float32)
    alone, mask = strokes.find_strokes(0.4 * truth + slope)
    assert np.array_equal(mask, truth > 0)
    assert np.allclose(alone[truth > 0], 1, atol=0.05) and alone[truth == 0].max() == 0


def test_dirt_is_dropped_and_so_is_what_touches_the_border_where_there_is_other_ink():
    dirty = two_bars()
    dirty[30, 80] = dirty[55:57, 40] = 1  # specks
    dirty[:, :3] = 1  # the edge of the table
    assert np.array_equal(strokes.find_strokes(dirty)[1], two_bars() > 0)
    touching = np.zeros((60, 90), np.float32)
    touching[0:40, 30:36] = 1
    assert np.array_equal(strokes.find_strokes(touching)[1], touching > 0)


def test_a_slope_of_light_alone_shows_no_ink():
    with pytest.raises(ValueError, match="is empty"):
        strokes.find_strokes(np.tile(np.linspace(0, 1, 90, dtype=np.float32), (60, 1)))


def test_bright_ink_is_no_sheet_of_paper(digits):
    assert strokes.find_sheet(two_bars()) is None
    for image in digits[0][:50, 0].numpy():
        thick = ndimage.grey_dilation(np.kron(image, np.ones((8, 8), np.float32)), 13)
        assert strokes.find_sheet(thick) is None
    block = np.zeros((60, 90), np.float32)
    block[10:50, 20:70] = 1  # large and solid, but nothing is written on it
    assert strokes.find_sheet(block) is None


def test_pieces_are_counted_by_their_own_ink_and_dirt_is_none():
    assert strokes.pieces(two_bars()) == 2
    joined = two_bars()
    joined[joined.shape[0] // 2] = 1
    assert strokes.pieces(joined) == 1
    dirty = two_bars()
    dirty[2, 2] = 1
    assert strokes.pieces(dirty) == 2 and strokes.pieces(0 * dirty) == 0
    assert strokes.pieces(0.4 * two_bars()) == 0  # no full ink
