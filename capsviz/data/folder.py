"""Your own pictures in class folders (torchvision's ImageFolder convention), any size, resized."""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from unicodedata import normalize

import numpy as np
import torch

from capsviz import discovery, memory
from capsviz.data import Dataset, _splits, available
from capsviz.pictures import opening

SIDE = 28  # default side of the images in pixels
COLOUR = 0.03  # least difference between channels in a colour picture; JPEG rounds by 0.01
LONG = 64  # largest side in pixels of an image size that a warning proposes


class NoFolderError(FileNotFoundError, ValueError):
    """Raised if no folder was named, or it has no class folders: a wrong option in a command."""


def load(split, root=None, *, image_size=(), image_channels=0, range=0.0):
    """Load a split of a folder of pictures, sorted into class folders.

    `root` holds train/, test/ and perhaps validation/ (or Training/, val/, seg_train/ and so on),
    each with one folder per class. Or it holds the class folders, which may each contain train/,
    test/ and so on. A folder whose only content is another folder is replaced by that; but if a
    test folder is all there is, it is the test split.

    Missing splits are drawn from the training pictures: a fifth of each class for testing, a tenth
    for validation. The order is that of the SHA-256 of file names, so that adding a picture moves
    few others. Unused files are counted in `left_out`. `doubts` names mixed depths, further pages,
    and groups of file names that occur in two splits.

    Transparent pixels become white. Integers of more than 8 bits are divided by `range`, or by
    65,535 if it is 0; floats are divided by `range`, or by 1. A picture is resized until it covers
    `image_size` (side of a square, or (height, width), in pixels), and the centre is cropped.
    `image_channels` is 1 for grey or 3 for colour. The defaults are 28 and 1, with a doubt if they
    change pictures.
    """
    if image_channels not in (0, 1, 3):
        raise ValueError(f"image_channels must be 1 or 3, got {image_channels}")
    size, channels = SIDE if image_size == () else image_size, image_channels or 1
    ready, unused = sources(root)
    samples, classes, drawn_from = _samples(ready, split, root)
    height, width = opening.height_and_width(size)
    what = f"{len(samples)} pictures of {height} x {width}"
    memory.require(len(samples) * channels * height * width, what, "choose a smaller image_size")
    images, labels, errors, sizes, coloured = [], [], [], {}, set()
    for index in _splits.in_turn([label for _, label in samples]):
        path, label = samples[index]
        try:
            pixels = opening.load(path, alike=True, top=range)
        except ValueError as error:
            errors.append(" ".join(str(error).split()))
        else:
            sizes[path] = pixels.shape[:2]
            if np.ptp(pixels[::2, ::2], -1).max() > COLOUR:
                coloured.add(path)
            images.append(opening.cover(pixels, size, channels))
            labels.append(label)
    if len(set(labels)) < len(classes):
        lacking = next(name for k, name in enumerate(classes) if k not in labels)
        raise ValueError(f"no {split} picture of class '{lacking}' can be read: {errors[0]}")
    left_out = [f"left out of {root}: {'; '.join(unused)}"] if unused else []
    if errors:
        left_out.append(
            f"left out of {split}: {len(errors)} of {len(samples)} pictures that cannot be read, "
            f"e.g. {errors[0]}"
        )
    doubts = opening.doubts(opening.kinds(path for path, _ in samples), range)
    doubts += _conversion_doubts(sizes, coloured, image_size, image_channels)
    own = split if split in ready else "train"
    doubts += _nesting_doubts(_class_folders(ready[own], own))
    if split != "train" and "train" in ready:
        both = (_samples(ready, "train", root)[0], samples)
        names = (
            [(_name_in_class(path, source), label) for path, label in some]
            for some, source in zip(both, (ready["train"], ready[own]), strict=True)
        )
        if both := _splits.groups_in_both(*names):
            doubts.append(
                f"{len(both)} groups of file names ({discovery.some(both, 3)}) are also in train: "
                "if they are patients or scenes, split by them"
            )
    return Dataset(
        torch.stack(images), torch.tensor(labels), classes, own_name(root), split,
        left_out="\n".join(left_out) or None, doubts=tuple(doubts), kind="folder",
        drawn_from=drawn_from,
    )  # fmt: skip


