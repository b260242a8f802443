"""Moments of bars with known slant, size and position."""

import numpy as np
import pytest

from capsviz.statistics.moments import moments


def bar(width, height, *, left=10, top=5, lean=0, size=40):
    """Return a bar (1, 1, size, size); each row is `lean` pixels to the left of the one above."""
    image = np.zeros((1, 1, size, size))
    for row in range(height):
        start = left - lean * row
        image[0, 0, top + row, start : start + width] = 1
    return image


def turned(thickness, length, angle_deg, size=61, blur=0.7):
    """Return a soft bar, rotated counter-clockwise from the vertical (y points down)."""
    y, x = np.mgrid[:size, :size] - (size - 1) / 2
    angle = np.radians(angle_deg)
    across = x * np.cos(angle) - y * np.sin(angle)
    along = x * np.sin(angle) + y * np.cos(angle)

    def inside(distance):
        return 1 / (1 + np.exp(np.clip(distance / blur * 2, -50, 50)))

    soft = inside(abs(across) - thickness / 2) * inside(abs(along) - length / 2)
    return soft[None, None]


@pytest.mark.parametrize(("width", "height"), [(1, 7), (3, 20), (8, 5)])
def test_width_and_height_of_an_upright_box_are_its_sides(width, height):
    found = moments(bar(width, height))
    assert found.width_px == pytest.approx(width)
    assert found.height_px == pytest.approx(height)
    assert found.slant_deg == pytest.approx(0, abs=1e-9)


def test_position_is_measured_to_the_right_and_below_the_centre():
    found = moments(bar(4, 6, left=25, top=30))
    assert found.x_px == pytest.approx(25 + 1.5 - 19.5)
    assert found.y_px == pytest.approx(30 + 2.5 - 19.5)


@pytest.mark.parametrize("lean", [-1, 1, 2])
def test_slant_is_the_shear_of_the_bar_and_does_not_widen_it(lean):
    found = moments(bar(3, 9, left=20, lean=lean))
    assert found.slant_deg == pytest.approx(np.degrees(np.arctan(lean)))
    assert found.width_px == pytest.approx(3)
    assert found.height_px == pytest.approx(9)


@pytest.mark.parametrize("thickness", [3, 5, 8])
def test_thickness_of_a_long_stroke_is_correct_at_every_angle(thickness):
    expected = thickness * 40 / (thickness + 40)
    for angle_deg in (0, 17, 45, 90):
        found = moments(turned(thickness, 40, angle_deg)).thickness_px
        assert found == pytest.approx(expected, rel=0.1)


def test_nothing_depends_on_contrast_or_on_the_scale_of_grey_values():
    image = turned(4, 25, 20)
    for one, two in zip(moments(image), moments(image * 0.3 * 255), strict=True):
        assert one == pytest.approx(two)


def test_a_black_image_is_nan_and_does_not_affect_the_others():
    found = moments(np.concatenate([np.zeros((1, 1, 40, 40)), bar(3, 9)]))
    for values in found:
        assert np.isnan(values[0])
        assert np.isfinite(values[1])


@pytest.mark.parametrize(
    "wrong",
    [np.zeros((3, 4, 4)), -bar(2, 2), np.full((1, 1, 4, 4), np.inf), np.full((1, 1, 4, 4), np.nan)],
)
def test_other_shapes_and_values_are_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        moments(wrong)
