"""CIFAR-10: 60,000 photographs of ten kinds of things, 3x32x32 (Krizhevsky 2009)."""

from __future__ import annotations

import io
import lzma
import tarfile
from pathlib import Path

import numpy as np
import torch

from capsviz.data import Dataset, _splits, search_path
from capsviz.data._files import find, intact, read, split_of

CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer",
    "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
SIDE = 32
IMAGE_SHAPE = (3, SIDE, SIDE)
ARCHIVE = "cifar10-jpeg.tar.xz"
LOSSY = (".jpg", ".jpeg")
HELD_OUT = 0.1  # of each class of the archive
NOTICE = "these CIFAR-10 images are lossy JPEG copies, not the original pixels"


def load(split, root=None, *, download=True):
    """Load 45,000 train, 5,000 validation, 10,000 test images (N, 3, 32, 32).

    They are read from torchvision's `cifar-10-batches-py`, where validation is the last 5,000
    training images, or else from pictures `train/airplane/*.jpg` and so on in the archive
    `cifar10-jpeg.tar.xz`. Pictures are taken class by class in turn, each class sorted by file
    name, so that the first n images hold all classes alike; validation is the last tenth of every
    class, 500 each. `notice` says if they are lossy JPEG copies.
    """
    from torchvision.datasets import CIFAR10

    folders = search_path(root)
    batches = [name for name, _ in [*CIFAR10.train_list, *CIFAR10.test_list]]
    files = [f"{CIFAR10.base_folder}/{name}" for name in [*batches, CIFAR10.meta["filename"]]]
    archive = find(folders, [ARCHIVE])
    if archive is not None and find(folders, files[:1]) is None:
        return _of_archive(archive, split)
    source = read(CIFAR10, folders, files, [CIFAR10.url], download, train=split != "test")
    return split_of(
        source.data, source.targets, "cifar10", split, CLASSES, source.root, IMAGE_SHAPE
    )


def _of_archive(archive: Path, split: str) -> Dataset:
    """Return a split of the pictures in an archive."""
    pictures = _unpack(archive, "test" if split == "test" else "train")
    chosen: list[Path] = []
    for name in CLASSES:
        paths = sorted(path for path in pictures if path.parent.name == name)
        if len(paths) < 2:
            raise ValueError(f"{archive} holds {len(paths)} pictures of {name} for {split}")
        training = len(paths) - max(round(HELD_OUT * len(paths)), 1)
        chosen += {"train": paths[:training], "validation": paths[training:], "test": paths}[split]
    labels = torch.tensor([CLASSES.index(path.parent.name) for path in chosen])
    turns = _splits.in_turn(labels.tolist())
    images = torch.from_numpy(_decode({chosen[k]: pictures[chosen[k]] for k in turns}))
    notice = NOTICE if any(path.suffix.lower() in LOSSY for path in chosen) else None
    labels = labels[turns]
    return Dataset(images, labels, CLASSES, "cifar10", split, notice=notice)


def _unpack(archive: Path, part: str) -> dict[Path, bytes]:
    """Return the contents of the pictures PART/CLASS/NAME.jpg in an archive, in memory."""
    pictures = {}
    with intact(archive), lzma.open(archive) as file:
        with tarfile.open(fileobj=file, mode="r|") as tar:
            for member in tar:
                path = Path(member.name)
                known = path.suffix.lower() in (*LOSSY, ".png") and path.parent.name in CLASSES
                content = tar.extractfile(member) if known else None
                if content is not None and path.parent.parent.name == part:
                    pictures[path] = content.read()
        while file.read(tarfile.RECORDSIZE):  # tarfile does not notice a cut file
            pass
    return pictures


def _decode(pictures: dict[Path, bytes]) -> np.ndarray:
    """Decode pictures as uint8 (N, 3, 32, 32)."""
    from PIL import Image

    images = np.empty((len(pictures), 3, SIDE, SIDE), np.uint8)
    for image, (path, content) in zip(images, pictures.items(), strict=True):
        with intact(f"{path.parent.name}/{path.name} of CIFAR-10"):
            picture = Image.open(io.BytesIO(content))
            if picture.size != (SIDE, SIDE):  # before it is decoded
                raise ValueError(f"expected {SIDE} x {SIDE} pixels, got {picture.size}")
            image[:] = np.asarray(picture.convert("RGB")).transpose(2, 0, 1)
    return images
