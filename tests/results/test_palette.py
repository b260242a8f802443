"""The house colours: told apart by those who lack one kind of cone, and dark enough on white."""

from itertools import combinations

import numpy as np
import pytest
from helpers import colour_vision as eyes
from matplotlib.colors import to_rgb

from capsviz import results
from capsviz.arrangement import legible, spread

RGB = np.array([to_rgb(colour) for colour in results.COLOURS])
LEAST = 15  # CIEDE2000; the ten colours of before came down to 1.5


def differences(rgb, deuteranope):
    lab = eyes.lab(rgb, deuteranope=deuteranope)
    return {(i, j): float(eyes.ciede2000(lab[i], lab[j])) for i, j in combinations(range(10), 2)}


@pytest.mark.parametrize("deuteranope", [False, True])
def test_ten_classes_are_told_apart(deuteranope):
    assert len(RGB) == 10
    apart = differences(RGB, deuteranope)
    assert min(apart.values()) > LEAST, min(apart, key=apart.get)


def test_every_colour_stands_out_from_white_and_its_letters_more():
    contrast = [1.05 / (eyes.linear(rgb) @ eyes.XYZ[1] + 0.05) for rgb in RGB]
    assert min(contrast) >= 1.95
    letters = [1.05 / (eyes.linear(legible(rgb)) @ eyes.XYZ[1] + 0.05) for rgb in RGB]
    assert min(letters) >= 4.45


def test_names_of_lines_are_spread_in_their_order():
    wanted = np.array([60.0, 30.0, 31.0, 32.0, 90.0])
    middles = spread(wanted, [8] * 5, 0, 100)
    assert (np.diff(np.sort(middles)) >= 8 - 1e-9).all()
    assert (np.argsort(middles) == np.argsort(wanted)).all()
    assert middles[0] == 60 and middles[4] == 90
    assert middles[[1, 2, 3]].mean() == pytest.approx(wanted[[1, 2, 3]].mean())
    assert spread([99.0, 100.0], [8, 8], 0, 100) == pytest.approx([88, 96])
