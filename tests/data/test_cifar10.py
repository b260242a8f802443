"""CIFAR-10 from torchvision's batches, from class folders of pictures, and from their archive."""

import hashlib
import io
import pickle
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from capsviz import data
from capsviz.data import cifar10
from capsviz.data.cifar10 import ARCHIVE, CLASSES, NOTICE


def write_batches(root, monkeypatch, per_batch=1_004):
    """Batches as Krizhevsky's, and their checksums the expected ones; all training images."""
    from torchvision.datasets import CIFAR10

    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)

    def write(name, content):
        # Python 2 pickled whole numbers where Python 3 pickles True and False
        stored = pickle.dumps(content, protocol=2).replace(b"\x89\x88\x87", b"K\x00K\x01\x87")
        (folder / name).write_bytes(stored)
        return [name, hashlib.md5(stored).hexdigest()]

    def batch(n):
        pixels = generator.integers(0, 256, (n, 3072), dtype=np.uint8)
        return {"data": pixels, "labels": [k % 10 for k in range(n)], "filenames": [""] * n}

    train = [batch(per_batch) for _ in range(5)]
    names = [write(f"data_batch_{k + 1}", content) for k, content in enumerate(train)]
    monkeypatch.setattr(CIFAR10, "train_list", names)
    monkeypatch.setattr(CIFAR10, "test_list", [write("test_batch", batch(12))])
    name, checksum = write("batches.meta", {"label_names": list(CLASSES)})
    monkeypatch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "filename": name, "md5": checksum})
    return np.concatenate([content["data"] for content in train]).reshape(-1, 3, 32, 32)


def write_pictures(root, n_train=20, n_test=3, ending="png", size=32, top="", kept=None):
    """An archive of pictures whose red is 10 times the class, whose green is their number."""
    root.mkdir(exist_ok=True)
    with tarfile.open(root / ARCHIVE, "w:xz", preset=0) as tar:
        for part, n in (("train", n_train), ("test", n_test)):
            for label, name in enumerate(CLASSES):
                for number in range(n):
                    content = io.BytesIO()
                    picture = Image.new("RGB", (size, size), (10 * label, number, n))
                    picture.save(content, ending)
                    info = tarfile.TarInfo(f"{top}{part}/{name}/{number:04}.{ending}")
                    info.size = len(whole := content.getvalue()[:kept])
                    tar.addfile(info, io.BytesIO(whole))


def test_batches_are_read_in_their_order(tmp_path, monkeypatch):
    whole = write_batches(tmp_path, monkeypatch)
    train, validation, test = (data.load("cifar10", split, tmp_path) for split in data.SPLITS)
    assert [len(part) for part in (train, validation, test)] == [20, 5_000, 12]
    assert np.array_equal(torch.cat([train.images, validation.images]), whole)
    assert train.images.dtype == torch.uint8 and train.images.is_contiguous()
    assert test.labels.tolist() == [*range(10), 0, 1] and test.labels.dtype == torch.int64
    assert test.classes == CLASSES and (test.name, test.split) == ("cifar10", "test")
    assert test.notice is None


@pytest.mark.parametrize("kept", [0, -1])
def test_a_batch_that_is_cut_short_is_called_damaged(tmp_path, monkeypatch, kept):
    write_batches(tmp_path, monkeypatch, per_batch=2)
    path = tmp_path / "cifar-10-batches-py/data_batch_3"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"CIFAR10 in .* cannot be read .*their checksums"):
        data.load("cifar10", "train", tmp_path)


@pytest.mark.parametrize("top", ["", "./", "cifar10-jpeg/"])
def test_pictures_are_taken_class_by_class_in_turn(tmp_path, top):
    write_pictures(tmp_path, top=top)
    train, validation, test = (data.load("cifar10", split, tmp_path) for split in data.SPLITS)
    for part, numbers in ((train, range(18)), (validation, (18, 19)), (test, range(3))):
        expected = [(10 * label, number) for number in numbers for label in range(10)]
        seen = part.images[:, :2, 5, 7].tolist()
        assert [tuple(pixel) for pixel in seen] == expected
        assert part.labels.tolist() == list(range(10)) * len(numbers)
        assert torch.equal(part.images, part.images[:, :, :1, :1].expand(-1, -1, 32, 32))
        assert part.images.dtype == torch.uint8 and part.classes == CLASSES
        assert part.image_shape == cifar10.IMAGE_SHAPE
        assert part.notice is None, "PNG loses nothing"


def test_jpeg_is_said_to_be_lossy_whatever_is_done_to_the_images(tmp_path):
    write_pictures(tmp_path, ending="jpeg")
    part = data.load("cifar10", "test", tmp_path, crop_px=24)
    assert part.notice == part.first(3).notice == NOTICE and "lossy JPEG" in NOTICE


@pytest.mark.parametrize(
    ("how", "split", "words"),
    [
        ({"n_train": 1}, "train", "holds 1 pictures of airplane for train"),
        ({"size": 28}, "test", r"airplane/0000.png of .* expected 32 x 32 pixels, got \(28, 28\)"),
        ({"kept": 0}, "test", "airplane/0000.png of CIFAR-10 cannot be read"),
        ({"kept": 60}, "test", "airplane/0000.png of CIFAR-10 cannot be read"),
        ({"archive": 0}, "test", f"{ARCHIVE} cannot be read"),
        ({"archive": 2_000}, "test", f"{ARCHIVE} cannot be read"),
    ],
)
def test_what_is_not_as_it_should_be_in_an_archive_is_named(tmp_path, how, split, words):
    kept = how.pop("archive", None)
    write_pictures(tmp_path, **how)
    content = (tmp_path / ARCHIVE).read_bytes()
    (tmp_path / ARCHIVE).write_bytes(content[:kept])
    with pytest.raises(ValueError, match=words):
        data.load("cifar10", split, tmp_path)
