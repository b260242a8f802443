"""The house colours: told apart by those who lack one kind of cone, and dark enough on white."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from skimage.color import colorconv, deltaE_ciede2000

from capsviz import results
from capsviz.arrangement import legible, spread

RGB = np.array([to_rgb(colour) for colour in results.COLOURS])
LEAST = 15  # CIEDE2000; the ten colours of before came down to 1.5
DEUTERANOPIA = np.array([  # Machado, Oliveira & Fernandes 2009, table 1, severity 1.0; linear RGB
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.011820, 0.042940, 0.968881],
])  # fmt: skip


@pytest.mark.parametrize("eyes", [np.eye(3), DEUTERANOPIA], ids=["usual", "deuteranope"])
def test_ten_classes_are_told_apart(eyes):
    linear = colorconv.rgb2xyz(RGB) @ colorconv.rgb_from_xyz.T
    lab = colorconv.xyz2lab((linear @ eyes.T).clip(0, 1) @ colorconv.xyz_from_rgb.T)
    apart = {(i, j): deltaE_ciede2000(lab[i], lab[j]) for i, j in combinations(range(10), 2)}
    assert min(apart.values()) > LEAST, min(apart, key=apart.get)


def test_every_colour_stands_out_from_white_and_its_letters_more():
    for colours, least in ((RGB, 1.95), ([legible(rgb) for rgb in RGB], 4.45)):
        contrast = 1.05 / (colorconv.rgb2xyz([to_rgb(one) for one in colours])[:, 1] + 0.05)
        assert contrast.min() >= least


def test_names_of_lines_are_spread_in_their_order():
    wanted = np.array([60.0, 30.0, 31.0, 32.0, 90.0])
    middles = spread(wanted, [8] * 5, 0, 100)
    assert (np.diff(np.sort(middles)) >= 8 - 1e-9).all()
    assert (np.argsort(middles) == np.argsort(wanted)).all()
    assert middles[0] == 60 and middles[4] == 90
    assert middles[[1, 2, 3]].mean() == pytest.approx(wanted[[1, 2, 3]].mean())
    assert spread([99.0, 100.0], [8, 8], 0, 100) == pytest.approx([88, 96])
