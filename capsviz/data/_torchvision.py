"""Data sets that torchvision reads: found locally first, else downloaded if that can start."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from capsviz.data import Dataset, search_path
from capsviz.data._files import find, intact, matrix, missing, split_of

START_SECONDS = 5  # a download must start within this time
IDX = ("images-idx3", "labels-idx1")
ALIKE = {"MNIST", "FashionMNIST", "KMNIST", "EMNIST", "QMNIST"}  # their files have the same names


def load_idx(
    class_name: str, name: str, split: str, root, classes, download: bool, *, subset: str = ""
) -> Dataset:
    """Load one of torchvision's MNIST-like data sets; `subset` is one of EMNIST's, "digits".

    Its files are in CLASS/raw, CLASS, raw or the folder itself, as "train-images-idx3-ubyte" or
    "train-images.idx3-ubyte", packed (.gz) or not.
    """
    part = "test" if split == "test" else "train"
    prefix = f"emnist-{subset}-{part}" if subset else {"train": "train", "test": "t10k"}[part]
    folders = search_path(root)
    stems = [f"{prefix}-{what}" for what in IDX]
    found = []
    for stem in stems:
        names = [
            f"{place}/{one}-ubyte{end}"
            for place in (f"{class_name}/raw", class_name, ".", "raw")
            for end in ("", ".gz")
            for one in (stem, stem.replace("-idx", ".idx"))
        ]
        found.append(find(folders, names, ALIKE - {class_name}))
    paths = [path for path in found if path is not None]
    if len(paths) < len(IDX):
        from torchvision import datasets  # takes time to import

        kind = getattr(datasets, class_name)
        files = [f"{class_name}/raw/{stem}-ubyte" for stem in stems]
        arguments = {"split": subset} if subset else {}
        urls = [kind.url] if subset else kind.mirrors
        source = read(kind, folders, files, urls, download, train=part == "train", **arguments)
        paths = [Path(source.root, file) for file in files]
    arrays = []
    for path in paths:
        with intact(path):
            arrays.append(matrix(path))
    images, labels = arrays
    return split_of(images, labels, name, split, classes, paths[0].parent, (1, 28, 28))


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
                    except RuntimeError as error:  # torchvision advises otherwise
                        text = "their checksums are not those of the original files"
                        raise ValueError(text) from error
        if not download:
            raise missing(name, folders, advice)
        if not _reachable(urls):
            why = f", and its download from {urls[0]} did not start within {START_SECONDS} seconds"
            raise missing(name, folders, advice, why)
        try:
            return kind(target, download=True, **arguments)
        except (RuntimeError, OSError) as error:
            why = f", and its download failed ({error})"
            raise missing(name, folders, advice, why) from error


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
