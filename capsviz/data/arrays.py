"""Arrays and tables of images: .npz, .npy, .csv, .mat and Parquet files, given by --data-dir."""

import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from capsviz.data import Dataset, _given, _splits
from capsviz.data._files import intact
from capsviz.discovery import needs
from capsviz.pictures import opening

WORDS = {  # words in the names of arrays and columns, by their role
    "classes": {"classes"},
    "labels": {"label", "labels", "y", "target", "targets", "gnd", "class"},
    "images": {"image", "images", "img", "imgs", "x", "data", "pixels", "fea"},
}
ADVICE = {  # for files that cannot be read
    "table": "expected a label and the pixel values of one picture in each row; if the table lists "
    "picture files, sort these into a folder for each class (--dataset folder)",
    "arrays": "expected a complete file with arrays of numbers or text: save arrays of Python "
    "objects by .astype(str)",
}


def load(
    split, root=None, *,
    images="", labels="", shape="", range=0.0, image_size=(), image_channels=0,
):  # fmt: skip
    """Load a split of the arrays in a file, or in all such files of a folder.

    `root` is an .npz file, such as MedMNIST's; a folder of .npy files, or one of them; a .csv or
    .tsv file of labels and flattened pixels, such as Kaggle's train.csv; a .mat file (version 7.3
    needs h5py); or Parquet files with encoded pictures (needs pyarrow).

    Splits are recognised by the names of arrays, files or folders, such as train_images or
    test/x.npy. Numbered parts of a file (x-00000-of-00002) are joined. Missing splits are drawn
    from the training images as for class folders, but by the SHA-256 of the pixels. Classes are the
    labels that occur in any split, in natural order.

    Parameters
    ----------
    images, labels  names of the arrays or columns; "": the one with a common name, or else the only
                    one with at least 3 dimensions (images) or with 1 (labels).
    shape           shape of flattened pixels, e.g. 3x32x32; "": squares.
    range           largest possible value; images are divided by it; 0: see `_given.pixels`.
    image_size      side of a square or (height, width) in pixels; images are resized until they
                    cover it, and the centre is cropped; (): unchanged.
    image_channels  1 for grey, 3 for colour; 0: unchanged.
    """
    arrays = read(root, labels)
    found, named, unused = _by_split(arrays, {"images": images, "labels": labels}, root)
    numbered, classes = _numbered({part: arrays[own] for part, (_, own) in found.items()}, named)
    source = split if split in found else "train"
    if source not in found:
        raise FileNotFoundError(f"{root} has {', '.join(found)}, but no {split} images")
    target = numbered[source]
    whole = arrays[found[source][0]]
    kinds = opening.kinds(map(io.BytesIO, whole)) if whole.dtype == object else []
    pixels = _pixels(whole, len(target), shape, range, image_size, image_channels)
    doubts = _label_doubts(found[source][1], arrays[found[source][1]], whole)
    if whole.ndim == 2 and Path(root).suffix.lower() == ".mat":
        doubts.append(
            "MATLAB flattens pictures column by column, and these are read row by row: if they lie "
            "on their side (--save-figure shows it), transpose them and save them as .npz"
        )
    if pixels.shape[1] not in (1, 2, 3, 4) and pixels.shape[1] == pixels.shape[2]:
        doubts.append(
            f"images have {pixels.shape[1]} channels: volumes are no images, and kernels see only "
            "their rows and columns"
        )
    missing = [name for name in _splits.SHARES if name not in found]
    chosen = np.arange(len(target))
    if source == "train" and missing:
        keys = [hashlib.sha256(one.tobytes()).hexdigest() for one in pixels.numpy()]
        try:
            chosen = np.sort(_splits.share(keys, target.tolist(), split, missing))
        except ValueError as error:
            raise ValueError("; ".join([str(error), *doubts])) from error
    chosen = chosen[_splits.in_turn(target[chosen].tolist())]
    tops = [0 if kinds else arrays[one].max() for one, _ in found.values() if arrays[one].size]
    return Dataset(
        pixels[chosen], target[chosen], classes, "arrays", split,
        left_out=f"left out of {root}: {', '.join(unused)}" if unused else None,
        doubts=(*opening.doubts(kinds, range), *doubts), largest=float(max(tops, default=0)),
        drawn_from=0 if split in found else len(pixels),
    )  # fmt: skip


