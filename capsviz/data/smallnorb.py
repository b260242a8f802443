"""smallNORB: 48,600 stereo pairs of toys seen from all sides (LeCun, Huang & Bottou 2004).

https://cs.nyu.edu/~ylclab/data/norb-v1.0-small. The files are not downloaded: put the six
`smallnorb-5x...-dat.mat`, `-cat.mat` and `-info.mat` of training and testing, packed (.gz) or not,
in the folder smallNORB of the data folder. They are no MATLAB files but a binary format: a magic
number, the number of dimensions, at least three dimensions (int32, little-endian), then the values.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import torch

from capsviz.data import Dataset, search_path

FOLDER, SIDE = "smallNORB", 96
PAGE = "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small"
PREFIX = {
    "train": "smallnorb-5x46789x9x18x6x2x96x96-training",
    "test": "smallnorb-5x01235x9x18x6x2x96x96-testing",
}
CLASSES = ("animal", "human", "plane", "truck", "car")
EYES = {"left": slice(0, 1), "right": slice(1, 2), "both": slice(0, 2)}
HELD_OUT = 9  # the instance of each class that validates
KINDS: dict[int, np.dtype] = {  # by magic number
    0x1E3D4C54: np.dtype("<i4"),
    0x1E3D4C55: np.dtype("u1"),
}
CHUNK = 1_000  # images at a time


def load(split, root=None, *, eye="both", image_size=48):
    """Load 19,440 train, 4,860 validation, 24,300 test images (N, C, image_size, image_size).

    Of each class, five toys are for training and five others for testing. Validation is one toy of
    each class, number 9 of 4, 6, 7, 8, 9, with all its views. Images drawn at random would show
    toys of the training images from nearly the same side, and overestimate the test accuracy.

    Parameters
    ----------
    eye         "left", "right" (C = 1), or "both" as two channels (C = 2), as in the paper.
    image_size  pixels, a divisor of 96; made smaller by averaging squares of pixels. The paper
                takes 48.
    """
    if eye not in EYES:
        raise ValueError(f"eye must be one of {', '.join(EYES)}, got {eye!r}")
    if image_size < 1 or SIDE % image_size:
        raise ValueError(f"image_size must divide {SIDE}, e.g. 48, got {image_size}")
    prefix = PREFIX["test" if split == "test" else "train"]
    pairs = _read(_find(prefix, "dat", root), np.uint8, (None, 2, SIDE, SIDE))
    labels = _read(_find(prefix, "cat", root), np.int32, (len(pairs),))
    if not 0 <= labels.min() <= labels.max() < len(CLASSES):
        raise ValueError(
            f"{prefix}-cat.mat: expected categories from 0 to 4, "
            f"got {labels.min()} to {labels.max()}"
        )
    index = np.arange(len(pairs))
    if split != "test":
        info = _read(_find(prefix, "info", root), np.int32, (len(pairs), 4))
        index = np.flatnonzero((info[:, 0] == HELD_OUT) == (split == "validation"))
        if len(index) == 0:
            raise ValueError(
                f"{prefix}-info.mat has no image for {split}: its instances are "
                f"{sorted(set(info[:, 0].tolist()))}, expected 4, 6, 7, 8 and 9"
            )
    eyes = pairs[:, EYES[eye]]
    images = np.empty((len(index), eyes.shape[1], image_size, image_size), np.uint8)
    for start in range(0, len(index), CHUNK):
        chunk = slice(start, start + CHUNK)
        images[chunk] = _shrink(eyes[index[chunk]], image_size)
    labels = torch.from_numpy(labels[index].astype(np.int64))
    return Dataset(torch.from_numpy(images), labels, CLASSES, "smallnorb", split)


def _find(prefix: str, what: str, root) -> Path:
    folders = [folder / place for folder in search_path(root) for place in (FOLDER, "")]
    for folder in folders:
        for name in (f"{prefix}-{what}.mat", f"{prefix}-{what}.mat.gz"):
            if (folder / name).is_file():
                return folder / name
    raise FileNotFoundError(
        f"smallNORB's {prefix}-{what}.mat is not in {', '.join(map(str, folders))}, and is not "
        f"downloaded: put it, or its .gz, from {PAGE} in {folders[-2]}, or name its folder by "
        "--data-dir"
    )


def _read(path: Path, dtype: type, shape: tuple) -> np.ndarray:
    """Read the array of a file, None for any length; ValueError for anything else."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            magic, ndim = struct.unpack("<Ii", file.read(8))
            if magic not in KINDS or not 1 <= ndim <= 8:
                raise ValueError(
                    f"{path}: expected the magic number of a byte or integer matrix "
                    f"(0x1E3D4C55, 0x1E3D4C54) and its dimensions, got 0x{magic:08X} and {ndim}"
                )
            padded = max(ndim, 3)  # dimensions are at least three, unused ones 1
            dims = struct.unpack(f"<{padded}i", file.read(4 * padded))[:ndim]
            content = np.frombuffer(file.read(), np.uint8)
    except (struct.error, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is damaged or cut short ({error}): fetch it again") from error
    kind = KINDS[magic]
    fits = len(dims) == len(shape) and all(
        size == expected or (expected is None and size > 0)
        for size, expected in zip(dims, shape, strict=True)
    )
    if kind != dtype or not fits:
        expected = ", ".join("N" if size is None else str(size) for size in shape)
        raise ValueError(
            f"{path}: expected {np.dtype(dtype).name} ({expected}), got {kind.name} {dims}"
        )
    needed = math.prod(dims) * kind.itemsize
    if len(content) != needed:
        raise ValueError(
            f"{path} holds {len(content):,} bytes of values, expected {needed:,} for {dims}: fetch "
            "it again"
        )
    return content.view(kind).reshape(dims)


def _shrink(images: np.ndarray, size: int) -> np.ndarray:
    """Reduce images (N, C, 96, 96) to (N, C, size, size): means of squares, rounded."""
    n, channels, side, _ = images.shape
    k = side // size
    squares = images.reshape(n, channels, size, k, size, k).astype(np.uint32)
    return ((squares.sum((3, 5)) + k * k // 2) // (k * k)).astype(np.uint8)
