"""The numbers behind affnist_like: stored, read and drawn alike."""

import numpy as np
import pytest

from capsviz import data
from capsviz.data import affnist_like
from capsviz.experiments.affnist import transforms


@pytest.fixture
def digits_for_mnist(monkeypatch):
    load = data.load
    digits = load("digits", "test").first(30)
    monkeypatch.setattr(data, "load", lambda name, split, root, **_: digits)
    return digits


def test_numbers_are_those_of_the_images_variant_after_variant(digits_for_mnist):
    drawn = transforms.draw(50)
    for variant, part in ((0, slice(0, 30)), (1, slice(30, 50))):
        own = affnist_like.make(digits_for_mnist, variant)[1]
        for name, values in own._asdict().items():
            np.testing.assert_allclose(drawn[name][part], values[: len(drawn[name][part])])


def test_more_than_is_shipped_is_drawn(digits_for_mnist):
    np.testing.assert_array_equal(transforms.read(10_001)["shear"][:7], transforms.draw(7)["shear"])


def test_the_shipped_numbers_are_those_that_mnist_gives(mnist_root):
    shipped = transforms.read(10_000)
    drawn = transforms.draw(10_000, mnist_root)
    for name in transforms.NAMES:
        np.testing.assert_array_equal(shipped[name], drawn[name])
