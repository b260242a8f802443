"""Find or download the files of data sets, read them, and make a split of them."""

import gzip
import socket
import struct
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from capsviz.data import Dataset, search_path

VALIDATION = 5_000
NORB = {0x1E3D4C54: "<i4", 0x1E3D4C55: "u1"}  # data type by magic number
TIMEOUT_SECONDS = 10  # a download fails if the server is silent for so long
IDX = ("images-idx3", "labels-idx1")
SAME_FILE_NAMES = {"MNIST", "FashionMNIST", "KMNIST", "EMNIST", "QMNIST"}


def find(
    folders: Sequence[Path], names: Sequence[str], excluded: Collection[str] = ()
) -> Path | None:
    """Return the first of these files or folders that exists, folder by folder; else None.

    Paths whose parent or grandparent folder has one of the `excluded` names are skipped.
    """
    for path in (folder.absolute() / name for folder in folders for name in names):
        if path.exists() and not {path.parent.name, path.parent.parent.name} & set(excluded):
            return path
    return None


def missing(what: str, folders: Sequence[Path], advice: str, why: str = "") -> FileNotFoundError:
    """Return the error for a data set that is in none of the folders."""
    places = ", ".join(map(str, folders))
    return FileNotFoundError(
        f"{what} is not in {places}{why}: {advice}, or name its folder by --data-dir"
    )


@contextmanager
def intact(
    where: str | Path, advice: str = "if it is damaged or cut short, delete it and fetch it again"
) -> Iterator[None]:
    """Turn any error of reading a file into a ValueError or FileNotFoundError that names it."""
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # readers raise anything for damaged files
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(f"{where} is missing or lacks a file: {error}") from error
        text = " ".join(str(error).split())
        what = f"{where} cannot be read ({type(error).__name__}: {text:.200})"
        raise ValueError(f"{what}: {advice}") from error


def matrix(path: Path) -> np.ndarray:
    """Read one of LeCun's binary matrix files (idx of bytes, or NORB), gzipped (.gz) or not.

    idx (yann.lecun.com/exdb/mnist): a magic number that holds the number of dimensions, then
    big-endian dimensions. NORB: a magic number, the number of dimensions, then the dimensions,
    little-endian and at least three.
    """
    if path.suffix == ".gz":
        content = np.frombuffer(bytearray(gzip.decompress(path.read_bytes())), np.uint8)
    else:
        content = np.fromfile(path, np.uint8)
    first, second = struct.unpack_from("<Ii", content.data)
    if content[:3].tolist() == [0, 0, 8]:
        ndim = int(content[3])
        kind, order, start, stored = "u1", ">", 4, ndim
    elif first in NORB and 1 <= second <= 8:
        kind, order, ndim, start, stored = NORB[first], "<", second, 8, max(second, 3)
    else:
        raise ValueError(f"expected the magic number of a matrix, got 0x{first:08X} and {second}")
    dims = struct.unpack_from(f"{order}{stored}i", content.data, start)[:ndim]
    return content[start + 4 * stored :].view(kind).reshape(dims)


def split_of(
    images, labels, name: str, split: str, classes: Sequence[str], where, shape, *, cut: bool = True
) -> Dataset:
    """Make a split of the images and labels of a file; ValueError names `where` they are from.

    They belong to the split. With `cut` they are all training images, and the last 5,000 become
    the validation split. `shape` is the expected (C, H, W).
    """
    with intact(where):
        part = Dataset(images, labels, tuple(classes), name, split)
        if part.image_shape != shape:
            raise ValueError(f"expected images {shape}, got {part.image_shape}")
        cut = cut and split != "test"
        if len(part) <= (least := VALIDATION if cut else 0):
            raise ValueError(f"expected more than {least:,} images for {split}, got {len(part):,}")
        own = slice(-VALIDATION, None) if split == "validation" else slice(-VALIDATION)
        return part.take(own) if cut else part


def load_idx(
    class_name: str, name: str, split: str, root, classes, download: bool, *, subset: str = ""
) -> Dataset:
    """Load one of torchvision's MNIST-like data sets; `subset` selects one of EMNIST, "digits".

    Its files are in CLASS/raw, CLASS, raw or the folder itself, named "train-images-idx3-ubyte" or
    "train-images.idx3-ubyte", gzipped (.gz) or not.
    """
    part = "test" if split == "test" else "train"
    prefix = f"emnist-{subset}-{part}" if subset else {"train": "train", "test": "t10k"}[part]
    folders = search_path(root)
    stems = [f"{prefix}-{what}" for what in IDX]
    paths = []
    for stem in stems:
        names = [
            f"{place}/{one}-ubyte{end}"
            for place in (f"{class_name}/raw", class_name, ".", "raw")
            for end in ("", ".gz")
            for one in (stem, stem.replace("-idx", ".idx"))
        ]
        if path := find(folders, names, SAME_FILE_NAMES - {class_name}):
            paths.append(path)
    if len(paths) < len(IDX):
        from torchvision import datasets  # takes time to import

        kind = getattr(datasets, class_name)
        files = [f"{class_name}/raw/{stem}-ubyte" for stem in stems]
        arguments = {"split": subset} if subset else {}
        source = read(kind, folders, files, download, train=part == "train", **arguments)
        paths = [Path(source.root, file) for file in files]
    arrays = []
    for path in paths:
        with intact(path):
            arrays.append(matrix(path))
    with intact(paths[0]):
        images = torch.from_numpy(arrays[0])[:, None]  # `Dataset` stores it without a copy
    return split_of(images, arrays[1], name, split, classes, paths[0].parent, (1, 28, 28))


def read(kind, folders: Sequence[Path], files: Sequence[str], download: bool, **arguments):
    """Read one of torchvision's data sets from the first folder that has all its files.

    Otherwise it is downloaded into the last folder. ValueError for damaged files, FileNotFoundError
    if they are neither found nor downloaded.
    """
    name, target = kind.__name__, folders[-1]
    first = target / files[0]
    more = "" if len(files) == 1 else ", ..."
    advice = f"put its files ({first.name}{more}) in {first.parent}"
    with warnings.catch_warnings():
        # numpy 2.4.0 to 2.4.4 warns of CIFAR-10's old pickles: pytorch/vision issue 9340
        warnings.filterwarnings("ignore", "dtype.*align", UserWarning)
        for folder in folders:
            if all((folder / file).is_file() for file in files):
                with intact(f"{name} in {(folder / files[0]).parent}"):
                    try:
                        return kind(folder, download=False, **arguments)
                    except RuntimeError as error:  # torchvision advises to download them
                        text = "their checksums are not those of the original files"
                        raise ValueError(text) from error
        if not download:
            raise missing(name, folders, advice)
        before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(TIMEOUT_SECONDS)
        try:
            return kind(target, download=True, **arguments)
        except (RuntimeError, OSError) as error:
            why = f", and its download failed ({' '.join(str(error).split())})"
            raise missing(name, folders, advice, why) from error
        finally:
            socket.setdefaulttimeout(before)
