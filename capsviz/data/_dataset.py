"""A split of a data set, whole in memory."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from capsviz.data._checks import check, digest
from capsviz.transforms.augment import to_float


@dataclass(frozen=True)
class Dataset(TorchDataset[tuple[Tensor, int | Tensor]]):
    """A whole split in memory; also what a `torch.utils.data.DataLoader` takes.

    `dataset[i]` is image i, float32 (C, H, W) in [0, 1], and its class. Where an image shows
    several things, `parts` holds each alone, `labels` the class of each, and `dataset[i]` gives
    their classes (K,).
    """

    images: Tensor  # (N, C, H, W) uint8
    labels: Tensor  # (N,) int64; (N, K), different from one another, if there are parts
    classes: tuple[str, ...]
    name: str
    split: str
    parts: Tensor | None = None  # (N, K, C, H, W) uint8
    notice: str | None = None  # what must be said beside a picture of it

    def __post_init__(self):
        check(self.images, self.labels, self.parts, len(self.classes))

    def __repr__(self) -> str:
        """What it is, without its images."""
        of = f"{self.name!r}, {self.split!r}, {len(self):,} images {tuple(self.images.shape[1:])}"
        return f"Dataset({of}, {len(self.classes)} classes)"

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int | Tensor]:
        """Image (C, H, W) in [0, 1] and its class, or classes (K,); IndexError beyond the last."""
        try:
            place = operator.index(index)
        except TypeError as error:
            raise TypeError(
                f"expected one whole number, got {index!r}: a part of a data set is "
                "dataset.take(slice or index tensor)"
            ) from error
        label = self.labels[place]
        return to_float(self.images[place]), int(label) if label.dim() == 0 else label

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        _, C, H, W = self.images.shape
        return C, H, W

    @cached_property
    def digest(self) -> str:
        """SHA-256 of its images, labels and parts: two of the same one are of the same images."""
        return digest(self.images, self.labels, self.parts)

    def first(self, n: int | None) -> Dataset:
        """The first n images, or all for None; ValueError if there are fewer than n, or n < 1."""
        if n is None:
            return self
        if not 1 <= n <= len(self):
            raise ValueError(
                f"asked for {n} images of {self.name} {self.split}, expected 1 to {len(self)}"
            )
        return self.take(slice(n))

    def sample(self, n: int | None) -> Dataset:
        """n images, all for None; ValueError as of `first`.

        A random draw, always the same one, in the split's order: the first images of a data set
        need not be like the others.
        """
        whole = self.first(n)
        if n is None:
            return whole
        draw = torch.randperm(len(self), generator=torch.Generator().manual_seed(0))
        return self.take(draw[:n].sort().values)

    def take(self, index) -> Dataset:
        """A part, by slice or index tensor."""
        parts = None if self.parts is None else self.parts[index]
        return replace(self, images=self.images[index], labels=self.labels[index], parts=parts)

    def pad(self, px: int) -> Dataset:
        """With px rows and columns of zeros on each side; ValueError for what is no such number."""
        if not isinstance(px, int) or px < 0:
            raise ValueError(f"pad_px must be a whole number from 0, got {px!r}")
        return self._each(lambda images: torch.nn.functional.pad(images, (px,) * 4))

    def crop(self, size: int | None) -> Dataset:
        """The centre, size x size pixels, or all for None; ValueError if that is not inside."""
        if size is None:
            return self
        H, W = self.image_shape[1:]
        if not isinstance(size, int) or not 1 <= size <= min(H, W):
            raise ValueError(f"crop_px must be from 1 to {min(H, W)} for {self.name}, got {size!r}")
        top, left = (H - size) // 2, (W - size) // 2
        place = (..., slice(top, top + size), slice(left, left + size))
        return self._each(lambda images: images[place].contiguous())

    def _each(self, change) -> Dataset:
        parts = None if self.parts is None else change(self.parts)
        return replace(self, images=change(self.images), parts=parts)

    def single(self) -> Dataset:
        """Itself; ValueError if its images show several things each."""
        if self.parts is not None:
            raise ValueError(
                f"{self.name} shows {self.labels.shape[1]} things in each image, expected one: "
                "`capsviz segment` looks at such images, or choose another data set"
            )
        return self

    def nth_of_class(self, label: int, index: int) -> tuple[Tensor, int]:
        """The index-th image (1, C, H, W) uint8 of a class, and its place in the split."""
        self.single()
        if not 0 <= label < len(self.classes):
            raise ValueError(
                f"{self.name} has no class {label}, expected 0 to {len(self.classes) - 1}"
            )
        places = (self.labels == label).nonzero().flatten()
        if not 0 <= index < len(places):
            raise ValueError(
                f"{self.name} {self.split} has {len(places)} images of class {label}: "
                f"expected an index from 0 to {len(places) - 1}, got {index}"
            )
        place = int(places[index])
        return self.images[place : place + 1], place
