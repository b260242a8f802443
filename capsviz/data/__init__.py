"""Data sets: each file here loads one, found by its name.

A file offers `load(split, root, *, ...) -> Dataset`, where `root` is the folder to look in. What
follows the star are its options, each with a default; `download` says whether it may be fetched.
Splits are "train", "validation" and "test". For who has not got its files, `IMAGE_SHAPE` (C, H, W)
and `CLASSES`, their names, may say what it holds whatever its options.
"""

from __future__ import annotations

import inspect
import operator
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from capsviz import discovery
from capsviz.data._checks import check, digest
from capsviz.discovery import plugins
from capsviz.transforms.augment import to_float

SPLITS = ("train", "validation", "test")
DEFAULT = "mnist"
FALLBACK = "digits"  # embedded in scikit-learn: always there
KINDS = {bool: "true or false", int: "a whole number", str: "text"}  # of options


@dataclass(frozen=True)
class Dataset(TorchDataset[tuple[Tensor, int | Tensor]]):
    """A whole split in memory; also what a `torch.utils.data.DataLoader` takes.

    `dataset[i]` is image i, float32 (C, H, W) in [0, 1], and its class. Where an image shows
    several things, `parts` holds each alone, `labels` the class of each, and `dataset[i]` gives
    their classes (K,).
    """

    images: Tensor  # (N, C, H, W) uint8
    labels: Tensor  # (N,) int64; (N, K), different from one another, if there are parts
    classes: tuple[str, ...]
    name: str
    split: str
    parts: Tensor | None = None  # (N, K, C, H, W) uint8
    notice: str | None = None  # what must be said beside a picture of it

    def __post_init__(self):
        check(self.images, self.labels, self.parts, len(self.classes))

    def __repr__(self) -> str:
        """What it is, without its images."""
        of = f"{self.name!r}, {self.split!r}, {len(self):,} images {tuple(self.images.shape[1:])}"
        return f"Dataset({of}, {len(self.classes)} classes)"

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int | Tensor]:
        """Image (C, H, W) in [0, 1] and its class, or classes (K,); IndexError beyond the last."""
        try:
            place = operator.index(index)
        except TypeError as error:
            raise TypeError(
                f"expected one whole number, got {index!r}: a part of a data set is "
                "dataset.take(slice or index tensor)"
            ) from error
        label = self.labels[place]
        return to_float(self.images[place]), int(label) if label.dim() == 0 else label

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        _, C, H, W = self.images.shape
        return C, H, W

    @cached_property
    def digest(self) -> str:
        """SHA-256 of its images, labels and parts: two of the same one are of the same images."""
        return digest(self.images, self.labels, self.parts)

    def first(self, n: int | None) -> Dataset:
        """The first n images, or all for None; ValueError if there are fewer than n, or n < 1."""
        if n is None:
            return self
        if not 1 <= n <= len(self):
            raise ValueError(
                f"asked for {n} images of {self.name} {self.split}, expected 1 to {len(self)}"
            )
        return self.take(slice(n))

    def sample(self, n: int | None) -> Dataset:
        """n images, all for None; ValueError as of `first`.

        A random draw, always the same one, in the split's order: the first images of a data set
        need not be like the others.
        """
        whole = self.first(n)
        if n is None:
            return whole
        draw = torch.randperm(len(self), generator=torch.Generator().manual_seed(0))
        return self.take(draw[:n].sort().values)

    def take(self, index) -> Dataset:
        """A part, by slice or index tensor."""
        parts = None if self.parts is None else self.parts[index]
        return replace(self, images=self.images[index], labels=self.labels[index], parts=parts)

    def pad(self, px: int) -> Dataset:
        """With px rows and columns of zeros on each side; ValueError for what is no such number."""
        if not isinstance(px, int) or px < 0:
            raise ValueError(f"pad_px must be a whole number from 0, got {px!r}")
        return self._each(lambda images: torch.nn.functional.pad(images, (px,) * 4))

    def crop(self, size: int | None) -> Dataset:
        """The centre, size x size pixels, or all for None; ValueError if that is not inside."""
        if size is None:
            return self
        H, W = self.image_shape[1:]
        if not isinstance(size, int) or not 1 <= size <= min(H, W):
            raise ValueError(f"crop_px must be from 1 to {min(H, W)} for {self.name}, got {size!r}")
        top, left = (H - size) // 2, (W - size) // 2
        place = (..., slice(top, top + size), slice(left, left + size))
        return self._each(lambda images: images[place].contiguous())

    def _each(self, change) -> Dataset:
        parts = None if self.parts is None else change(self.parts)
        return replace(self, images=change(self.images), parts=parts)

    def single(self) -> Dataset:
        """Itself; ValueError if its images show several things each."""
        if self.parts is not None:
            raise ValueError(
                f"{self.name} shows {self.labels.shape[1]} things in each image, expected one: "
                "`capsviz segment` looks at such images, or choose another data set"
            )
        return self

    def nth_of_class(self, label: int, index: int) -> tuple[Tensor, int]:
        """The index-th image (1, C, H, W) uint8 of a class, and its place in the split."""
        self.single()
        if not 0 <= label < len(self.classes):
            raise ValueError(
                f"{self.name} has no class {label}, expected 0 to {len(self.classes) - 1}"
            )
        places = (self.labels == label).nonzero().flatten()
        if not 0 <= index < len(places):
            raise ValueError(
                f"{self.name} {self.split} has {len(places)} images of class {label}: "
                f"expected an index from 0 to {len(places) - 1}, got {index}"
            )
        place = int(places[index])
        return self.images[place : place + 1], place


