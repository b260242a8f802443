"""CIFAR-10: 60,000 photographs of ten kinds of things, 3x32x32 (Krizhevsky 2009)."""

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
ENDINGS = (*LOSSY, ".png")
HELD_OUT = 0.1  # share of each class of the archive for validation
NOTICE = "these CIFAR-10 images are lossy JPEG copies, not the original pixels"


def load(split, root=None, *, download=True):
    """Load 45,000 train, 5,000 validation, 10,000 test images (N, 3, 32, 32).

    They are read from torchvision's `cifar-10-batches-py`, where validation is the last 5,000
    training images. If only the archive `cifar10-jpeg.tar.xz` is present, they are read from its
    pictures `train/airplane/*.jpg` and so on. Each class is then sorted by file name, validation is
    its last tenth (500), and the images alternate between classes, so that the first n are
    balanced. `notice` states whether they are lossy JPEG copies.
    """
    from torchvision.datasets import CIFAR10

    folders = search_path(root)
    batches = [name for name, _ in [*CIFAR10.train_list, *CIFAR10.test_list]]
    files = [f"{CIFAR10.base_folder}/{name}" for name in [*batches, CIFAR10.meta["filename"]]]
    archive = find(folders, [ARCHIVE])
    if archive is not None and find(folders, files[:1]) is None:
        return _of_archive(archive, split)
    source = read(CIFAR10, folders, files, download, train=split != "test")
    return split_of(
        source.data, source.targets, "cifar10", split, CLASSES, source.root, IMAGE_SHAPE
    )


def _of_archive(archive: Path, split: str) -> Dataset:
    """Load a split from the pictures PART/CLASS/NAME.jpg in an archive."""
    from PIL import Image

    part = "test" if split == "test" else "train"
    pictures: dict[str, dict[str, bytes]] = {name: {} for name in CLASSES}  # by class and file
    with intact(archive), lzma.open(archive) as file:
        with tarfile.open(fileobj=file, mode="r|") as tar:
            for member in tar:
                *_, folder, name, own = ("", "", *Path(member.name).parts)
                known = folder == part and name in pictures and own.lower().endswith(ENDINGS)
                if known and (content := tar.extractfile(member)):
                    pictures[name][own] = content.read()
        file.read()  # tarfile does not notice a truncated file
    chosen: list[tuple[str, str]] = []
    for name, found in pictures.items():
        if len(files := sorted(found)) < 2:
            raise ValueError(f"{archive} holds {len(files)} pictures of {name} for {split}")
        training = len(files) - max(round(HELD_OUT * len(files)), 1)
        part_of = {"train": files[:training], "validation": files[training:], "test": files}[split]
        chosen += [(name, one) for one in part_of]
    chosen = [chosen[k] for k in _splits.in_turn([CLASSES.index(name) for name, _ in chosen])]
    images = np.empty((len(chosen), *IMAGE_SHAPE), np.uint8)
    for image, (name, one) in zip(images, chosen, strict=True):
        with intact(f"{name}/{one} of CIFAR-10"):
            picture = Image.open(io.BytesIO(pictures[name][one]))
            if picture.size != (SIDE, SIDE):  # before it is decoded
                raise ValueError(f"expected {SIDE} x {SIDE} pixels, got {picture.size}")
            image[:] = np.asarray(picture.convert("RGB")).transpose(2, 0, 1)
    labels = torch.tensor([CLASSES.index(name) for name, _ in chosen])
    notice = NOTICE if any(one.lower().endswith(LOSSY) for _, one in chosen) else None
    return Dataset(torch.from_numpy(images), labels, CLASSES, "cifar10", split, notice=notice)
