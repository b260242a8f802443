"""Load data sets: each file here loads the data set of its name.

A file has a function `load(split, root, *, ...) -> Dataset`. `root` is the folder to look in, and
`split` is "train", "validation" or "test". Keyword-only parameters are options of the data set,
each with a default. A data set that can be downloaded has the option `download` (bool).
Optional constants: `IMAGE_SHAPE` (C, H, W) and `CLASSES` (class names) describe the data set when
its files are missing, and `SPLITS` names all splits if there are others.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from capsviz import discovery, validation
from capsviz.data import _given
from capsviz.pictures import opening
from capsviz.transforms.augment import to_float

__all__ = [
    "Dataset", "available", "check", "counts_of", "here", "load", "search_path", "summary",
]  # fmt: skip

SPLITS = ("train", "validation", "test")
DEFAULT = "mnist"
FALLBACK = "digits"  # part of scikit-learn: needs no download
FILES = ("csv", "mat", "npz", "npy", "parquet")  # aliases of `arrays`
IMBALANCE = 5  # ratio of the largest to the smallest class from which `check` warns


@dataclass(frozen=True)
class Dataset(TorchDataset[tuple[Tensor, int | Tensor]]):
    """A whole split in memory, usable with `torch.utils.data.DataLoader`.

    `dataset[i]` returns image i, float32 (C, H, W) in [0, 1], and its class. If each image shows K
    objects, `parts` holds each object alone, `labels` holds their classes, and `dataset[i]` returns
    classes (K,).

    `Dataset(images, labels)` takes arrays, tensors or lists. Images are (N, H, W), (N, C, H, W) or
    (N, H, W, C). Their values are integers from 0 to 255, or all lie in [0, 1] (floats, bool,
    masks). A uint8 tensor (N, C, H, W) is stored unchanged. Labels are integers, class names,
    (N, 1) or one-hot. `Dataset(dataset)` takes a torch Dataset of (image, label). ValueError for
    anything else.

    With `inputs=True`, `images` are inputs of a network that takes no images: float32 (N, ...),
    stored and returned unchanged.
    """

    images: Tensor  # (N, C, H, W) uint8, or `inputs`: (N, ...) float32
    labels: Tensor = None  # type: ignore[assignment]  # (N,) int64; with parts (N, K), all distinct
    classes: tuple[str, ...] = None  # type: ignore[assignment]  # names; None: labels that occur
    name: str = "arrays"
    split: str = "train"
    parts: Tensor | None = None  # (N, K, C, H, W) uint8
    notice: str | None = None  # printed beside its images
    left_out: str | None = None  # one or two lines about data that were found but not loaded
    doubts: tuple[str, ...] = ()  # warnings about its files, for `check`
    inputs: bool = False  # whether `images` are no images: token ids, a table, a volume, ...
    kind: str | None = None  # the name for `load`; None: `name`
    drawn_from: int = 0  # number of images that the split was drawn from; 0: the files define it
    largest: float = 0  # largest value of its arrays before conversion to uint8; 0: unknown
    options: Mapping = field(default_factory=dict)  # options given to `load`, without `download`

    def __post_init__(self):
        images, labels, classes, parts = self.images, self.labels, self.classes, self.parts
        if labels is None:
            source = images
            while classes is None and source is not None:  # a Subset has those of its data set
                classes = getattr(source, "classes", None)
                source = getattr(source, "dataset", None)
            images, labels = _given.pairs(images)
        if not self.inputs:
            images = _given.pixels(images)
        elif not isinstance(images, Tensor) or images.dtype != torch.float32:
            kind = getattr(images, "dtype", type(images).__name__)
            raise ValueError(f"inputs must be a float32 tensor (N, ...), got {kind}")
        labels, classes = _given.numbers(labels, classes, several=parts is not None)
        if len(images) != len(labels):
            raise ValueError(f"{len(images)} images, but {len(labels)} labels")
        if parts is not None and parts.shape != (whole := (*labels.shape, *images.shape[1:])):
            raise ValueError(f"parts must be (N, K, C, H, W), {whole}: {tuple(parts.shape)}")
        for name, value in (("images", images), ("labels", labels), ("classes", classes)):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        """Return name, split, number and shape of images, and number of classes."""
        of = f"{self.name!r}, {self.split!r}, {len(self):,} images {tuple(self.images.shape[1:])}"
        return f"Dataset({of}, {len(self.classes)} classes)"

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int | Tensor]:
        """Return image (C, H, W) in [0, 1] and its class, or classes (K,)."""
        try:
            position = operator.index(index)
        except TypeError as error:
            raise TypeError(
                f"expected one integer, got {index!r}: for a part of a data set, use "
                "dataset.take(slice or index tensor)"
            ) from error
        label = self.labels[position]
        return to_float(self.images[position]), int(label) if label.dim() == 0 else label

    @property
    def loader(self) -> str:
        """Return the name that `load` takes: "folder" if `name` is the name of a user's folder."""
        return self.kind or self.name

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Return (C, H, W), or the shape of one input if `inputs`."""
        return tuple(self.images.shape[1:])  # type: ignore[return-value]

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of images, labels and parts."""
        sha = hashlib.sha256()
        for tensor in (self.images, self.labels, self.parts):
            kind = None if tensor is None else (tensor.dtype, tuple(tensor.shape))
            sha.update(repr(kind).encode())
            if tensor is not None:
                sha.update(tensor.cpu().contiguous().numpy().data)
        return sha.hexdigest()

    def first(self, n: int | None) -> Dataset:
        """Return the first n images, or all for None; ValueError unless 1 <= n <= len(self)."""
        if n is None:
            return self
        if not 1 <= n <= len(self):
            raise ValueError(
                f"expected 1 to {len(self)} images of {self.name} {self.split}, got {n}"
            )
        return self.take(slice(n))

    def sample(self, n: int | None) -> Dataset:
        """Return n random images (all for None) in the split's order, drawn with a fixed seed.

        Use it where the first images may differ from the others. ValueError as from `first`.
        """
        whole = self.first(n)
        if n is None:
            return whole
        draw = torch.randperm(len(self), generator=torch.Generator().manual_seed(0))
        return self.take(draw[:n].sort().values)

    def take(self, index) -> Dataset:
        """Return the images that a slice or index tensor selects."""
        parts = None if self.parts is None else self.parts[index]
        return replace(self, images=self.images[index], labels=self.labels[index], parts=parts)

    def pad(self, px: int) -> Dataset:
        """Add px rows and columns of zeros on each side of the images."""
        if not isinstance(px, int) or px < 0:
            raise ValueError(f"pad_px must be an integer of at least 0, got {px!r}")
        return self._each(lambda images: torch.nn.functional.pad(images, (px,) * 4)) if px else self

    def crop(self, size: int | None) -> Dataset:
        """Crop the centre of size x size pixels (None: no crop); ValueError if it is too large."""
        if size is None:
            return self
        H, W = self.image_shape[1:]
        if not isinstance(size, int) or not 1 <= size <= min(H, W):
            raise ValueError(f"crop_px must be from 1 to {min(H, W)} for {self.name}, got {size!r}")
        top, left = (H - size) // 2, (W - size) // 2
        window = (..., slice(top, top + size), slice(left, left + size))
        return self._each(lambda images: images[window].contiguous())

    def in_order(self, classes: Sequence[str] | None) -> Dataset:
        """Number the classes as in `classes`; no change if a class is not among these names."""
        if not classes or tuple(classes) == self.classes or not set(self.classes) <= set(classes):
            return self
        number = torch.tensor([list(classes).index(name) for name in self.classes])
        return replace(self, labels=number[self.labels], classes=tuple(classes))

    def _each(self, change) -> Dataset:
        parts = None if self.parts is None else change(self.parts)
        return replace(self, images=change(self.images), parts=parts)

    def single(self) -> Dataset:
        """Return this data set; ValueError if its images show several objects each."""
        if self.parts is not None:
            raise ValueError(
                f"{self.name} shows {self.labels.shape[1]} objects in each image, expected one: "
                "use `capsviz segment`, or choose another data set"
            )
        return self

    def nth_of_class(self, label: int, index: int) -> tuple[Tensor, int]:
        """Return the index-th image (1, C, H, W) uint8 of a class, and its index in the split."""
        self.single()
        if not 0 <= label < len(self.classes):
            raise ValueError(
                f"{self.name} has no class {label}, expected 0 to {len(self.classes) - 1}"
            )
        if len(self) == 0:
            raise ValueError(f"no image of {self.name} was found: name its folder by --data-dir")
        found = (self.labels == label).nonzero().flatten()
        if not 0 <= index < len(found):
            raise ValueError(
                f"{self.name} {self.split} has {len(found)} images of class {label}: "
                f"expected an index from 0 to {len(found) - 1}, got {index}"
            )
        position = int(found[index])
        return self.images[position : position + 1], position


