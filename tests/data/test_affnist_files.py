"""affNIST's files as their page describes them, and affnist_like against its specification."""

import numpy as np
import pytest
import torch
from scipy.io import savemat

from capsviz import data
from capsviz.data import affnist_like
from capsviz.transforms import warps


def strokes(label, side=40):
    """A digit-like drawing: ones stand upright, the others lie."""
    image = np.zeros((side, side), np.uint8)
    rows, columns = (slice(8, 32), slice(19, 22)) if label == 1 else (slice(17, 22), slice(6, 33))
    image[rows, columns] = 200
    image[3, 5] = label + 1  # marks the corner, and whose it is
    return image


def write(path, labels, turned=False):
    """A file in affNIST's layout: one image to a column, row by row."""
    images = np.stack([strokes(k).T if turned else strokes(k) for k in labels])
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = {
        "image": images.reshape(len(labels), -1).T,
        "label_int": np.array(labels, np.uint8)[None],
        "label_one_of_n": np.eye(10, dtype=np.uint8)[:, labels],
        "human_readable_transform": np.zeros((6, len(labels))),
    }
    savemat(path, {"affNISTdata": fields})


def test_a_whole_test_file_is_read_as_it_was_written(tmp_path):
    write(tmp_path / "affNIST/test.mat", [3, 1, 0, 9])
    found = data.load("affnist", "test", tmp_path)
    assert found.images.shape == (4, 1, 40, 40) and found.images.dtype == torch.uint8
    assert found.labels.tolist() == [3, 1, 0, 9] and found.name == "affnist"
    for image, label in zip(found.images[:, 0].numpy(), (3, 1, 0, 9), strict=True):
        np.testing.assert_array_equal(image, strokes(label))


@pytest.mark.parametrize(
    ("split", "folder"), [("train", "training_batches"), ("test", "test_batches")]
)
def test_batches_are_read_in_the_order_of_their_numbers(tmp_path, split, folder):
    for number in (10, 2, 1):
        write(tmp_path / "affNIST" / folder / f"{number}.mat", [number % 10, 1])
    assert data.load("affnist", split, tmp_path).labels.tolist() == [1, 1, 2, 1, 0, 1]


def test_images_written_column_by_column_are_recognised(tmp_path):
    write(tmp_path / "affNIST/test.mat", [1, 1, 7], turned=True)
    with pytest.raises(ValueError, match="lie on their side"):
        data.load("affnist", "test", tmp_path)


@pytest.mark.parametrize("size", [0, 400])
def test_an_empty_or_truncated_file_is_said_to_be_one(tmp_path, size):
    path = tmp_path / "affNIST/test.mat"
    write(path, [1, 2])
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"test\.mat is not a whole file of affNIST"):
        data.load("affnist", "test", tmp_path)


def test_images_of_another_size_are_refused(tmp_path):
    path = tmp_path / "affNIST/test.mat"
    path.parent.mkdir()
    savemat(
        path,
        {"affNISTdata": {"image": np.zeros((784, 2), np.uint8), "label_int": np.ones((1, 2))}},
    )
    with pytest.raises(ValueError, match=r"expected uint8 images \(1600, 2\).*\(784, 2\)"):
        data.load("affnist", "test", tmp_path)


def sample(n=60):
    """Images of scikit-learn's digits, 28 x 28, as a split."""
    return data.load("digits", "test").first(n)


def test_the_same_seed_makes_the_same_images_and_another_one_others():
    part = sample()
    (a, ta), (b, tb) = affnist_like.make(part, 3), affnist_like.make(part, 3)
    assert torch.equal(a.images, b.images)
    assert all(torch.equal(x, y) for x, y in zip(ta, tb, strict=True))
    for other in (affnist_like.make(part, 4), affnist_like.make(part, 3, seed=1)):
        assert not torch.equal(other[0].images, a.images)


def test_images_follow_from_the_numbers_that_are_returned():
    part = sample(7)
    made, numbers = affnist_like.make(part)
    assert made.images.shape == (7, 1, 40, 40) and made.images.dtype == torch.uint8
    assert torch.equal(made.labels, part.labels)
    for i in range(7):
        one = {name: values[i] for name, values in numbers._asdict().items()}
        padded = part.pad(6).images[i : i + 1].float()
        expected = warps.warp(padded, warps.matrix((40, 40), **one)).round()
        assert torch.equal(made.images[i : i + 1].float(), expected)


def test_the_numbers_are_drawn_by_the_specification():
    """Ranges, and quantiles of uniform draws (Kolmogorov-Smirnov, significance 0.1 %)."""
    from scipy.stats import kstest

    part = sample(360)
    drawn = [affnist_like.make(part, v)[1] for v in range(8)]
    for name, low, high in (
        ("angle_deg", -20, 20),
        ("shear", -0.2, 0.2),
        ("scale_x", 0.8, 1.2),
        ("scale_y", 0.8, 1.2),
    ):
        values = torch.cat([getattr(numbers, name) for numbers in drawn])
        assert low <= values.min() and values.max() <= high
        assert kstest((values - low) / (high - low), "uniform").pvalue > 0.001, name


def test_no_ink_is_lost():
    """Against the same maps on a canvas large enough for anything."""
    part = sample(250)
    margin = 30
    for variant in range(8):
        made, numbers = affnist_like.make(part, variant)
        large = part.pad(affnist_like.PAD_PX + margin).images.float()
        whole = warps.warp(large, warps.matrix(tuple(large.shape[2:]), **numbers._asdict()))
        inside = whole[:, :, margin:-margin, margin:-margin]
        assert (inside - made.images).abs().max() < 0.51  # rounding to whole grey levels
        inside.zero_()
        assert whole.max() < 1e-3  # of 255


def test_places_fill_the_whole_range_that_keeps_the_ink():
    """A dot of one pixel, not turned nor scaled, may stand anywhere on the canvas."""
    dot = torch.zeros(1, 1, 40, 40)
    dot[0, 0, 12, 30] = 1
    identity = warps.matrix((40, 40))
    (left, right), (up, down) = affnist_like.shift_ranges(dot, identity)
    expected = (-30, 9, -12, 27)
    assert [float(x) for x in (left, right, up, down)] == pytest.approx(expected, abs=0.01)


def test_ink_that_fits_under_no_draw_is_refused(generator, monkeypatch):
    monkeypatch.setattr(affnist_like, "SCALE", (1.1, 1.2))
    with pytest.raises(ValueError, match="too large for a canvas of 40 x 40"):
        affnist_like.draw(torch.ones(2, 1, 40, 40), generator=generator)


def test_variants_follow_one_another_and_do_not_depend_on_their_number(monkeypatch):
    load = lambda split, root, *, download: sample(40)  # noqa: E731
    monkeypatch.setattr("capsviz.data.mnist.load", load)
    one = data.load("affnist_like", "test", variants=1)
    two = data.load("affnist_like", "test", variants=2)
    assert (one.image_shape, one.classes) == (affnist_like.IMAGE_SHAPE, affnist_like.CLASSES)
    assert len(one) == 40 and len(two) == 80 and one.name == "affnist_like"
    assert torch.equal(two.images[:40], one.images)
    assert torch.equal(two.labels[40:], one.labels)
    assert not torch.equal(two.images[40:], one.images)


def test_more_variants_than_memory_are_refused_before_they_are_made(mnist_root):
    with pytest.raises(MemoryError, match=r"affnist_like test .* fewer variants"):
        data.load("affnist_like", "test", mnist_root, variants=100_000_000)
