"""Ink is told from paper: dark or bright, evenly lit or not, on a table or beside dirt."""

import numpy as np
import pytest
from scipy import ndimage

from capsviz.pictures import foreground


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
    found = foreground.otsu(values / 255, bins=256) * 255
    split = sum(
        side.size * side.var() for side in (values[values <= found], values[values > found])
    )
    assert split == pytest.approx(min(within), rel=0.01)


def test_a_bright_border_means_dark_ink_and_the_user_has_the_last_word():
    assert foreground.is_dark_on_light(1 - two_bars())
    assert not foreground.is_dark_on_light(two_bars())
    assert foreground.is_dark_on_light(two_bars(), "yes")
    assert not foreground.is_dark_on_light(1 - two_bars(), "no")
    with pytest.raises(ValueError, match="unknown inversion 'maybe', expected one of: auto"):
        foreground.is_dark_on_light(two_bars(), "maybe")


@pytest.mark.parametrize("bright", [False, True])
def test_dark_corners_do_not_hide_which_is_the_ink(bright):
    y, x = np.mgrid[-1:1:60j, -1:1:90j]
    paper = 0.9 - 0.3 * (x**2 + y**2)  # its border is darker than the middle of its range
    picture = np.where(two_bars() > 0, 0.1 * paper, paper).astype(np.float32)
    assert foreground.is_dark_on_light(1 - picture if bright else picture) is not bright


def test_ink_is_found_where_it_is_on_a_slope_of_light():
    truth = two_bars()
    slope = np.linspace(0, 0.5, 90, dtype=np.float32)
    alone, mask = foreground.find_strokes(0.4 * truth + slope)
    assert np.array_equal(mask, truth > 0)
    assert np.allclose(alone[truth > 0], 1, atol=0.05) and alone[truth == 0].max() == 0


def test_dirt_and_what_touches_the_border_is_dropped():
    dirty = two_bars()
    dirty[30, 80] = dirty[55:57, 40] = 1  # specks
    dirty[:, :3] = 1  # the edge of the table
    assert np.array_equal(foreground.find_strokes(dirty)[1], two_bars() > 0)


def test_ink_that_reaches_the_border_is_kept_where_there_is_no_other():
    touching = np.zeros((60, 90), np.float32)
    touching[0:40, 30:36] = 1
    assert np.array_equal(foreground.find_strokes(touching)[1], touching > 0)


def test_a_slope_of_light_alone_shows_no_ink():
    with pytest.raises(ValueError, match="is empty"):
        foreground.find_strokes(np.tile(np.linspace(0, 1, 90, dtype=np.float32), (60, 1)))


def test_bright_ink_is_no_sheet_of_paper(digits):
    assert foreground.find_sheet(two_bars()) is None
    for image in digits[0][:50, 0].numpy():
        thick = ndimage.grey_dilation(np.kron(image, np.ones((8, 8), np.float32)), 13)
        assert foreground.find_sheet(thick) is None
    block = np.zeros((60, 90), np.float32)
    block[10:50, 20:70] = 1  # large and solid, but nothing is written on it
    assert foreground.find_sheet(block) is None


def test_pieces_are_counted_by_their_own_ink_and_dirt_is_none():
    assert foreground.pieces(two_bars()) == 2
    joined = two_bars()
    joined[joined.shape[0] // 2] = 1
    assert foreground.pieces(joined) == 1
    dirty = two_bars()
    dirty[2, 2] = 1
    assert foreground.pieces(dirty) == 2 and foreground.pieces(0 * dirty) == 0
    assert foreground.pieces(0.4 * two_bars()) == 0  # no full ink
