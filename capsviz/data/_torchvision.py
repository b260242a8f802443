"""Data sets that torchvision reads: found locally first, else downloaded if that can start."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from capsviz.data import Dataset, hold_out, search_path

START_SECONDS = 5  # a download that has not begun by then is given up
VALIDATION = 5_000


def load_idx(class_name: str, name: str, split: str, root, classes, download: bool) -> Dataset:
    """Read one of torchvision's MNIST-like data sets, as `capsviz.data.load` describes."""
    from torchvision import datasets

    kind = getattr(datasets, class_name)
    arrays = _read(kind, split != "test", root, download)
    images, labels = arrays.data[:, None], arrays.targets.long()
    if len(images) != len(labels) or len(images) <= (VALIDATION if split != "test" else 0):
        raise ValueError(
            f"{class_name} in {arrays.root} is damaged: {len(images)} images, {len(labels)} labels"
        )
    if split != "test":
        images, labels = hold_out(images, labels, split, VALIDATION)
    return Dataset(images.contiguous(), labels, tuple(classes), name, split)


def _read(kind, train: bool, root, download: bool):
    name, folders = kind.__name__, search_path(root)
    for folder in folders:
        if (folder / name / "raw").is_dir():
            try:
                return kind(folder, train=train, download=False)
            except RuntimeError as error:
                if "not found" not in str(error).lower():
                    raise _damaged(name, folder, error) from error
            except (AssertionError, ValueError, TypeError, EOFError, OSError) as error:
                raise _damaged(name, folder, error) from error
    target = folders[-1]
    where = f"put its files in {target / name / 'raw'}, or name their folder by --data-dir"
    if not download:
        raise FileNotFoundError(f"{name} is not in {', '.join(map(str, folders))}: {where}")
    if not _reachable(kind.mirrors):
        raise FileNotFoundError(
            f"{name} is not in {', '.join(map(str, folders))}, and its download did not start "
            f"within {START_SECONDS} seconds: {where}"
        )
    try:
        return kind(target, train=train, download=True)
    except (RuntimeError, OSError) as error:
        raise FileNotFoundError(f"downloading {name} failed ({error}): {where}") from error


def _damaged(name: str, folder: Path, error: Exception) -> ValueError:
    return ValueError(
        f"{name} in {folder / name / 'raw'} is damaged or truncated ({_line(error)}): "
        "delete that folder and fetch it again"
    )


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0][:120]


def _reachable(mirrors: Sequence[str]) -> bool:
    """Whether any mirror answers within START_SECONDS, name look-up included."""
    answered = threading.Event()

    def ask(url: str) -> None:
        try:
            request = urllib.request.Request(url, method="HEAD")
            urllib.request.urlopen(request, timeout=START_SECONDS).close()
        except urllib.error.HTTPError:
            pass  # a server that answers with an error page is there
        except OSError:
            return
        answered.set()

    asking = [threading.Thread(target=ask, args=(url,), daemon=True) for url in mirrors]
    for thread in asking:
        thread.start()
    waited = 0.0
    while waited < START_SECONDS and any(t.is_alive() for t in asking):
        if answered.wait(0.05):
            return True
        waited += 0.05
    return answered.is_set()