def available() -> list[str]:
    """Names of the data sets."""
    return discovery.names("capsviz.data")


def search_path(root: str | os.PathLike | None = None) -> list[Path]:
    """Folders to look for data in: `root` alone if given, else $CAPSVIZ_DATA and the cache."""
    if root is not None:
        return [Path(root)]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "capsviz"
    chosen = os.environ.get("CAPSVIZ_DATA")
    return [Path(chosen), cache] if chosen else [cache]


def load(
    name: str,
    split: str,
    root: str | os.PathLike | None = None,
    *,
    pad_px: int = 0,
    crop_px: int | None = None,
    **options,
) -> Dataset:
    """Load one split of a data set.

    Parameters
    ----------
    name     a file in `capsviz/data`.
    split    "train", "validation" or "test". Validation is the last part of the training images,
             or what the data set's file says.
    root     the folder it lies in; None looks in $CAPSVIZ_DATA, then in the user's cache.
    pad_px   rows and columns of zeros to add on each side.
    crop_px  pixels of the square to take from the centre, after that; None: the whole image.
    options  of that data set, e.g. `download=False`, or `image_size` for `folder`.

    Raises
    ------
    ValueError         for an unknown name, split or option, an option whose value is not of the
                       type of its default, or damaged files.
    FileNotFoundError  where it is neither found nor downloaded; the text says where to put it.
    """
    if split not in SPLITS:
        raise ValueError(discovery.unknown("split", split, list(SPLITS)))
    check_options(name, options)
    return _load(name, split, root, options).pad(pad_px).crop(crop_px)


def _load(name: str, split: str, root, options: Mapping) -> Dataset:
    """A split by its file's `load`; what goes wrong in somebody's own is a ValueError with it."""
    loader = loader_of(name)
    with plugins.guarded("capsviz.data", name, what="data set", fails="cannot be loaded"):
        part = loader(split, root, **options)
    if not isinstance(part, Dataset):
        of = f"the data set '{name}' of {discovery.source('capsviz.data', name)}"
        raise ValueError(f"{of} is a {type(part).__name__}, expected a capsviz.data.Dataset")
    return part if part.name == name else replace(part, name=name)  # by which cards find it


def loader_of(name: str) -> Callable[..., object]:
    """The `load` of a data set's file; ValueError for an unknown name, or a file without one."""
    module = discovery.load("capsviz.data", name, what="dataset")
    if not callable(loader := getattr(module, "load", None)):
        raise ValueError(
            f"the data set '{name}' of {module.__file__} has no function load(split, root)"
        )
    return loader


def check_options(name: str, options: Mapping) -> None:
    """ValueError for an unknown data set, and for options that it does not take, as `load` has it.

    Options that all data sets take, `pad_px` and `crop_px`, are not among them.
    """
    parameters = inspect.signature(loader_of(name)).parameters.values()
    usual = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    for option, value in sorted(options.items()):
        if option not in usual:
            raise ValueError(f"the data set '{name}' takes no {option}, got {value!r}")
        kind = type(usual[option])
        if kind in KINDS and type(value) is not kind:
            raise ValueError(
                f"{option} of the data set '{name}' must be {KINDS[kind]}, got {value!r}"
            )


def here(about: Mapping, split: str, root: str | os.PathLike | None = None) -> Dataset:
    """A split of the data set that a card tells of, as `load` finds it without a download.

    Parameters
    ----------
    about  the card's part "dataset": name, and options that it was loaded with.
    """
    name, options = about["name"], dict(about.get("options", {}))
    if "download" in inspect.signature(loader_of(name)).parameters:
        options["download"] = False
    return load(name, split, root, **options)


def hold_out(images: Tensor, labels: Tensor, split: str, n: int) -> tuple[Tensor, Tensor]:
    """The last n training images for "validation", the others for "train"."""
    part = slice(-n, None) if split == "validation" else slice(None, -n)
    return images[part], labels[part]