def available() -> list[str]:
    """Return the names of the data sets."""
    return discovery.names("capsviz.data")


def search_path(root: str | os.PathLike | None = None) -> list[Path]:
    """Return the folders to look for data in: `root` if given, else $CAPSVIZ_DATA and the cache."""
    if root is not None:
        return [Path(root)]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    caches = [] if cache.startswith("~") else [Path(cache) / "capsviz"]  # "~": no home folder
    chosen = os.environ.get("CAPSVIZ_DATA")
    if not chosen and not caches:
        raise FileNotFoundError(
            "there is no home folder to keep data in: set CAPSVIZ_DATA, XDG_CACHE_HOME or HOME, or "
            "give --data-dir"
        )
    return [Path(chosen), *caches] if chosen else caches


def load(
    name: str,
    split: str,
    root: str | os.PathLike | None = None,
    *,
    pad_px: int = 0,
    crop_px: int | None = None,
    download: bool = True,
    **options,
) -> Dataset:
    """Load one split of a data set.

    Parameters
    ----------
    name      a file in `capsviz/data`, or one of `FILES`.
    split     "train", "validation", "test", or another split of the data set. Unless the data set
              defines it otherwise, validation is the last part of the training images.
    root      the folder of its files; None: $CAPSVIZ_DATA, then the user's cache.
    pad_px    rows and columns of zeros to add on each side.
    crop_px   side of a square to crop from the centre, after padding; None: the whole image.
    download  whether missing files may be downloaded, if the data set supports it.
    options   options of the data set, e.g. `eye="left"`; for your own pictures `image_size`, 28 or
              (32, 48), and `image_channels`, 1 for grey or 3 for colour.

    Raises
    ------
    ValueError         for an unknown name, split or option, and damaged files.
    FileNotFoundError  if the files are neither found nor downloaded; says where to put them.
    """
    name = "arrays" if name in FILES else name
    if name in ("arrays", "folder") and "channels" in options:  # name in cards of earlier runs
        options["image_channels"] = options.pop("channels")
    check_options(name, options)
    validation.check(f"download of the data set '{name}'", download, bool)
    splits = getattr(module_of(name), "SPLITS", SPLITS)
    discovery.require_known("split", split, splits)
    loader, allowed = loader_of(name), {}
    if "download" in discovery.parameters(loader):
        allowed["download"] = download
    part = loader(split, root, **options, **allowed)
    if not isinstance(part, Dataset):
        of = f"the data set '{name}' of {discovery.source('capsviz.data', name)}"
        raise ValueError(f"{of} is a {type(part).__name__}, expected a capsviz.data.Dataset")
    own_name = part.name if part.kind == name else name  # cards store it
    given = {**options, "pad_px": pad_px or None, "crop_px": crop_px}
    given = {option: value for option, value in given.items() if value is not None}
    return replace(part, name=own_name, options=given).pad(pad_px).crop(crop_px)