def describe(root, *, labels="", **options) -> list[str]:
    """Return a line about each array: its shape, type and range of values."""
    lines = []
    for name, array in read(root, labels).items():
        numeric = array.dtype.kind in "biuf" and array.size
        ends = f", {array.min():g} to {array.max():g}" if numeric else ""
        lines.append(f"array {name}: {array.shape} {array.dtype}{ends}")
    return lines


def read(root, labels: str = "") -> Mapping[str, np.ndarray]:
    """Read all arrays, by name; if there are several files, names begin with those of the files.

    FileNotFoundError if there is no such file, ValueError for damaged ones.
    """
    expected = f"files of arrays ({', '.join(READERS)})"
    if root is None or not Path(root).exists():
        what = "none was named" if root is None else f"{root} {opening.absent(root)}"
        raise FileNotFoundError(f"{expected} are needed by --data-dir FILE, but {what}")
    # an .npy file holds one array: read its folder, which has the labels, too
    place = Path(root).parent if Path(root).suffix == ".npy" else Path(root)
    found = sorted(place.rglob("*")) if place.is_dir() else [place]
    files = [
        p for p in found
        if p.suffix.lower() in ([".npy"] if place != Path(root) else READERS)
        and not any(part.startswith(opening.HIDDEN) for part in p.relative_to(place).parts)
    ]  # fmt: skip
    if not files:
        raise FileNotFoundError(f"{root} holds no {expected}: choose another --dataset")
    if len({path.suffix.lower() for path in files}) > 1:
        raise ValueError(f"{root} holds several kinds of {expected}: name one file by --data-dir")
    return _read(tuple((file, file.stat().st_mtime_ns) for file in files), labels)


@lru_cache(maxsize=1)  # the splits of a data set are loaded one after the other
def _read(files: tuple[tuple[Path, int], ...], labels: str) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    common = os.path.commonpath([path.parent for path, _ in files])
    for path, _ in files:
        try:
            reader = READERS[path.suffix.lower()]
            with intact(path, ADVICE["table" if reader is _csv else "arrays"]):
                arrays = reader(path, labels)
        except ImportError as error:
            raise ModuleNotFoundError(needs(str(path), str(error.name))) from error
        before = path.parent.relative_to(common).parts  # such as train/ and test/
        stem = re.sub(r"-\d+-of-\d+$", "", path.stem)  # the parts of a file are joined
        before += (stem,) * (len(files) > 1 and path.suffix.lower() != ".npy")
        for k, array in arrays.items():
            name = "_".join([*before, k])
            more = name in found and _role(k, {}) != "classes"
            found[name] = np.concatenate([found[name], array]) if more else array
    return found


def _npz(path: Path, labels: str) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def _mat(path: Path, labels: str) -> dict[str, np.ndarray]:
    from scipy.io import loadmat

    try:
        content = loadmat(path).items()
    except NotImplementedError:  # version 7.3
        import h5py

        with h5py.File(path) as file:
            content = [(k, v[()].T) for k, v in file.items() if isinstance(v, h5py.Dataset)]
    return {k: v for k, v in content if isinstance(v, np.ndarray) and v.dtype.kind in "biuf"}


def _csv(path: Path, labels: str) -> dict[str, np.ndarray]:
    """Read a table of labels and flattened pixels, separated by commas, semicolons or tabs.

    Labels are in the column called `labels`, or else in one with a common name. If the table has no
    header, they are in the column of text, else in the first, or in the last for `labels` "last".
    Columns named id or index, or unnamed ones as pandas writes, are row numbers and are left out.
    """
    with path.open(encoding="utf-8-sig") as file:
        line = file.readline()
    separator = max(",;\t", key=line.count)
    head = [cell.strip().strip('"') for cell in line.split(separator)]
    if len(head) < 2:
        raise ValueError("one column")
    texts = [k for k, cell in enumerate(head) if not _is_number(cell)]
    known = [k for k in texts if _role(head[k], {"labels": labels}) == "labels"]
    unnamed = [k for k in texts if not head[k]]
    names = [cell for cell in head if cell]  # may be numbers from 0, as pandas writes, or from 1
    counted = any(names == [str(s + k) for k in range(len(names))] for s in (0, 1))
    rows = [k for k in texts if not head[k] or {"id", "index"} & _splits.words(head[k])]
    titled = bool(known) or len(texts) > 1 or counted
    if not known and (labels != "last" if labels else titled and not counted):
        return {"(no column of labels)": np.empty(0)}
    first = len(unnamed) if counted else (texts or [0])[0]
    column = known[0] if known else len(head) - 1 if labels else first
    others = [k for k in range(len(head)) if k != column and not (titled and k in rows)]
    if titled:
        others = _in_order(others, head)
    how: dict[str, Any] = {"delimiter": separator, "skiprows": int(titled), "quotechar": '"'}
    how |= {"comments": None, "encoding": "utf-8-sig"}
    try:
        table = np.loadtxt(path, np.float32, ndmin=2, **how)
        own, table = table[:, column], table[:, others]
        if np.abs(own).max(initial=0) >= 2**24:  # float32 cannot hold all integers from here on
            own = np.loadtxt(path, np.float64, usecols=column, ndmin=1, **how)
    except ValueError:  # labels are names
        own = np.loadtxt(path, str, usecols=column, ndmin=1, **how)
        table = np.loadtxt(path, np.float32, usecols=others, ndmin=2, **how)
    usual = "labels" if known else f"labels, column {column + 1} of {len(head)}"
    return {"images": table, labels or usual: own}


