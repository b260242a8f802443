"""A split of a data set, whole in memory."""

from __future__ import annotations

import hashlib
import operator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from capsviz.transforms.augment import to_float


@dataclass(frozen=True)
class Dataset(TorchDataset[tuple[Tensor, int | Tensor]]):
    """A whole split in memory; a `torch.utils.data.DataLoader` takes it, too.

    `dataset[i]` is image i, float32 (C, H, W) in [0, 1], and its class. If each image shows K
    things, `parts` holds each of them alone, `labels` their classes, and `dataset[i]` returns
    classes (K,).
    """

    images: Tensor  # (N, C, H, W) uint8
    labels: Tensor  # (N,) int64; (N, K), different from one another, if there are parts
    classes: tuple[str, ...]
    name: str
    split: str
    parts: Tensor | None = None  # (N, K, C, H, W) uint8
    notice: str | None = None  # to be printed beside its pictures
    left_out: str | None = None  # files that could not be loaded, in one line

    def __post_init__(self):
        _check(self.images, self.labels, self.parts, len(self.classes))

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
    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        _, C, H, W = self.images.shape
        return C, H, W

    @cached_property
    def digest(self) -> str:
        """SHA-256 of images, labels and parts."""
        sha = hashlib.sha256()
        for tensor in (self.images, self.labels, self.parts):
            kind = None if tensor is None else (tensor.dtype, tuple(tensor.shape))
            sha.update(repr(kind).encode())
            if tensor is not None:
                sha.update(tensor.cpu().contiguous().numpy().data)
        return sha.hexdigest()

    def first(self, n: int | None) -> Dataset:
        """Return the first n images, or all for None; ValueError for fewer than n, or n < 1."""
        if n is None:
            return self
        if not 1 <= n <= len(self):
            raise ValueError(
                f"expected 1 to {len(self)} images of {self.name} {self.split}, got {n}"
            )
        return self.take(slice(n))

    def sample(self, n: int | None) -> Dataset:
        """Return n images, all for None, drawn at random by a fixed seed, in the split's order.

        The first images of a data set need not be like the others. ValueError as from `first`.
        """
        whole = self.first(n)
        if n is None:
            return whole
        draw = torch.randperm(len(self), generator=torch.Generator().manual_seed(0))
        return self.take(draw[:n].sort().values)

    def take(self, index) -> Dataset:
        """Return a part, by slice or index tensor."""
        parts = None if self.parts is None else self.parts[index]
        return replace(self, images=self.images[index], labels=self.labels[index], parts=parts)

    def pad(self, px: int) -> Dataset:
        """Return images with px rows and columns of zeros on each side."""
        if not isinstance(px, int) or px < 0:
            raise ValueError(f"pad_px must be an integer of at least 0, got {px!r}")
        return self._each(lambda images: torch.nn.functional.pad(images, (px,) * 4))

    def crop(self, size: int | None) -> Dataset:
        """Return the centre, size x size pixels, or all for None; ValueError if it is too large."""
        if size is None:
            return self
        H, W = self.image_shape[1:]
        if not isinstance(size, int) or not 1 <= size <= min(H, W):
            raise ValueError(f"crop_px must be from 1 to {min(H, W)} for {self.name}, got {size!r}")
        top, left = (H - size) // 2, (W - size) // 2
        window = (..., slice(top, top + size), slice(left, left + size))
        return self._each(lambda images: images[window].contiguous())

    def _each(self, change) -> Dataset:
        parts = None if self.parts is None else change(self.parts)
        return replace(self, images=change(self.images), parts=parts)

    def single(self) -> Dataset:
        """Return this data set; ValueError if its images show several things each."""
        if self.parts is not None:
            raise ValueError(
                f"{self.name} shows {self.labels.shape[1]} things in each image, expected one: "
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
        found = (self.labels == label).nonzero().flatten()
        if not 0 <= index < len(found):
            raise ValueError(
                f"{self.name} {self.split} has {len(found)} images of class {label}: "
                f"expected an index from 0 to {len(found) - 1}, got {index}"
            )
        position = int(found[index])
        return self.images[position : position + 1], position


def _check(images: Tensor, labels: Tensor, parts: Tensor | None, classes: int) -> None:
    """Raise TypeError or ValueError for tensors that a `Dataset` cannot have."""
    if not isinstance(images, Tensor) or images.dtype != torch.uint8 or images.dim() != 4:
        kind = f"{images.dtype}" if isinstance(images, Tensor) else type(images).__name__
        shape = tuple(getattr(images, "shape", ()))
        raise TypeError(f"images must be a uint8 tensor (N, C, H, W), got {kind} of shape {shape}")
    if not isinstance(labels, Tensor) or labels.is_floating_point():
        kind = getattr(labels, "dtype", type(labels).__name__)
        raise TypeError(f"labels must be an integer tensor (N,), got {kind}")
    if len(images) != len(labels):
        raise ValueError(f"{len(images)} images, but {len(labels)} labels")
    whole = None if parts is None else (*labels.shape, *images.shape[1:])
    if whole is None and labels.dim() != 1:
        raise ValueError(f"labels must be (N,), got {tuple(labels.shape)}")
    if parts is not None and (tuple(parts.shape) != whole or labels.dim() != 2):
        raise ValueError(f"parts must be (N, K, C, H, W), {whole}: {tuple(parts.shape)}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        low, high = int(labels.min()), int(labels.max())
        raise ValueError(
            f"labels of {classes} classes must be 0 to {classes - 1}, got {low} to {high}"
        )
