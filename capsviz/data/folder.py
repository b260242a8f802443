"""Your own pictures in class folders (torchvision's ImageFolder convention), any size, resized."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import torch

from capsviz import memory
from capsviz.data import SPLITS, Dataset
from capsviz.pictures.of_folders import square
from capsviz.pictures.opening import load as read

VAL = "val"  # what many call validation/
SHARES = {"validation": 0.1, "test": 0.2}


class NoFolderError(FileNotFoundError, ValueError):
    """None was named, or one that has no class folders: on the command line the request's fault."""


def load(split, root=None, *, image_size=28, channels=1, download=True):
    """Class folders of pictures.

    `root` holds train/, test/ and perhaps validation/ (or val/), each with one folder per class; or
    the class folders themselves, each of which is then split 70 / 10 / 20 % in the order of its
    files' names in SHA-256: a picture that is added moves few others. Where only validation/ is
    missing, a tenth of train/ serves. All pictures are read alike: transparent ground is white, and
    grey of more than 8 bits is over 65,535, however bright a picture is.

    Parameters
    ----------
    image_size  pixels of the square that a picture's shorter side is resized to, then its centre.
    channels    1 for grey, 3 for colour.

    Raises
    ------
    FileNotFoundError  if there is no folder `root` or none of the split; where `root` is not given
                       or has no class folders it is a ValueError, too.
    ValueError         for pictures that cannot be read, or other channels.
    """
    if channels not in (1, 3):
        raise ValueError(f"channels must be 1 or 3, got {channels}")
    needed = "the data set 'folder' needs --data-dir (root=) with class folders in it"
    if root is None:
        raise NoFolderError(f"{needed}, and none was named")
    root = Path(root)
    if not root.is_dir():
        raise FileNotFoundError(f"{needed}, but there is no folder {root}")
    ready = {name: root / name for name in SPLITS if (root / name).is_dir()}
    if (root / VAL).is_dir():
        ready.setdefault("validation", root / VAL)
    if split in ready:
        source, index = ready[split], None
    elif "train" in ready and split == "validation":
        source, index = root / "train", "validation"
    elif ready:
        raise FileNotFoundError(f"{root} has {sorted(ready)}, but no folder '{split}'")
    else:
        source, index = root, split
    if split == "train" and ready and "validation" not in ready:
        index = "train"
    samples, classes = _list(source)
    if ready and split != "train" and (known := _list(root / "train")[1]) != classes:
        raise ValueError(f"{source} has the classes {classes}, but {root / 'train'} has {known}")
    if index is not None:
        samples = _part(samples, source, index, with_test=not ready)
    samples = _in_turn(samples)
    memory.require(
        len(samples) * channels * image_size**2,
        f"{len(samples)} pictures of {image_size} x {image_size}",
        "choose a smaller image_size",
    )
    images = torch.stack(
        [square(read(path, alike=True), image_size, channels) for path, _ in samples]
    )
    labels = torch.tensor([label for _, label in samples])
    return Dataset(images, labels, classes, "folder", split)


def _list(source: Path):
    from torchvision.datasets import ImageFolder

    try:
        images = ImageFolder(source)
    except FileNotFoundError as error:
        reason = " ".join(str(error).split())[:160]
        raise NoFolderError(f"{source} is no folder of class folders: {reason}") from error
    return images.samples, tuple(images.classes)


def _in_turn(samples):
    """One picture of each class after another: the first n hold all classes alike."""
    numbers = Counter()

    def turn(sample):
        numbers[sample[1]] += 1
        return numbers[sample[1]]

    return sorted(samples, key=turn)


def _part(samples, source: Path, split: str, *, with_test: bool):
    """Of each class its share of a split: in the order of digests test, validation, training."""
    shares = SHARES if with_test else {"validation": SHARES["validation"]}
    by_class: dict[int, list] = {}
    for sample in sorted(samples, key=lambda sample: _digest(sample[0], source)):
        by_class.setdefault(sample[1], []).append(sample)
    if (rarest := min(map(len, by_class.values()))) <= len(shares):
        raise ValueError(
            f"the pictures are split by class into training and {' and '.join(reversed(shares))}: "
            f"expected at least {len(shares) + 1} of each class, got {rarest} of one; or lay them "
            "out in train/, validation/ and test/"
        )
    part = []
    for _, same in sorted(by_class.items()):
        start = 0
        for name in reversed(shares):
            end = start + max(1, round(shares[name] * len(same)))
            if name == split:
                part += same[start:end]
            start = end
        if split == "train":
            part += same[start:]
    return part


def _digest(path: str, source: Path) -> str:
    return hashlib.sha256(Path(path).relative_to(source).as_posix().encode()).hexdigest()