def _in_order(columns: list[int], head: Sequence[str]) -> list[int]:
    """Sort columns by the pixel numbers or positions in their names (pixel10, px_10, 2x1).

    A table may have them sorted as text. Other columns, and positions that are already sorted by
    row or by column, keep their order: names may give the row or the column first.
    """
    found = [re.fullmatch(r"(\D*)(\d+)(?:\D(\d+))?", head[k]) for k in columns]
    if not all(found) or len({(one[1], one[3] is None) for one in found if one}) > 1:
        return columns
    places = [(int(one[2]), int(one[3] or 0)) for one in found if one]
    if len(set(places)) < len(places) or places == sorted(places, key=lambda one: one[::-1]):
        return columns
    return [columns[k] for k in sorted(range(len(columns)), key=places.__getitem__)]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _parquet(path: Path, labels: str) -> dict[str, np.ndarray]:
    """Read encoded images and labels, in the format of the Hugging Face hub."""
    from pyarrow import parquet

    table = parquet.read_table(path)
    arrays = {}
    for name in table.column_names:
        cells = table[name].to_pylist()
        if cells and isinstance(cells[0], dict) and "bytes" in cells[0]:
            cells = [cell["bytes"] for cell in cells]
        arrays[name] = np.array(cells, object if isinstance(cells[0], bytes) else None)
    about = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
    features = about.get("info", {}).get("features", {}).items()
    named = {k: one["names"] for k, one in features if isinstance(one, dict) and "names" in one}
    own = [k for k in arrays if _role(k, {"labels": labels}) == "labels"] or list(named)
    if len(own) == 1 and own[0] in named:
        arrays["classes"] = np.array(named[own[0]])
    return arrays


READERS: dict[str, Callable[[Path, str], dict[str, np.ndarray]]] = {
    ".npz": _npz, ".npy": lambda path, labels: {path.stem: np.load(path, allow_pickle=False)},
    ".csv": _csv, ".tsv": _csv, ".mat": _mat, ".parquet": _parquet,
}  # fmt: skip


def _role(name: str, chosen: Mapping[str, str]) -> str | None:
    """Return what an array of this name holds: "images", "labels", "classes", or None.

    An array of names holds class names if it is called just "names", or names of labels; others,
    such as image_names, do not.
    """
    for role, wanted in chosen.items():
        if wanted and (wanted == name or (wanted in name and _splits.named(name))):
            return role
    words = _splits.words(name)
    if "names" in words:
        return "classes" if words == {"names"} or words & WORDS["labels"] else None
    return next((r for r, own in WORDS.items() if not chosen.get(r) and own & words), None)


def _by_split(arrays: Mapping[str, np.ndarray], chosen: Mapping[str, str], root):
    """Return the array names of images and labels by split, the class names, and unused arrays.

    If several arrays may hold the class names and they differ, none is used.
    """
    roles = {name: _role(name, chosen) for name in arrays}
    for kind, fits in (("images", lambda a: a.ndim > 2), ("labels", lambda a: a.ndim == 1)):
        if kind not in roles.values() and not chosen[kind]:
            free = [name for name, array in arrays.items() if not roles[name] and fits(array)]
            roles |= dict.fromkeys(free, kind)
    found: dict[str, dict[str, str]] = {"images": {}, "labels": {}}
    for name, role in roles.items():
        split, own = _splits.named(name) or "train", found.get(role or "", {})
        if split in own:
            raise ValueError(
                f"{own[split]} and {name} of {root} may both be {role}: choose by --data-option "
                f"{role}=NAME"
            )
        own[split] = name
    whole = {
        s: (found["images"][s], found["labels"][s]) for s in found["images"] if s in found["labels"]
    }
    if not whole:
        raise ValueError(
            f"{root} holds {', '.join(arrays) or 'no arrays'}: expected images and labels, such as "
            "train_images and train_labels; choose by --data-option images=NAME and labels=NAME"
        )
    named = {n: arrays[n] for n, role in roles.items() if role == "classes"}
    if len({str(one.tolist()) for one in named.values()}) > 1:
        named = {}
    used = {*named, *(name for pair in whole.values() for name in pair)}
    return whole, next(iter(named.values()), None), [n for n in arrays if n not in used]


