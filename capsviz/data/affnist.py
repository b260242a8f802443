"""affNIST: 32 affine versions of every MNIST digit on 40x40 (Tieleman 2013), from its .mat files.

https://www.cs.toronto.edu/~tijmen/affNIST. The files are not downloaded: put `test.mat`, or the
folder `test_batches` with `1.mat` ... `32.mat`, into the folder affNIST of the data folder; for the
other splits `training_batches` and `validation_batches`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from capsviz.data import Dataset, search_path

SIDE = 40
IMAGE_SHAPE, CLASSES = (1, SIDE, SIDE), tuple("0123456789")
NAMES = {"train": "training", "validation": "validation", "test": "test"}
FOLDER = "affNIST"


def load(split, root=None):
    """Load images (N, 1, 40, 40) of a split; the test set has 320,000."""
    folders = [folder / FOLDER for folder in search_path(root)]
    for folder in folders:
        if paths := _files(folder, NAMES[split]):
            parts = [_read(path) for path in paths]
            images, labels = (torch.from_numpy(np.concatenate(p)) for p in zip(*parts, strict=True))
            _check_orientation(images[:, 0].numpy(), labels.numpy(), folder)
            return Dataset(images, labels, CLASSES, "affnist", split)
    name = NAMES[split]
    raise FileNotFoundError(
        f"affNIST's {split} split is not in {' or '.join(map(str, folders))}: put {name}.mat or "
        f"{name}_batches/1.mat ... 32.mat there (https://www.cs.toronto.edu/~tijmen/affNIST)"
    )


def _files(folder: Path, name: str) -> list[Path]:
    whole = folder / f"{name}.mat"
    if whole.is_file():
        return [whole]
    batches = folder / f"{name}_batches"
    return sorted(batches.glob("*.mat"), key=lambda p: (len(p.stem), p.stem))


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read images (N, 1, 40, 40) uint8 and labels (N,) int64 of one .mat file (format 5)."""
    from scipy.io import loadmat

    try:
        content = loadmat(path)["affNISTdata"][0, 0]
        pixels, labels = content["image"], content["label_int"]
    except Exception as error:  # scipy raises anything for damaged files
        raise ValueError(
            f"{path} is not a whole file of affNIST ({type(error).__name__}: {error}): "
            "expected a MATLAB 5 file with the struct affNISTdata; fetch it again"
        ) from error
    labels = np.asarray(labels).ravel().astype(np.int64)
    if pixels.dtype != np.uint8 or pixels.shape != (SIDE**2, len(labels)):
        raise ValueError(
            f"{path}: expected uint8 images ({SIDE**2}, {len(labels)}), one to a column, "
            f"got {pixels.dtype} {pixels.shape}"
        )
    if len(labels) and not 0 <= labels.min() <= labels.max() <= 9:
        raise ValueError(f"{path}: labels from {labels.min()} to {labels.max()}, expected 0 to 9")
    return pixels.T.reshape(-1, 1, SIDE, SIDE).copy(), labels


def _check_orientation(images: np.ndarray, labels: np.ndarray, folder: Path) -> None:
    """Raise ValueError if the ones lie on their side: the pixels are in another order."""
    ones = images[labels == 1] > 0
    down, across = (float(ones.any(axis).sum(1).mean()) if len(ones) else 0 for axis in (2, 1))
    if down < across:
        raise ValueError(
            f"the ones in {folder} lie on their side ({down:.1f} px down, {across:.1f} across): "
            "expected each column to hold an image row by row"
        )
