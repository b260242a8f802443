"""Your own pictures in class folders (torchvision's ImageFolder convention), any size, resized."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import Path

import torch

from capsviz import memory
from capsviz.data import Dataset, available
from capsviz.pictures import opening

NAMES = {  # of the folder of each split, in any case
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val"),
    "test": ("test", "testing"),
}
SHARES = {"validation": 0.1, "test": 0.2}


class NoFolderError(FileNotFoundError, ValueError):
    """No folder was named, or it has no class folders: on the command line a wrong option."""


def load(split, root=None, *, image_size=28, channels=1, download=True):
    """Class folders of pictures.

    `root` holds train/, test/ and perhaps validation/ (or Training/, val/ and so on), each with one
    folder per class; or the class folders themselves. These are each split 70 / 10 / 20 % in the
    order of the SHA-256 of file names, so that adding a picture moves few others. If only
    validation/ is missing, a tenth of train/ serves. Pictures that cannot be read, and other files,
    are left out and counted in `left_out`; hidden files and folders are ignored.

    Transparent ground is white, and grey of more than 8 bits is divided by 65,535.

    A picture's shorter side is resized to `image_size` pixels, and the centre is cropped;
    `channels` is 1 for grey, 3 for colour.
    """
    if channels not in (1, 3):
        raise ValueError(f"channels must be 1 or 3, got {channels}")
    needed = "the data set 'folder' needs --data-dir with class folders in it"
    if root is None:
        raise NoFolderError(f"{needed}, but none was named")
    root = Path(root)
    if not root.is_dir():
        raise FileNotFoundError(f"{needed}, but there is no folder {root}")
    ready = _split_folders(root)
    part = None  # of the pictures that a folder holds; None: all
    if split in ready:
        source = ready[split]
        part = "train" if split == "train" and "validation" not in ready else None
    elif "train" in ready and split == "validation":
        source, part = ready["train"], "validation"
    elif ready:
        found = ", ".join(folder.name for folder in ready.values())
        raise FileNotFoundError(f"{root} has {found}, but no folder '{split}'")
    else:
        source, part = root, split
    samples, classes, others = _list(source)
    training = ready.get("train", source)
    if training != source and (known := _list(training)[1]) != classes:
        raise ValueError(
            f"{source} has the classes {classes}, but {training} has {known}: expected the same "
            "class folders"
        )
    if part is not None:
        samples = _part(samples, source, part, with_test=not ready)
    memory.require(
        len(samples) * channels * image_size**2,
        f"{len(samples)} pictures of {image_size} x {image_size}",
        "choose a smaller image_size",
    )
    images, labels, errors = [], [], []
    numbers = Counter()
    turns = []  # one picture of each class after another: the first n hold all classes alike
    for sample in samples:
        numbers[sample[1]] += 1
        turns.append((numbers[sample[1]], *sample[::-1]))
    for _, label, path in sorted(turns):
        try:
            pixels = opening.load(path, alike=True)
        except ValueError as error:
            errors.append(" ".join(str(error).split()))
        else:
            images.append(opening.square(pixels, image_size, channels))
            labels.append(label)
    if len(set(labels)) < len(classes):
        lacking = next(name for k, name in enumerate(classes) if k not in labels)
        raise ValueError(f"no {split} picture of class '{lacking}' can be read: {errors[0]}")
    return Dataset(
        torch.stack(images), torch.tensor(labels), classes, own_name(root), split,
        left_out=_left_out(source, others, len(samples), errors), kind="folder",
    )  # fmt: skip


def own_name(root: str | Path) -> str:
    """Return what the pictures of a folder are called: as it is, but never as another data set."""
    name = re.sub(r"[^\w.+-]+", "-", Path(root).expanduser().resolve().name) or "pictures"
    return f"own-{name}" if name in available() else name


def _split_folders(root: Path) -> dict[str, Path]:
    """Return the folders of splits, by split; ValueError for two of one split or similar names."""
    ready: dict[str, Path] = {}
    folders = opening.folders(root)
    for split, names in NAMES.items():
        for folder in folders:
            if folder.name.lower() in names:
                if split in ready:
                    raise ValueError(
                        f"{ready[split]} and {folder} are both {split} images: expected one folder"
                    )
                ready[split] = folder
    known = {name for names in NAMES.values() for name in names}
    words = {folder: set(re.findall("[a-z]+", folder.name.lower())) for folder in folders}
    similar = [f.name for f in folders if known & words[f] and opening.folders(f)]
    if not ready and len(similar) > 1:
        raise ValueError(
            f"the folders {', '.join(similar)} of {root} are named like splits and hold folders: "
            "rename them to train, validation and test, or name one of them by --data-dir"
        )
    return ready


def _list(source: Path) -> tuple[list[tuple[Path, int]], tuple[str, ...], Counter]:
    """Return pictures with the number of their class, the classes, and other files by ending."""
    folders = opening.folders(source)
    listed = {folder: opening.listing(folder) for folder in folders}
    if not any(pictures for pictures, _ in listed.values()):
        raise NoFolderError(f"{source} has no class folders with pictures in them")
    if len(folders) == 1:
        raise NoFolderError(
            f"{source} has one class folder, '{folders[0].name}', expected two or more: if the "
            f"classes are in it, move them up or choose --data-dir {folders[0]}"
        )
    if empty := [folder.name for folder, (pictures, _) in listed.items() if not pictures]:
        raise ValueError(
            f"class folders of {source} without pictures: {', '.join(empty)}; add some, or remove "
            "the folders"
        )
    samples = [(path, label) for label, folder in enumerate(folders) for path in listed[folder][0]]
    others = sum((rest for _, rest in listed.values()), Counter())
    return samples, tuple(folder.name for folder in folders), others


def _left_out(source: Path, others: Counter, pictures: int, errors: list[str]) -> str | None:
    """Return one line about files that are not in the data set, None if all are."""
    texts = []
    if others:
        kinds = ", ".join(f"{n} {ending or 'without ending'}" for ending, n in others.most_common())
        texts.append(f"{sum(others.values())} files that are not pictures ({kinds})")
    if errors:
        texts.append(f"{len(errors)} of {pictures} pictures that cannot be read, e.g. {errors[0]}")
    return f"left out of {source}: {'; '.join(texts)}" if texts else None


def _part(samples, source: Path, split: str, *, with_test: bool) -> list:
    """Return a split's share of each class: in the order of digests test, validation, training."""
    by_class: dict[int, list] = {}
    for sample in sorted(samples, key=lambda sample: _digest(sample[0], source)):
        by_class.setdefault(sample[1], []).append(sample)
    others = "test and validation" if with_test else "validation"
    least, rarest = 2 + with_test, min(map(len, by_class.values()))
    if rarest < least:
        raise ValueError(
            f"the pictures are split by class into training and {others}: expected at least "
            f"{least} of each class, got {rarest} of one; or put them into train/, validation/ and "
            "test/"
        )
    part = []
    for _, same in sorted(by_class.items()):
        test = max(1, round(SHARES["test"] * len(same))) if with_test else 0
        both = test + max(1, round(SHARES["validation"] * len(same)))
        part += {"test": same[:test], "validation": same[test:both], "train": same[both:]}[split]
    return part


def _digest(path: Path, source: Path) -> str:
    return hashlib.sha256(path.relative_to(source).as_posix().encode()).hexdigest()