def module_of(name: str) -> ModuleType:
    """Return the file of a data set; ValueError for an unknown name."""
    return discovery.load("capsviz.data", "arrays" if name in FILES else name, what="dataset")


def loader_of(name: str) -> Callable[..., object]:
    """Return the function `load` of a data set; ValueError if the data set or it is missing."""
    module = module_of(name)
    if not callable(loader := getattr(module, "load", None)):
        raise ValueError(
            f"the data set '{name}' of {module.__file__} has no function load(split, root)"
        )
    return loader


def check_options(name: str, options: Mapping) -> None:
    """Raise ValueError for an unknown data set, or options that it does not take or that it lacks.

    `pad_px` and `crop_px` are parameters of this module's `load`, not options.
    """
    parameters = inspect.signature(loader_of(name)).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    for option, value in sorted(options.items()):
        if option not in defaults:
            near = difflib.get_close_matches(option, defaults, len(defaults), 0)
            known = f"expected {' or '.join(near)}" if near else "expected no option"
            raise ValueError(f"the data set '{name}' takes no {option}, got {value!r}: {known}")
        if isinstance(defaults[option], bool | int | float | str):
            validation.check(f"{option} of the data set '{name}'", value, type(defaults[option]))
    if shared := defaults.keys() & {"pad_px", "crop_px"}:
        raise ValueError(f"all data sets have {shared.pop()}: '{name}' needs another name for it")
    missing = [o for o in defaults if defaults[o] is inspect.Parameter.empty and o not in options]
    if missing:
        raise ValueError(f"the data set '{name}' needs a value for {', '.join(missing)}")


