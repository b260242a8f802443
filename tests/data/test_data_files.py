"""Data sets in files of their own kinds: read as they were written; what is amiss is one line."""

import gzip
import hashlib
import http.server
import io
import struct
import threading
from functools import partial

import numpy as np
import pytest
import torch
from scipy.io import savemat

from capsviz import data
from capsviz.data.smallnorb import PREFIX

LABELS = [0, 1, 2, 3, 4, 0]
MAGIC = {"u1": 0x1E3D4C55, "<i4": 0x1E3D4C54}


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def matrix(values, kind="u1"):
    """An array in NORB's format: unused dimensions, up to three, are 1."""
    values = np.asarray(values, kind)
    dims = [*values.shape, 1, 1][: max(values.ndim, 3)]
    return struct.pack(f"<Ii{len(dims)}i", MAGIC[kind], values.ndim, *dims) + values.tobytes()


def write_mnist_c(root, part="test", n=6, corruption="identity"):
    folder = root / "mnist_c" / corruption
    folder.mkdir(parents=True, exist_ok=True)
    images = noise(n, 28, 28, 1)
    np.save(folder / f"{part}_images.npy", images)
    np.save(folder / f"{part}_labels.npy", np.resize(LABELS, n))
    return images.transpose(0, 3, 1, 2)


def write_smallnorb(root, part="test", packed=False, place="smallNORB"):
    (root / place).mkdir(parents=True, exist_ok=True)
    info = np.zeros((6, 4))
    info[:, 0] = [4, 9, 6, 9, 8, 7]
    pairs = noise(6, 2, 96, 96)
    files = {"dat": matrix(pairs), "cat": matrix(LABELS, "<i4"), "info": matrix(info, "<i4")}
    for what, content in files.items():
        content, end = (gzip.compress(content), ".gz") if packed else (content, "")
        (root / place / f"{PREFIX[part]}-{what}.mat{end}").write_bytes(content)
    means = pairs.reshape(6, 2, 48, 2, 48, 2).astype(float).mean((3, 5))
    return np.floor(means + 0.5).astype(np.uint8)


def write_affnist(root, name="test.mat", labels=LABELS):
    """One image to a column, row by row."""
    images = noise(len(labels), 40, 40)
    fields = {
        "image": images.reshape(len(labels), -1).T,
        "label_int": np.array(labels, np.uint8)[None],
        "human_readable_transform": np.zeros((6, len(labels))),
    }
    path = root / "affNIST" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {"affNISTdata": fields})
    return images[:, None]


def write_svhn(root, place="SVHN"):
    """As a part of it lies there, where 10 stands for 0."""
    (root / place).mkdir(parents=True, exist_ok=True)
    images, digits = noise(32, 32, 3, len(LABELS)), np.array(LABELS)
    path = root / place / "test_32x32.mat"
    savemat(path, {"X": images, "y": np.where(digits == 0, 10, digits).astype("u1")[:, None]})
    return images.transpose(3, 2, 0, 1)


def expect(monkeypatch, path, url=None):
    """Make the checksum of a part of SVHN, and maybe its address, the expected one."""
    from torchvision.datasets import SVHN

    known, name, _ = SVHN.split_list["test"]
    checksum = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setitem(SVHN.split_list, "test", (url or known, name, checksum))


WRITERS = {
    "mnist_c": write_mnist_c, "smallnorb": write_smallnorb, "affnist": write_affnist,
    "svhn": write_svhn,
}  # fmt: skip
FILES = [  # of the test splits
    ("mnist_c", "mnist_c/identity/test_images.npy"),
    ("mnist_c", "mnist_c/identity/test_labels.npy"),
    ("smallnorb", f"smallNORB/{PREFIX['test']}-dat.mat"),
    ("smallnorb", f"smallNORB/{PREFIX['test']}-cat.mat"),
    ("affnist", "affNIST/test.mat"),
]


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("mnist_c", {}), ("affnist", {}), ("smallnorb", {}), ("smallnorb", {"packed": True}),
        ("smallnorb", {"packed": True, "place": ""}), ("svhn", {}), ("svhn", {"place": ""}),
    ],
)  # fmt: skip
def test_a_data_set_is_read_as_it_was_written(tmp_path, monkeypatch, name, how):
    images = WRITERS[name](tmp_path, **how)
    if name == "svhn":
        expect(monkeypatch, tmp_path / how.get("place", "SVHN") / "test_32x32.mat")
    part = data.load(name, "test", tmp_path)
    assert part.images.dtype == torch.uint8 and np.array_equal(part.images, images)
    assert part.labels.dtype == torch.int64 and part.labels.tolist() == LABELS
    assert (part.name, part.split) == (name, "test") and part.images.is_contiguous()


@pytest.mark.parametrize(("name", "file"), FILES)
@pytest.mark.parametrize("kept", [0, 20, -9])
def test_a_file_that_is_cut_short_is_named(tmp_path, name, file, kept):
    WRITERS[name](tmp_path)
    path = tmp_path / file
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=rf"{path} cannot be read .*fetch it again") as error:
        data.load(name, "test", tmp_path)
    assert "\n" not in str(error.value)


