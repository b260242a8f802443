"""Data sets: each file here loads one, found by its name.

A file has a function `load(split, root, *, ...) -> Dataset`, where `root` is the folder to look in
and `split` is "train", "validation" or "test". Keyword-only parameters are options of the data set,
each with a default; `download` says whether files may be downloaded. `IMAGE_SHAPE` (C, H, W) and
`CLASSES`, the names of the classes, may describe the data set to commands that lack its files, and
`SPLITS` may name further splits.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from capsviz import discovery
from capsviz.data._dataset import Dataset as Dataset

SPLITS = ("train", "validation", "test")
DEFAULT = "mnist"
FALLBACK = "digits"  # embedded in scikit-learn: always there
KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def available() -> list[str]:
    """Return the names of the data sets."""
    return discovery.names("capsviz.data")


def search_path(root: str | os.PathLike | None = None) -> list[Path]:
    """Return the folders to look for data in: `root` if given, else $CAPSVIZ_DATA and the cache."""
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
    split    "train", "validation", "test", or another that the data set has. Validation is the last
             part of the training images, if the data set does not define it otherwise.
    root     the folder of its files; None looks in $CAPSVIZ_DATA, then in the user's cache.
    pad_px   rows and columns of zeros to add on each side.
    crop_px  side of a square to crop from the centre, after padding; None: the whole image.
    options  of that data set, e.g. `download=False`, or `image_size` for `folder`.

    Raises
    ------
    ValueError         for an unknown name, split or option, an option of another type than its
                       default, and damaged files.
    FileNotFoundError  if it is neither found nor downloaded; the message says where to put it.
    """
    check_options(name, options)
    splits = getattr(discovery.load("capsviz.data", name, what="dataset"), "SPLITS", SPLITS)
    if split not in splits:
        raise ValueError(discovery.unknown("split", split, list(splits)))
    return _load(name, split, root, options).pad(pad_px).crop(crop_px)


def _load(name: str, split: str, root, options: Mapping) -> Dataset:
    """Load a split by its file's `load`; errors of a plugin become a ValueError that names it."""
    loader = loader_of(name)
    with discovery.guarded("capsviz.data", name, what="data set", fails="cannot be loaded"):
        part = loader(split, root, **options)
    if not isinstance(part, Dataset):
        of = f"the data set '{name}' of {discovery.source('capsviz.data', name)}"
        raise ValueError(f"{of} is a {type(part).__name__}, expected a capsviz.data.Dataset")
    return part if part.name == name else replace(part, name=name)  # cards find it by this name


def loader_of(name: str) -> Callable[..., object]:
    """Return the `load` of a data set's file; ValueError for an unknown name or none."""
    module = discovery.load("capsviz.data", name, what="dataset")
    if not callable(loader := getattr(module, "load", None)):
        raise ValueError(
            f"the data set '{name}' of {module.__file__} has no function load(split, root)"
        )
    return loader


def check_options(name: str, options: Mapping) -> None:
    """Raise ValueError for an unknown data set and for options that it does not take.

    `pad_px` and `crop_px` of `load` are not among them.
    """
    parameters = inspect.signature(loader_of(name)).parameters.values()
    usual = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    for option, value in sorted(options.items()):
        if option not in usual:
            raise ValueError(f"the data set '{name}' takes no {option}, got {value!r}")
        kind = type(usual[option])
        if kind in KINDS and type(value) is not kind and (kind, type(value)) != (float, int):
            raise ValueError(
                f"{option} of the data set '{name}' must be {KINDS[kind]}, got {value!r}"
            )


def here(about: Mapping, split: str, root: str | os.PathLike | None = None) -> Dataset:
    """Load a split of the data set in a card, without a download.

    Parameters
    ----------
    about  the card's part "dataset": name, and the options that it was loaded with.
    """
    name, options = about["name"], dict(about.get("options", {}))
    if "download" in inspect.signature(loader_of(name)).parameters:
        options["download"] = False
    return load(name, split, root, **options)


def hold_out(images: Tensor, labels: Tensor, split: str, n: int) -> tuple[Tensor, Tensor]:
    """Return the last n training images for "validation", the others for "train"."""
    part = slice(-n, None) if split == "validation" else slice(None, -n)
    return images[part], labels[part]
