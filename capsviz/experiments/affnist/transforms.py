"""The transforms of each image of affnist_like: drawn from MNIST, or read from a file.

How far an image may be shifted depends on its foreground, so they cannot be drawn without MNIST. A
series stores them beside its results, as `transforms.npz`.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from capsviz import data, discovery
from capsviz.data import affnist_like
from capsviz.files import write_bytes

FILE = "transforms.npz"
NAMES = affnist_like.Transforms._fields


def draw(n: int, root=None) -> dict[str, np.ndarray]:
    """Return fields of `affnist_like.Transforms` for the first n test images, each (n,) float32."""
    plain = data.load("mnist", "test", root, download=False)
    variants = [affnist_like.transforms(plain, v) for v in range(-(-n // len(plain)))]
    columns = zip(*variants, strict=True)
    return {
        name: np.concatenate(parts)[:n].astype(np.float32)
        for name, parts in zip(NAMES, columns, strict=True)
    }


def store(folder: Path, n: int, root=None) -> Path:
    """Write the transforms of the first n images beside a series, unless they exist."""
    path = folder / FILE
    if _read(path, n) is None:
        content = io.BytesIO()
        columns: dict[str, Any] = dict(draw(n, root))
        np.savez_compressed(content, **columns)
        write_bytes(path, content.getvalue())
    return path


def read(folder: Path, n: int, root=None) -> dict[str, np.ndarray] | None:
    """Return the first n transforms: from a folder, as shipped, or drawn; None without MNIST."""
    for place in (folder, discovery.folder("capsviz.trained") / "affnist"):
        if (stored := _read(place / FILE, n)) is not None:
            return stored
    try:
        return draw(n, root)
    except FileNotFoundError:
        return None


def _read(path: Path, n: int) -> dict[str, np.ndarray] | None:
    """Return the first n transforms of a file; None if it does not exist or has fewer."""
    if not path.exists():
        return None
    try:
        with path.open("rb") as file, np.load(file) as stored:
            columns = {name: stored[name] for name in NAMES}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"'{path}' does not hold the transforms of affnist_like: delete it"
        ) from error
    if min(map(len, columns.values())) < n:
        return None
    return {name: values[:n] for name, values in columns.items()}
