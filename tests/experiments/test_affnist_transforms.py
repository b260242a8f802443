"""The numbers behind affnist_like: stored, read and drawn alike."""

import numpy as np
import pytest

from capsviz import data, discovery
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


def test_what_is_stored_is_read_and_lengthened_where_more_is_wanted(digits_for_mnist, tmp_path):
    path = transforms.store(tmp_path, 20)
    content = path.read_bytes()
    assert transforms.store(tmp_path, 20) == path and path.read_bytes() == content
    short = transforms.read(tmp_path, 7)
    np.testing.assert_array_equal(short["shear"], transforms.draw(7)["shear"])
    transforms.store(tmp_path, 40)
    assert len(transforms.read(tmp_path, 40)["angle_deg"]) == 40


def test_without_mnist_the_shipped_numbers_serve_or_none(monkeypatch, tmp_path):
    def absent(*_, **__):
        raise FileNotFoundError("MNIST")

    monkeypatch.setattr(data, "load", absent)
    assert set(transforms.read(tmp_path, 10_000)) == set(transforms.NAMES)
    assert transforms.read(tmp_path, 10_001) is None


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "transforms.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(ValueError, match=r"transforms\.npz' does not hold the transforms"):
        transforms.read(tmp_path, 5)


def test_the_shipped_numbers_are_those_that_mnist_gives(mnist_root):
    shipped = transforms.read(discovery.folder("capsviz.trained") / "affnist", 10_000)
    drawn = transforms.draw(10_000, mnist_root)
    for name in transforms.NAMES:
        np.testing.assert_array_equal(shipped[name], drawn[name])
