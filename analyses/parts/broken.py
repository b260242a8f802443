"""Broken images and their controls, for `parts`: pure functions of images (N, C, H, W).

Quarters and halves are cut at the image's centre. Each function also takes the labels (N,) and a
generator. It returns the images, and from which other image (N,) a part was taken, or None.
"""

from __future__ import annotations

import torch
from torch import Tensor

Broken = tuple[Tensor, Tensor | None]
MOVE = 1 / 14  # of the image's width: 2 px of 28, as far as training images are usually shifted


def quarters_exchanged(images: Tensor, labels: Tensor, generator) -> Broken:
    """Exchange upper left with lower right, upper right with lower left."""
    top, left = images.shape[2] // 2, images.shape[3] // 2
    result = torch.zeros_like(images)
    for down in (False, True):
        for right in (False, True):
            rows = slice(-top, None) if down else slice(top)
            columns = slice(-left, None) if right else slice(left)
            from_rows = slice(top) if down else slice(-top, None)
            from_columns = slice(left) if right else slice(-left, None)
            result[:, :, rows, columns] = images[:, :, from_rows, from_columns]
    return result, None


def halves_of_two_classes(images: Tensor, labels: Tensor, generator) -> Broken:
    """Join the upper half and the lower half of an image of another class."""
    return _joined(images, labels, generator, alike=False)


def halves_of_one_class(images: Tensor, labels: Tensor, generator) -> Broken:
    """Join the upper half and the lower half of another image of the same class."""
    return _joined(images, labels, generator, alike=True)


def half_moved(images: Tensor, labels: Tensor, generator) -> Broken:
    """Shift the lower half to the left or the right."""
    result, top = images.clone(), images.shape[2] // 2
    result[:, :, top:] = whole_moved(images, labels, generator)[0][:, :, top:]
    return result, None


def whole_moved(images: Tensor, labels: Tensor, generator) -> Broken:
    """Shift the whole image as far, on black."""
    by = max(1, round(MOVE * images.shape[3]))
    right = torch.rand(len(images), generator=generator) < 0.5
    result = torch.zeros_like(images)
    result[right, :, :, by:] = images[right, :, :, :-by]
    result[~right, :, :, :-by] = images[~right, :, :, by:]
    return result, None


def _joined(images, labels, generator, *, alike):
    result, top = images.clone(), images.shape[2] // 2
    donors = partners(labels, generator, alike=alike)
    result[:, :, top:] = images[donors][:, :, top:]
    return result, donors


def _counts(labels: Tensor) -> str:
    """How many images the rarest class has, or that there is one class."""
    classes, counts = labels.unique(return_counts=True)
    if len(classes) < 2:
        return f"images of class {int(classes[0])} alone"
    return f"{int(counts.min())} of class {int(classes[counts.argmin()])}"


def partners(labels: Tensor, generator: torch.Generator, *, alike: bool) -> Tensor:
    """Another image (N,) for each, of the same class or of another, at random.

    Raises
    ------
    ValueError  where there is none.
    """
    same = labels[:, None] == labels
    allowed = same & ~torch.eye(len(labels), dtype=torch.bool) if alike else ~same
    if not allowed.any(1).all():
        raise ValueError(
            "halves are joined of images of two classes and of two images of each class: "
            f"expected at least 2 images of each of 2 classes or more, got {_counts(labels)}: take "
            "more images"
        )
    return torch.multinomial(allowed.double(), 1, generator=generator)[:, 0]


KINDS = {  # name -> function; the last two are the controls
    "quarters exchanged": quarters_exchanged,
    "halves of two classes": halves_of_two_classes,
    "lower half moved": half_moved,
    "halves of one class": halves_of_one_class,
    "whole moved": whole_moved,
}