def here(about: Mapping, split: str, root: str | os.PathLike | None = None) -> Dataset:
    """Load a split of the data set that a card describes (`about` is card["dataset"]), offline."""
    options = {**about.get("options", {}), "download": False}
    return load(about["name"], split, root, **options)


def summary(part: Dataset) -> str:
    """Return one line with the number of images, their shape, and the images of each class."""
    counts = counts_of(part)
    each = discovery.some(f"{name} {n}" for name, n in counts.items())
    of = f"{len(part):,} images {part.image_shape} of {len(counts)} classes ({each})"
    return f"{part.name} {part.split}: {of}"


def counts_of(part: Dataset) -> dict[str, int]:
    """Return the number of images that show each class."""
    counts = part.labels.flatten().bincount(minlength=len(part.classes)).tolist()
    return dict(zip(part.classes, counts, strict=True))


def check(splits: Mapping[str, Dataset]) -> list[str]:
    """Return lines about splits (by name): data that were left out, and WARN lines.

    Each split is checked for empty classes, class imbalance, images of one grey level, and values
    far below their range. The `doubts` of its files are added. Training images are checked for
    conflicting labels, and the other splits for images that are also in training.
    """
    lines = [line for part in splits.values() for line in (part.left_out or "").splitlines()]
    warnings: dict[str, list[str]] = {}
    for name, part in splits.items():
        for text in _split_warnings(part):
            warnings.setdefault(text, []).append(name)
    lines += [f"WARN {', '.join(names)}: {text}" for text, names in warnings.items()]
    if "train" in splits and len(splits) > 1:
        train = splits["train"]
        pairs = list(zip(_image_keys(train), train.labels.tolist(), strict=True))
        known = dict(pairs)
        if conflicts := sum(known[key] != label for key, label in pairs):
            lines.append(f"WARN train: {conflicts:,} images also appear with another class")
        for name, part in splits.items():
            if name != "train" and (shared := sum(key in known for key in _image_keys(part))):
                lines.append(f"WARN {name}: {shared:,} of {len(part):,} images are also in train")
    return list(dict.fromkeys(lines))


def _split_warnings(part: Dataset) -> list[str]:
    """Return warnings about one split."""
    lines, counts = list(part.doubts), counts_of(part)
    if empty := [name for name, n in counts.items() if n == 0]:
        lines.append(f"no image of {len(empty)} classes ({discovery.some(empty)})")
    low, high = (how(counts, key=lambda name: counts[name]) for how in (min, max))
    if counts[high] >= IMBALANCE * counts[low] > 0:
        share = counts[high] / len(part)
        lines.append(
            f"uneven classes, {counts[low]} images of {low} and {counts[high]} of {high}: "
            f"always predicting {high} is correct for {share:.1%}"
        )
    if len(part) == 0 or part.inputs:
        return lines
    flat = part.images.flatten(1)
    top = flat.amax(1)
    if blank := int((top == flat.amin(1)).sum()):
        lines.append(f"{blank:,} of {len(part):,} images are of one grey level")
    if dark := opening.too_dark(int(top.max()), part.largest):
        lines.append(dark)
    return lines


def _image_keys(part: Dataset) -> list[int]:
    """Return a hash of each image's pixels."""
    rows = part.images.contiguous().flatten(1).cpu()
    return [hash(row.tobytes()) for row in rows.numpy()]