def _conversion_doubts(
    sizes: Mapping[Path, tuple[int, int]], coloured: set, size, channels
) -> list[str]:
    """Return warnings about pictures (h, w) that differ, or that default options change."""
    doubts, (height, width) = [], opening.height_and_width(size or SIDE)
    ((h, w), _), *_ = Counter(sizes.values()).most_common(1)
    if not size and (h, w) != (SIDE, SIDE):
        less = max(1, -(-max(h, w) // LONG))
        doubts.append(
            f"pictures, most of {w} x {h} pixels, are made {SIDE} x {SIDE}: choose their size by "
            f"--image-size, as {h // less}x{w // less} (height x width)"
        )
    if not channels and coloured:
        doubts.append("pictures in colour are made grey: --image-channels 3 keeps the colour")
    grey = [path.name for path in sizes if path not in coloured]
    if channels == 3 and coloured and grey:
        doubts.append(f"{len(grey)} pictures are grey, others in colour: {discovery.some(grey, 3)}")
    times = {path: max(height / h, width / w) for path, (h, w) in sizes.items()}
    path = max(times, key=lambda path: times[path])
    if times[path] >= 2 > min(times.values()):
        h, w = sizes[path]
        doubts.append(f"{path.name} of {w} x {h} pixels is enlarged {times[path]:.1f} times")
    return doubts


def _nesting_doubts(classes: Mapping[str, Path]) -> list[str]:
    """Return a line if all classes hold the same folders and no pictures: they may be splits."""
    same = None
    for folder in classes.values():
        inside = {one.name for one in opening.folders(folder)}
        same = inside if same is None else same & inside
        if len(same) < 2 or opening.listing(folder, below=False)[0]:
            return []
    outer = discovery.some(classes, 3)
    shared = discovery.some(sorted(same or (), key=opening.natural), 3)
    return [
        f"the classes {outer} all hold the folders {shared} and no pictures: if {shared} are the "
        f"classes, rename {outer} to train, validation and test, or name one of them by --data-dir"
    ]


def _samples(ready: Mapping[str, Path], split: str, root):
    """Return (picture, class number) of a split, the classes, and `Dataset.drawn_from`."""
    if split not in ready and "train" not in ready:
        found = f"{root} has {', '.join(ready)}, but no folder '{split}'"
        if split == "train":
            found += (
                f": to draw all splits from one, choose --data-dir {next(iter(ready.values()))}"
            )
        raise FileNotFoundError(found)
    own = split if split in ready else "train"
    source = ready[own]
    samples, classes = _list(source, own)
    drawn_from = 0 if split in ready else len(samples)
    if "train" in ready and own != "train":
        known = _class_folders(ready["train"], "train")
        if apart := set(known) ^ set(classes):
            names = ", ".join(sorted(apart, key=opening.natural)[:5])
            raise ValueError(
                f"{source} and {ready['train']} have different class folders: {names} in one of "
                "them alone; expected the same"
            )
    missing = [name for name in _splits.SHARES if name not in ready]
    if own == "train" and missing:
        paths = [path.relative_to(source).as_posix() for path, _ in samples]
        keys = [hashlib.sha256(path.encode()).hexdigest() for path in paths]
        labels = [label for _, label in samples]
        samples = [samples[k] for k in _splits.share(keys, labels, split, missing)]
    return samples, classes, drawn_from


def _name_in_class(path: Path, source: Path) -> str:
    """Return a picture's path in its class folder, without suffix and folders of splits."""
    parts = path.relative_to(source).with_suffix("").parts[1:]
    return "/".join(part for part in parts if not _splits.named(part)) or path.stem


def own_name(root: str | Path) -> str:
    """Return a data set name for a folder: its own name, changed if another data set has it."""
    name = re.sub(r"[^\w.+-]+", "-", Path(root).expanduser().resolve().name) or "pictures"
    return f"own-{name}" if name in available() else name


def describe(root, **options) -> list[str]:
    """Return lines about the folders of the splits and their picture files."""
    ready, _ = sources(root)
    where = ", ".join(f"{split} in {folder}" for split, folder in ready.items())
    paths = [path for folder in set(ready.values()) for path in opening.listing(folder)[0]]
    return [f"class folders: {where}", *opening.described(opening.kinds(paths))]


def sources(root) -> tuple[dict[str, Path], list[str]]:
    """Return the folder of each split, and texts about unused files.

    A folder belongs to a split if its name contains a word for it and it holds folders. If there is
    none, `root` is used: for all splits that each of its class folders holds, or else for training.
    ValueError for two folders of one split, and for folders named like splits without folders.
    """
    needed = "the data set 'folder' needs --data-dir with class folders in it"
    if root is None:
        raise NoFolderError(f"{needed}, but none was named")
    if not Path(root).is_dir():
        what = (
            "is a file: unpack it, or save arrays as .npz, .npy, .csv, .mat or .parquet (--dataset "
            "arrays)"
        )
        raise FileNotFoundError(
            f"{needed}, but {root} {what if Path(root).exists() else opening.absent(root)}"
        )
    root = _inner(Path(root), whole=True)
    ready: dict[str, Path] = {}
    folders = opening.folders(root)
    named = {folder: split for folder in folders if (split := _splits.named(folder.name))}
    for folder, split in named.items():
        if opening.folders(folder):
            if split in ready:
                raise ValueError(
                    f"{ready[split]} and {folder} are both {split} images: expected one folder"
                )
            ready[split] = _inner(folder)
    if not ready:
        if len(set(named.values())) > 1 and len(named) == len(folders):
            raise NoFolderError(
                f"the folders {', '.join(f.name for f in named)} of {root} are named like splits, "
                "but hold no class folders: sort their pictures into one folder for each class"
            )
        ready = dict.fromkeys(_in_classes(root), root) or {"train": root}
    classes = [
        one for split, place in ready.items() for one in _class_folders(place, split).values()
    ]
    used = {path for folder in classes for path in opening.listing(folder)[0]}
    every, others = opening.listing(root)
    left = Counter(str(path.parent.relative_to(root)) for path in every if path not in used)
    places = discovery.some(f"{n} in {place}" for place, n in left.items())
    texts = [places and f"pictures in no class folder ({places})", opening.in_words(others)]
    return ready, [text for text in texts if text]


def _inner(root: Path, whole: bool = False) -> Path:
    """Descend from a folder while its only folder holds folders itself; return the last one.

    For the `whole` data set, stop at a folder named like a split, unless it contains the splits.
    """
    while len(inside := opening.folders(root)) == 1 and opening.folders(inside[0]):
        below = (
            opening.folders(_inner(inside[0])) if whole and _splits.named(inside[0].name) else []
        )
        if below and not any(_splits.named(one.name) for one in below):
            break
        root = inside[0]
    return root


def _in_classes(root: Path) -> list[str]:
    """Return the splits if every class folder holds their folders and nothing else; else []."""
    known: list = []
    for folder in opening.folders(root):
        splits = sorted(_splits.named(one.name) or "" for one in opening.folders(folder))
        known = known or splits
        bare = splits and not opening.listing(folder, below=False)[0]
        if not bare or splits != known or "" in splits or len({*splits}) < len(splits):
            return []
    return known


def _class_folders(source: Path, split: str) -> dict[str, Path]:
    """Return the folder of a split's pictures for each class: in `source`, or one level deeper."""
    found = {normalize("NFC", folder.name): folder for folder in opening.folders(source)}
    if split not in _in_classes(source):
        return found
    return {
        name: next(one for one in opening.folders(folder) if _splits.named(one.name) == split)
        for name, folder in found.items()
    }


def _list(source: Path, split: str) -> tuple[list[tuple[Path, int]], tuple[str, ...]]:
    """Return (picture, class number) of a split, and the classes."""
    named = _class_folders(source, split)
    folders = list(named.values())
    listed = {folder: opening.listing(folder)[0] for folder in folders}
    what = f" ({words})" if (words := opening.in_words(opening.listing(source)[1])) else ""
    if not any(listed.values()):
        raise NoFolderError(f"{source} has no class folders with pictures in them{what}")
    if len(folders) == 1:
        raise NoFolderError(
            f"{source} has one class folder, '{folders[0].name}', expected two or more{what}: if "
            f"the classes are in it, move them up or choose --data-dir {folders[0]}; tables that "
            "name the classes of pictures are not read"
        )
    if empty := [name for name, folder in named.items() if not listed[folder]]:
        raise ValueError(
            f"class folders of {source} without pictures{what}: {', '.join(empty)}; add some, or "
            "remove the folders"
        )
    samples = [(path, label) for label, folder in enumerate(folders) for path in listed[folder]]
    return samples, tuple(named)