def _label_doubts(name: str, labels: np.ndarray, table: np.ndarray) -> list[str]:
    """Return a line if the last column of a table without a header looks more like labels."""
    if ", column " not in name or _evenness(table[:, -1]) <= max(0.2, 2 * _evenness(labels)):
        return []
    return [
        f"{name}, look less like classes than the last column does: if that holds them, add "
        "--data-option labels=last"
    ]


def _evenness(column: np.ndarray) -> float:
    """Return how balanced a column of class numbers is: 1 if balanced, 0 if it holds no classes.

    Fractions, and integers stored as float that are not consecutive from 0 or 1, are no classes.
    """
    values, counts = np.unique(column, return_counts=True)
    names = column.dtype.kind != "f"
    whole = names or (values[0] in (0, 1) and (np.diff(values) == 1).all())
    return len(values) * counts.min() / len(column) if whole and len(values) > 1 else 0


def _numbered(labels: Mapping[str, np.ndarray], named: np.ndarray | None):
    """Return the labels (N,) of each split, and their common classes."""
    flat = [one.reshape(-1) if one.size == max(one.shape) else one for one in labels.values()]
    if len({one.shape[1:] for one in flat}) > 1:
        raise ValueError(f"labels of different shapes: {', '.join(str(a.shape) for a in flat)}")
    numbers, classes = _given.numbers(np.concatenate(flat), named)
    return dict(zip(labels, numbers.split([len(one) for one in flat]), strict=True)), classes


def _pixels(array: np.ndarray, count: int, shape: str, top: float, size, channels: int):
    """Convert an array to images, uint8 (N, C, H, W), with the options of `load`."""
    from torchvision.transforms import functional  # takes time to import

    if array.dtype == object:  # encoded pictures
        loaded = [_opened(one, f"picture {k}", top) for k, one in enumerate(array)]
        if size:
            return torch.stack([opening.cover(one, size, channels or 3) for one in loaded])
        array = _given.as_array([np.rint(255 * one).astype(np.uint8) for one in loaded], "images")
        top = 0
        if not np.ptp(array, -1).any():
            array = array[..., 0]
    if len(array) != count and array.shape[-1] == count:  # MATLAB puts images on the last axis
        array = np.moveaxis(array, -1, 0)
    if len(array) != count or count == 0:
        raise ValueError(f"images of shape {array.shape}, but {count} labels")
    if shape:
        sides = [int(side) for side in shape.split("x") if side.isdecimal()]
        if np.prod(sides) * count != array.size:
            raise ValueError(f"images of shape {array.shape} cannot be of shape {shape}")
        array = array.reshape(count, *sides)
    if top:
        if not 0 <= array.min() <= array.max() <= top:
            raise ValueError(
                f"images from {array.min():g} to {array.max():g}: expected 0 to {top:g} (--range)"
            )
        array = array.astype(np.float32) / np.float32(top)
    images = _given.pixels(array)
    if channels and channels != images.shape[1]:
        if images.shape[1] == 4:  # on white, like picture files
            alpha = images[:, 3:] / 255
            images = (images[:, :3] * alpha + 255 * (1 - alpha)).round().byte()
        if images.shape[1] not in (1, 3):
            raise ValueError(f"images of {images.shape[1]} channels are neither grey nor colour")
        grey = channels == 1
        images = functional.rgb_to_grayscale(images) if grey else images.expand(-1, 3, -1, -1)
    if size:
        images = opening.covering(images, (images.shape[2], images.shape[3]), size)
    return images.contiguous()


def _opened(content: bytes, name: str, top: float) -> np.ndarray:
    try:
        return opening.load(io.BytesIO(content), alike=True, top=top)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} of the table, counted from 0, cannot be read") from error