def stored(array):
    """A numpy file in memory."""
    np.save(content := io.BytesIO(), array)
    return content.getvalue()


PAIRS = noise(6, 2, 96, 96)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (0, stored(np.zeros((6, 14, 14, 1), np.uint8)), r"images \(1, 28, 28\), got \(1, 14, 14\)"),
        (0, stored(np.full((6, 28, 28, 1), 256)), "whole numbers from 0 to 255"),
        (1, stored(np.zeros(5, int)), "6 images, but 5 labels"),
        (1, stored(np.full(6, 10)), "must be 0 to 9, got 10 to 10"),
        (1, stored(np.array([{}] * 6)), "allow_pickle"),
        (2, b"MATLAB 5.0 MAT-file" + bytes(200), "expected the magic number .*got 0x4C54414D"),
        (2, struct.pack("<Ii", 0x1E3D4C55, -3), "expected the magic number"),
        (2, matrix(PAIRS)[:-1], "110591 into shape"),
        (2, matrix(PAIRS[:, :1]), r"images \(2, 48, 48\), got \(1, 48, 48\)"),
        (3, matrix([0] * 5, "<i4"), "6 images, but 5 labels"),
        (3, matrix([0, 1, 2, 3, 4, 5], "<i4"), "must be 0 to 4, got 0 to 5"),
    ],
    ids=range(11),
)
def test_a_file_that_holds_something_else_is_refused(tmp_path, file, content, message):
    name, path = FILES[file]
    WRITERS[name](tmp_path)
    (tmp_path / path).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        data.load(name, "test", tmp_path)


def test_validation_is_one_toy_of_each_class_that_training_does_not_see(tmp_path):
    images = write_smallnorb(tmp_path, "train")
    train, validation = (data.load("smallnorb", split, tmp_path) for split in data.SPLITS[:2])
    assert train.labels.tolist() == [0, 2, 4, 0] and validation.labels.tolist() == [1, 3]
    assert np.array_equal(train.images, images[[0, 2, 4, 5]])
    assert np.array_equal(validation.images, images[[1, 3]])
    info = tmp_path / "smallNORB" / f"{PREFIX['train']}-info.mat"
    info.write_bytes(matrix(np.ones((6, 4)), "<i4"))
    with pytest.raises(ValueError, match="more than 0 images for validation, got 0"):
        data.load("smallnorb", "validation", tmp_path)


def test_one_eye_is_one_channel_of_both(tmp_path):
    both = write_smallnorb(tmp_path)
    for channel, eye in enumerate(("left", "right")):
        part = data.load("smallnorb", "test", tmp_path, eye=eye)
        assert np.array_equal(part.images, both[:, channel : channel + 1])
    for option, message in (
        ({"eye": "third"}, "eye must be one of left, right, both, got 'third'"),
        ({"image_size": 40}, "image_size must divide 96, e.g. 48, got 40"),
        ({"image_size": -48}, "image_size must divide 96"),
    ):
        with pytest.raises(ValueError, match=message):
            data.load("smallnorb", "test", tmp_path, **option)


@pytest.mark.parametrize(("split", "folder"), [("train", "training"), ("test", "test")])
def test_batches_are_read_in_the_order_of_their_numbers(tmp_path, split, folder):
    for number in (10, 2, 1):
        write_affnist(tmp_path, f"{folder}_batches/{number}.mat", [number % 10, 1])
    assert data.load("affnist", split, tmp_path).labels.tolist() == [1, 1, 2, 1, 0, 1]


def test_a_file_of_affnist_with_images_of_another_size_is_refused(tmp_path):
    write_affnist(tmp_path)
    fields = {"image": np.zeros((784, 2), np.uint8), "label_int": np.ones((1, 2))}
    savemat(tmp_path / "affNIST/test.mat", {"affNISTdata": fields})
    with pytest.raises(ValueError, match=r"images \(1600, 2\).*\(784, 2\)"):
        data.load("affnist", "test", tmp_path)


@pytest.mark.parametrize("name", ["frog", "../mnist_c/fog"])
def test_an_unknown_corruption_is_refused_with_those_there(tmp_path, name):
    write_mnist_c(tmp_path, corruption="fog")
    with pytest.raises(ValueError, match=r"unknown corruption in MNIST-C .*expected one of: fog"):
        data.load("mnist_c", "test", tmp_path, corruption=name)


def test_what_is_not_there_is_downloaded_and_found_the_next_time(tmp_path, monkeypatch):
    images = write_svhn(tmp_path, "served")
    path = tmp_path / "served" / "test_32x32.mat"
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=path.parent)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        expect(monkeypatch, path, f"http://127.0.0.1:{server.server_port}/{path.name}")
        assert np.array_equal(data.load("svhn", "test", tmp_path).images, images)
        server.shutdown()
    assert (tmp_path / "SVHN" / path.name).is_file()
    assert len(data.load("svhn", "test", tmp_path, download=False)) == len(LABELS)
