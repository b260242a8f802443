"""Files of data sets: found in the folders for data, read, and made into a split."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from capsviz.data import Dataset

VALIDATION = 5_000
NORB = {0x1E3D4C54: "<i4", 0x1E3D4C55: "u1"}  # type by magic number


def find(
    folders: Sequence[Path], names: Sequence[str], unlike: Collection[str] = ()
) -> Path | None:
    """Return the first of these files or folders that is there, by folder; None for none.

    What lies in a folder called as one of `unlike`, or in one inside that, is passed over.
    """
    for path in (folder.absolute() / name for folder in folders for name in names):
        if path.exists() and not {path.parent.name, path.parent.parent.name} & set(unlike):
            return path
    return None


def missing(what: str, folders: Sequence[Path], advice: str, why: str = "") -> FileNotFoundError:
    """Return the error for a data set that is in none of the folders."""
    places = ", ".join(map(str, folders))
    return FileNotFoundError(
        f"{what} is not in {places}{why}: {advice}, or name its folder by --data-dir"
    )


@contextmanager
def intact(where: str | Path) -> Iterator[None]:
    """Give any error of reading a file the same words: ValueError, or FileNotFoundError."""
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # readers raise anything for damaged files
        text = " ".join(str(error).split())
        kind = FileNotFoundError if isinstance(error, FileNotFoundError) else ValueError
        raise kind(
            f"{where} cannot be read ({type(error).__name__}: {text:.200}): if it is damaged or "
            "cut short, delete it and fetch it again"
        ) from error


def matrix(path: Path) -> np.ndarray:
    """Read one of LeCun's binary matrices, packed (.gz) or not: idx of bytes, or NORB's.

    idx (yann.lecun.com/exdb/mnist) has a magic number with the number of dimensions, and big-endian
    dimensions; NORB's files a magic number, the number, and at least three little-endian ones.
    """
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    first, second = struct.unpack_from("<Ii", content)
    if content[:3] == b"\0\0\x08":
        kind, order, ndim, start, stored = "u1", ">", content[3], 4, content[3]
    elif first in NORB and 1 <= second <= 8:
        kind, order, ndim, start, stored = NORB[first], "<", second, 8, max(second, 3)
    else:
        raise ValueError(f"expected the magic number of a matrix, got 0x{first:08X} and {second}")
    dims = struct.unpack_from(f"{order}{stored}i", content, start)[:ndim]
    return np.frombuffer(content, kind, offset=start + 4 * stored).reshape(dims)


def split_of(
    images, labels, name: str, split: str, classes: Sequence[str], where, shape, *, cut: bool = True
) -> Dataset:
    """Return a split of images and labels as files have them; ValueError, which names `where`.

    They are those of the split, or with `cut` all training images, of which the last 5,000 are the
    validation split. `shape` is (C, H, W) of an image.
    """
    with intact(where):
        part = Dataset(images, labels, tuple(classes), name, split)
        if part.image_shape != shape:
            raise ValueError(f"expected images {shape}, got {part.image_shape}")
        cut = cut and split != "test"
        if len(part) <= (least := VALIDATION if cut else 0):
            raise ValueError(f"expected more than {least:,} images for {split}, got {len(part):,}")
        if cut:
            part = part.take(
                slice(-VALIDATION, None) if split == "validation" else slice(-VALIDATION)
            )
        return part
