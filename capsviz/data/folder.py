"""Your own pictures in class folders (torchvision's ImageFolder convention), any size, resized."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import torch

from capsviz import memory, pictures
from capsviz.data import SPLITS, Dataset

SEED = 0  # of the split of a folder that is not split already
SHARES = {"validation": 0.1, "test": 0.2}


class NoFolderError(FileNotFoundError, ValueError):
    """None was named, or one that has no class folders: on the command line the request's fault."""


def load(split, root=None, *, image_size=28, channels=1, download=True):
    """Class folders of pictures.

    `root` holds train/, test/ and perhaps validation/, each with one folder per class; or the class
    folders themselves, which are then split 70 / 10 / 20 %, stratified, always the same way. Where
    only validation/ is missing, a tenth of train/ serves.

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
    needed = "the data set 'folder' needs --data-dir with class folders in it"
    if root is None:
        raise NoFolderError(f"{needed}, and none was named")
    root = Path(root)
    if not root.is_dir():
        raise FileNotFoundError(f"{needed}, but there is no folder {root}")
    ready = {name for name in SPLITS if (root / name).is_dir()}
    if split in ready:
        source, index = root / split, None
    elif ready >= {"train"} and split == "validation":
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
    samples = _in_turn(samples) if index is None else _part(samples, index, with_test=not ready)
    memory.require(
        len(samples) * channels * image_size**2,
        f"{len(samples)} pictures of {image_size} x {image_size}",
        "choose a smaller image_size",
    )
    images = torch.stack([_read(path, image_size, channels) for path, _ in samples])
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


def _part(samples, split: str, *, with_test: bool):
    from sklearn.model_selection import train_test_split

    rest, classes = samples, Counter(label for _, label in samples)
    shares = SHARES if with_test else {"validation": SHARES["validation"]}
    if (rarest := min(classes.values())) <= len(shares):
        raise ValueError(
            f"the pictures are split by class into training and {' and '.join(reversed(shares))}: "
            f"expected at least {len(shares) + 1} of each class, got {rarest} of one; or lay them "
            "out in train/, validation/ and test/"
        )
    for name in reversed(shares):
        rest, share = train_test_split(
            rest,
            test_size=max(round(shares[name] * len(samples)), len(classes)),
            stratify=[label for _, label in rest],
            random_state=SEED,
        )
        if lacking := classes.keys() - {label for _, label in share}:
            raise ValueError(
                f"split by class {len(lacking)} of {len(classes)} classes have no picture in {name}"
                f": expected more of the rarest, which has {rarest}, or lay them out in train/, "
                "validation/ and test/"
            )
        if name == split:
            return share
    return rest


def _read(path: str, size: int, channels: int) -> torch.Tensor:
    from PIL import Image
    from torchvision.transforms import functional

    picture = Image.fromarray((pictures.load(path) * 255).round().astype("uint8"))
    picture = picture.convert("L" if channels == 1 else "RGB")
    picture = functional.center_crop(functional.resize(picture, size, antialias=True), size)
    return functional.pil_to_tensor(picture)
