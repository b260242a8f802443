"""Data sets that torchvision reads: found locally first, else downloaded if that can start."""

from __future__ import annotations

import gzip
import struct
import threading
import time
import urllib.error
import urllib.request
import warnings
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

import torch

from capsviz.data import Dataset, search_path

START_SECONDS = 5  # a download must start within this time
VALIDATION = 5_000
IDX = ("images-idx3", "labels-idx1")


def load_idx(
    class_name: str, name: str, split: str, root, classes, download: bool, *, subset: str = ""
) -> Dataset:
    """Load one of torchvision's MNIST-like data sets; `subset` is one of EMNIST's, "digits"."""
    part = "test" if split == "test" else "train"
    prefix = f"emnist-{subset}-{part}" if subset else {"train": "train", "test": "t10k"}[part]
    folders = search_path(root)
    found = [_find(folders, class_name, f"{prefix}-{what}") for what in IDX]
    paths = [path for path in found if path is not None]
    if len(paths) < len(IDX):
        from torchvision import datasets  # takes time to import

        kind = getattr(datasets, class_name)
        files = [f"{class_name}/raw/{prefix}-{what}-ubyte" for what in IDX]
        arguments = {"split": subset} if subset else {}
        urls = [kind.url] if subset else kind.mirrors
        source = read(kind, folders, files, urls, download, train=part == "train", **arguments)
        paths = [Path(source.root, file) for file in files]
    images, labels = (_read_idx(path, ndim) for path, ndim in zip(paths, (3, 1), strict=True))
    return divide(images[:, None], labels.long(), name, split, classes, paths[0].parent)


def _find(folders: Sequence[Path], class_name: str, stem: str) -> Path | None:
    """Return a file in the first folder that has it, in CLASS/raw, CLASS, raw or itself.

    `stem` is "train-images-idx3"; the file may be called "train-images.idx3-ubyte", and be packed
    (.gz). Folders of other data sets, whose files have the same names, are passed over.
    """
    names = [
        f"{one}-ubyte{end}"
        for end in ("", ".gz")
        for one in (stem, ".idx".join(stem.rsplit("-idx", 1)))
    ]
    others = {"MNIST", "FashionMNIST", "KMNIST", "EMNIST", "QMNIST"} - {class_name}
    for folder in folders:
        own = folder.absolute()
        inside = ("", "raw") if not others & {own.name, own.parent.name} else ()
        for place in (f"{class_name}/raw", class_name, *inside):
            for name in names:
                if (folder / place / name).is_file():
                    return folder / place / name
    return None


def _read_idx(path: Path, ndim: int) -> torch.Tensor:
    """Read bytes in LeCun's format (yann.lecun.com/exdb/mnist); ValueError for damaged files."""
    import numpy as np

    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read()
        dims = struct.unpack(f">{ndim}I", content[4 : 4 + 4 * ndim])
        if content[:4] != bytes((0, 0, 8, ndim)):
            raise ValueError(f"it does not begin as {ndim} dimensions of bytes do")
        array = np.frombuffer(bytearray(content), np.uint8, offset=4 + 4 * ndim).reshape(dims)
    except (OSError, EOFError, zlib.error, struct.error, ValueError) as error:
        raise ValueError(
            f"{path} is damaged or truncated ({error}): delete it and fetch it again"
        ) from error
    return torch.from_numpy(array)


def divide(images, labels, name: str, split: str, classes, where) -> Dataset:
    """Return a data set; the last 5,000 training images are the validation split.

    ValueError, which names `where`, for unequal numbers of images and labels, or too few images.
    """
    if len(images) != len(labels) or len(images) <= (VALIDATION if split != "test" else 0):
        raise ValueError(
            f"{name} in {where} is damaged: {len(images)} images, {len(labels)} labels"
        )
    if split != "test":
        part = slice(-VALIDATION, None) if split == "validation" else slice(-VALIDATION)
        images, labels = images[part], labels[part]
    return Dataset(images.contiguous(), labels, tuple(classes), name, split)


def read(
    kind,
    folders: Sequence[Path],
    files: Sequence[str],
    urls: Sequence[str],
    download: bool,
    **arguments,
):
    """Return one of torchvision's data sets from the first folder that has all its files.

    A download goes into the last folder. ValueError for damaged files, FileNotFoundError if they
    are neither found nor downloaded.
    """
    name = kind.__name__
    for folder in folders:
        if all((folder / file).is_file() for file in files):
            return _open(kind, folder, Path(files[0]).parent, arguments)
    target = folders[-1]
    missing = f"{name} is not in {', '.join(map(str, folders))}"
    first = target / files[0]
    example = first.name if len(files) == 1 else f"{first.name}, ..."
    where = f"put its files ({example}) in {first.parent}"
    where += ", or name their folder by --data-dir"
    if not download:
        raise FileNotFoundError(f"{missing}: {where}")
    if not _reachable(urls):
        raise FileNotFoundError(
            f"{missing}, and its download from {urls[0]} did not start within {START_SECONDS} "
            f"seconds: {where}"
        )
    try:
        return _quietly(kind, target, download=True, **arguments)
    except (RuntimeError, OSError) as error:
        raise FileNotFoundError(f"downloading {name} failed ({error}): {where}") from error


def to_tensor(images) -> torch.Tensor:
    """Return a uint8 array (N, C, H, W) of any strides as a tensor."""
    import numpy as np

    return torch.from_numpy(np.ascontiguousarray(images))


def _open(kind, folder: Path, place: Path, arguments: dict):
    try:
        return _quietly(kind, folder, download=False, **arguments)
    except (RuntimeError, AssertionError, ValueError, TypeError, EOFError, OSError) as error:
        reason = (str(error) or type(error).__name__).partition("\n")[0][:120]
        if "corrupted" in reason:  # torchvision advises otherwise
            reason = "their checksums are not those of the original files"
        raise ValueError(
            f"{kind.__name__} in {folder / place} is damaged or truncated ({reason}): "
            "delete its files and fetch them again"
        ) from error


def _quietly(kind, *arguments, **options):
    with warnings.catch_warnings():
        # numpy 2.4.0 to 2.4.4 warns of CIFAR-10's old pickles: pytorch/vision issue 9340
        warnings.filterwarnings("ignore", "dtype.*align", UserWarning)
        return kind(*arguments, **options)


def _reachable(urls: Sequence[str]) -> bool:
    """Return whether any URL answers within START_SECONDS, name look-up included."""
    answers: SimpleQueue[bool] = SimpleQueue()

    def ask(url: str) -> None:
        try:
            request = urllib.request.Request(url, method="HEAD")
            urllib.request.urlopen(request, timeout=START_SECONDS).close()
        except urllib.error.HTTPError:
            answers.put(True)  # a server that answers with an error page is there
        except OSError:
            answers.put(False)
        else:
            answers.put(True)

    end = time.monotonic() + START_SECONDS
    for url in urls:
        threading.Thread(target=ask, args=(url,), daemon=True).start()
    with suppress(Empty):
        return any(answers.get(timeout=max(0, end - time.monotonic())) for _ in urls)
    return False
