"""CIFAR-10: 60,000 photographs of ten kinds of things, 3x32x32 (Krizhevsky 2009)."""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from capsviz.data import Dataset, search_path
from capsviz.data._torchvision import divide, read, to_tensor

CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer",
    "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
SIDE = 32
IMAGE_SHAPE = (3, SIDE, SIDE)
FOLDER, ARCHIVE = "cifar10", "cifar10-jpeg.tar.xz"
LOSSY = (".jpg", ".jpeg")
HELD_OUT = 0.1  # of each class of a folder of pictures
NOTICE = "these CIFAR-10 images are lossy JPEG copies, not the original pixels"


def load(split, root=None, *, download=True):
    """Load 45,000 train, 5,000 validation, 10,000 test images (N, 3, 32, 32).

    They are read from torchvision's `cifar-10-batches-py`, where validation is the last 5,000
    training images, or else from pictures: `cifar10/train/airplane/*.jpg` and so on for every class
    and for test, or the archive `cifar10-jpeg.tar.xz` of train/ and test/. Pictures are taken class
    by class in turn, each class sorted by file name, so that the first n images hold all classes
    alike; validation is the last tenth of every class, 500 each. `notice` says if they are lossy
    JPEG copies.
    """
    from torchvision.datasets import CIFAR10

    folders = search_path(root)
    batches = [name for name, _ in [*CIFAR10.train_list, *CIFAR10.test_list]]
    files = [f"{CIFAR10.base_folder}/{name}" for name in [*batches, CIFAR10.meta["filename"]]]
    part = "test" if split == "test" else "train"
    if not any((folder / files[0]).is_file() for folder in folders):
        for folder in folders:
            if pictures := _pictures(folder, part):
                return _select(pictures, split, folder)
    also = f"; or class folders of pictures in {folders[-1] / FOLDER}/train and test"
    source = read(
        CIFAR10, folders, files, [CIFAR10.url], download, also=also, train=part == "train"
    )
    images, labels = to_tensor(source.data.transpose(0, 3, 1, 2)), torch.tensor(source.targets)
    return divide(images, labels, "cifar10", split, CLASSES, source.root)


def _pictures(folder: Path, part: str) -> Mapping[tuple[str, str], Path | bytes]:
    """Return pictures of "train" or "test" by class and file name: paths, or contents of files."""
    for place in (folder / FOLDER, folder):
        paths = [path for name in CLASSES for path in (place / part / name).glob("*")]
        if pictures := {key: path for path in paths if (key := _key(path, part))}:
            return pictures
    archive = folder / ARCHIVE
    if not archive.is_file():
        return {}
    if contents := _unpack(archive, part):
        return contents
    raise ValueError(
        f"{archive} holds no {part}/{CLASSES[0]}/*.jpg and so on for the other classes"
    )


def _unpack(archive: Path, part: str) -> dict[tuple[str, str], bytes]:
    """Return the contents of the pictures in an archive, in memory."""
    try:
        with lzma.open(archive) as file:
            with tarfile.open(fileobj=file, mode="r|") as tar:
                pictures = {
                    key: content.read()
                    for member in tar
                    if member.isfile()
                    and (key := _key(Path(member.name), part))
                    and (content := tar.extractfile(member)) is not None  # as of every file
                }
            while file.read(tarfile.RECORDSIZE):  # tarfile does not notice a cut file
                pass
            return pictures
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise ValueError(f"{archive} is damaged or cut short ({error}): fetch it again") from error


def _key(path: Path, part: str) -> tuple[str, str] | None:
    """Return class and file name of a picture part/CLASS/NAME.jpg; None for anything else."""
    known = path.suffix.lower() in (*LOSSY, ".png") and path.parent.name in CLASSES
    return (path.parent.name, path.name) if known and path.parent.parent.name == part else None


def _select(pictures: Mapping[tuple[str, str], Path | bytes], split: str, where: Path) -> Dataset:
    by_class = [sorted(key for key in pictures if key[0] == name) for name in CLASSES]
    least = 1 if split == "test" else 2
    if lacking := [name for name, keys in zip(CLASSES, by_class, strict=True) if len(keys) < least]:
        raise ValueError(
            f"CIFAR-10 in {where}: expected {least} or more pictures of each class for {split}, "
            f"got fewer of {', '.join(lacking)}"
        )
    chosen = []
    for label, keys in enumerate(by_class):
        count = 0 if split == "test" else max(round(HELD_OUT * len(keys)), 1)
        training = len(keys) - count
        some = keys[training:] if split == "validation" else keys[:training]
        chosen += [(turn, label, key) for turn, key in enumerate(some)]
    chosen.sort()
    images = torch.from_numpy(_decode([(key, pictures[key]) for _, _, key in chosen]))
    labels = torch.tensor([label for _, label, _ in chosen])
    lossy = any(Path(name).suffix.lower() in LOSSY for _, _, (_, name) in chosen)
    return Dataset(images, labels, CLASSES, "cifar10", split, notice=NOTICE if lossy else None)


def _decode(pictures: Sequence[tuple[tuple[str, str], Path | bytes]]) -> np.ndarray:
    """Decode pictures as uint8 (N, 3, 32, 32)."""
    from PIL import Image

    images = np.empty((len(pictures), 3, SIDE, SIDE), np.uint8)
    for image, ((name, file), content) in zip(images, pictures, strict=True):
        try:
            with Image.open(io.BytesIO(content) if isinstance(content, bytes) else content) as p:
                if p.size == (SIDE, SIDE):  # before it is decoded
                    image[:] = np.asarray(p.convert("RGB")).transpose(2, 0, 1)
                    continue
                problem = f"is {p.size[0]} x {p.size[1]} pixels, expected {SIDE} x {SIDE}"
        except (OSError, SyntaxError, ValueError) as error:
            raise ValueError(f"{name}/{file} of CIFAR-10 cannot be read ({error})") from error
        raise ValueError(f"{name}/{file} of CIFAR-10 {problem}")
    return images
