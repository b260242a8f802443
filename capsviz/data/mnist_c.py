"""MNIST-C: MNIST under 15 corruptions (Mu & Gilmer 2019, arXiv:1906.02337), from its .npy files.

https://github.com/google-research/mnist-c. The files are not downloaded: unpack mnist_c.zip in the
data folder, so that `mnist_c/fog/test_images.npy` and `test_labels.npy` lie there, and so for every
corruption. `identity` is MNIST itself.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from capsviz.data import search_path
from capsviz.data._torchvision import divide
from capsviz.discovery import unknown

FOLDER, SIDE = "mnist_c", 28


def load(split, root=None, *, corruption="identity"):
    """Load images (N, 1, 28, 28) of one corruption, in MNIST's order; the test set has 10,000."""
    folders = [folder / FOLDER for folder in search_path(root)]
    place = next((folder for folder in folders if folder.is_dir()), None)
    if place is None:
        raise FileNotFoundError(
            f"MNIST-C is not in {' or '.join(map(str, folders))}: unpack mnist_c.zip of "
            "https://github.com/google-research/mnist-c there, or name its folder by --data-dir"
        )
    known = sorted(p.name for p in place.iterdir() if p.is_dir())
    if corruption not in known:
        if not known:
            raise FileNotFoundError(f"{place} holds no corruption: unpack mnist_c.zip there")
        raise ValueError(unknown("corruption in MNIST-C", corruption, known))
    part = "test" if split == "test" else "train"
    images = _read(place / corruption / f"{part}_images.npy", (None, SIDE, SIDE, 1))
    labels = _read(place / corruption / f"{part}_labels.npy", (len(images),))
    images = torch.from_numpy(images.astype(np.uint8)).view(-1, 1, SIDE, SIDE)
    labels = torch.from_numpy(labels.astype(np.int64))
    return divide(images, labels, "mnist_c", split, map(str, range(10)), place / corruption)


def _read(path: Path, shape: tuple) -> np.ndarray:
    """Read an integer array of that shape, None for any length; images within 0 to 255."""
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} is missing: unpack mnist_c.zip again") from error
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(
            f"{path} is damaged or cut short ({type(error).__name__}): unpack mnist_c.zip again"
        ) from error
    fits = array.ndim == len(shape) and all(
        expected in (None, size) for expected, size in zip(shape, array.shape, strict=True)
    )
    if not fits or array.size == 0 or array.dtype.kind not in "ui":
        expected = ", ".join("N" if size is None else str(size) for size in shape)
        raise ValueError(
            f"{path}: expected whole numbers ({expected}), got {array.dtype} {array.shape}"
        )
    high = 255 if len(shape) > 1 else 9
    if not 0 <= array.min() <= array.max() <= high:
        raise ValueError(
            f"{path}: expected values from 0 to {high}, got {array.min()} to {array.max()}"
        )
    return array
