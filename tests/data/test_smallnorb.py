"""smallNORB's binary matrices: read in their format; what is damaged or amiss is said plainly."""

import gzip
import struct

import numpy as np
import pytest
import torch

from capsviz import data
from capsviz.data.smallnorb import PREFIX

MAGIC = {"u1": 0x1E3D4C55, "<i4": 0x1E3D4C54}
CATEGORIES, INSTANCES = [0, 1, 2, 3, 4, 0], [4, 9, 6, 9, 8, 7]


def matrix(values, kind):
    """An array in the format: unused dimensions, up to three, are 1."""
    values = np.asarray(values, kind)
    dims = [*values.shape, 1, 1][: max(values.ndim, 3)]
    return struct.pack(f"<Ii{len(dims)}i", MAGIC[kind], values.ndim, *dims) + values.tobytes()


def write(root, part="train", packed=False, **other):
    """Six stereo pairs in the format; `other` replaces dat, cat or info. Returns the pairs."""
    pairs = np.random.default_rng(0).integers(0, 256, (6, 2, 96, 96), dtype=np.uint8)
    info = np.zeros((6, 4), int)
    info[:, 0] = INSTANCES
    files = {"dat": matrix(pairs, "u1"), "cat": matrix(CATEGORIES, "<i4")}
    files |= {"info": matrix(info, "<i4")} | other
    root.mkdir(parents=True, exist_ok=True)
    for what, content in files.items():
        path = root / f"{PREFIX[part]}-{what}.mat"
        if content is None:
            continue
        if packed:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content))
        else:
            path.write_bytes(content)
    return pairs


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("place", ["", "smallNORB"])
def test_stereo_pairs_are_read_as_they_were_written(tmp_path, place, packed):
    pairs = write(tmp_path / place, "test", packed)
    part = data.load("smallnorb", "test", tmp_path, image_size=96)
    assert part.images.dtype == torch.uint8 and np.array_equal(part.images, pairs)
    assert part.labels.dtype == torch.int64 and part.labels.tolist() == CATEGORIES
    assert part.classes == ("animal", "human", "plane", "truck", "car")
    assert (part.name, part.split) == ("smallnorb", "test")


def test_images_are_made_smaller_by_averaging_squares(tmp_path):
    pairs = write(tmp_path, "test")
    part = data.load("smallnorb", "test", tmp_path)
    assert part.image_shape == (2, 48, 48)
    for n, eye, row, column in ((0, 0, 0, 0), (5, 1, 47, 3), (2, 0, 20, 46)):
        square = pairs[n, eye, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        expected = int(np.floor(square.astype(float).mean() + 0.5))
        assert part.images[n, eye, row, column] == expected
    pooled = torch.nn.functional.avg_pool2d(torch.from_numpy(pairs).double(), 2)
    assert (part.images - pooled).abs().max() <= 0.5


def test_one_eye_is_one_channel_of_both(tmp_path):
    write(tmp_path, "test")
    left, right, both = (
        data.load("smallnorb", "test", tmp_path, eye=eye).images
        for eye in ("left", "right", "both")
    )
    assert left.shape == right.shape == (6, 1, 48, 48)
    assert torch.equal(torch.cat([left, right], 1), both) and not torch.equal(left, right)


def test_validation_is_one_toy_of_each_class_that_training_does_not_see(tmp_path):
    pairs = write(tmp_path)
    train, validation = (
        data.load("smallnorb", split, tmp_path, image_size=96) for split in ("train", "validation")
    )
    assert train.labels.tolist() == [0, 2, 4, 0] and validation.labels.tolist() == [1, 3]
    assert np.array_equal(train.images, pairs[[0, 2, 4, 5]])
    assert np.array_equal(validation.images, pairs[[1, 3]])


@pytest.mark.parametrize("missing", ["dat", "cat", "info"])
def test_a_missing_file_says_where_it_belongs_and_where_it_is(tmp_path, missing):
    write(tmp_path, **{missing: None})
    with pytest.raises(FileNotFoundError, match=rf"{missing}\.mat is not in .*not downl.*nyu\.edu"):
        data.load("smallnorb", "train", tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eye": "third"}, "eye must be one of left, right, both, got 'third'"),
        ({"image_size": 40}, "image_size must divide 96, e.g. 48, got 40"),
        ({"image_size": -48}, "image_size must divide 96"),
    ],
)
def test_options_that_do_not_exist_are_refused(tmp_path, options, message):
    write(tmp_path)
    with pytest.raises(ValueError, match=message):
        data.load("smallnorb", "train", tmp_path, **options)


PAIRS = np.zeros((6, 2, 96, 96), np.uint8)


@pytest.mark.parametrize(
    ("what", "content", "message"),
    [
        ("dat", b"MATLAB 5.0 MAT-file" + bytes(200), "expected the magic number .*got 0x4C54414D"),
        ("dat", struct.pack("<Ii", 0x1E3D4C55, -3), "expected the magic number .*and -3"),
        ("dat", matrix(PAIRS, "u1")[:13], "damaged or cut short"),
        ("dat", matrix(PAIRS, "u1")[:-1], "holds 110,591 bytes of values, expected 110,592"),
        ("dat", matrix(PAIRS[:, :1], "u1"), r"expected uint8 \(N, 2, 96, 96\), .*\(6, 1, 96, 96\)"),
        ("dat", matrix(PAIRS, "<i4"), "expected uint8 .*got int32"),
        ("cat", matrix([0] * 5, "<i4"), r"cat\.mat.*: expected int32 \(6\), got int32 \(5,\)"),
        ("cat", matrix([0, 1, 2, 3, 4, 5], "<i4"), "categories from 0 to 4, got 0 to 5"),
        ("info", matrix(np.ones((6, 4)), "<i4"), r"no image for validation.*instances are \[1\]"),
    ],
    ids=range(9),
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_holds_something_else_is_refused(tmp_path, what, content, message, packed):
    write(tmp_path, packed=packed, **{what: content})
    with pytest.raises(ValueError, match=message):
        data.load("smallnorb", "validation", tmp_path)


@pytest.mark.parametrize("kept", [0, -20])
def test_a_packed_file_that_is_cut_short_is_refused(tmp_path, kept):
    write(tmp_path, packed=True)
    path = tmp_path / f"{PREFIX['train']}-dat.mat.gz"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match="damaged or cut short"):
        data.load("smallnorb", "train", tmp_path)
