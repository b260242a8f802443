"""Choose further images: to fit or average a statistic on, or to form a pair."""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsviz.tracing import scores
from capsviz.transforms.augment import to_float


class Others(NamedTuple):
    """Images, their labels, and a description of them."""

    images: Tensor  # (M, C, H, W) in [0, 1]
    labels: Tensor  # (M,)
    name: str


def other_images(inputs, n: int) -> Others:
    """Return up to n validation images of the same data set, always the same random ones.

    Training images are used if validation images are measured or missing. ValueError if neither
    split is available.
    """
    for split in ("validation", "train"):
        with suppress(FileNotFoundError):
            if split != inputs.dataset.split:
                part = inputs.load(split).single()
                part = part.sample(min(n, len(part)))
                return Others(to_float(part.images), part.labels, f"{len(part)} {split} images")
    raise ValueError(
        f"{inputs.dataset.name} has neither validation nor training images at hand, which this "
        "needs beside those that are measured"
    )


def beside(inputs, picture, label: int, index: int, expected: str) -> Tensor:
    """Return a picture and the index-th image of a class of the data set, (2, C, H, W) in [0, 1].

    ValueError if that image is the picture itself; its message ends with `expected`.
    """
    other, _ = inputs.dataset.nth_of_class(label, index)
    images = torch.cat([picture.image.cpu(), to_float(other)])
    if torch.equal(images[0], images[1]):
        raise ValueError(
            f"image {index} of class {inputs.dataset.classes[label]} is the picture itself: "
            f"expected {expected}"
        )
    return images


def class_of(inputs, picture) -> int:
    """Return the true class of a picture, or the predicted class if it is unknown."""
    known = picture.label is not None
    return picture.label if known else int(scores(inputs.model, picture.image).argmax())


def other_class(classes: Sequence[str], chosen: int | None, inputs, picture) -> int:
    """Return the number of a class given by name or number.

    For None, return the next class after the picture's that has images.
    """
    if chosen is None:
        own, J = class_of(inputs, picture), len(classes)
        there = {*inputs.dataset.labels.ravel().tolist()}
        return next((k % J for k in range(own + 1, own + J) if k % J in there), (own + 1) % J)
    return classes.index(str(chosen)) if str(chosen) in classes else chosen


def training_images(inputs, count: int) -> dict:
    """Return up to `count` training images of each class, always the same random ones.

    The dict has fit_images (M, C, H, W) in [0, 1] and fit_labels (M,). It is empty if there is no
    training split, or if the analysis measures that split.
    """
    if inputs.dataset.split == "train":
        return {}
    try:
        part = inputs.load("train").single()
    except (FileNotFoundError, ValueError):
        return {}
    draw = torch.randperm(len(part), generator=torch.Generator().manual_seed(0))
    ordered = part.labels[draw]
    chosen = [draw[ordered == k][:count] for k in range(len(part.classes))]
    part = part.take(torch.cat(chosen))
    return {"fit_images": to_float(part.images), "fit_labels": part.labels}


def halves(labels: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Split every class in two halves; return the rows to measure and to fit on, in both orders.

    The halves replace training images if there are none.
    """
    of_classes = [np.flatnonzero(labels == k) for k in np.unique(labels)]
    one, two = (np.sort(np.concatenate([own[side::2] for own in of_classes])) for side in (0, 1))
    return [(one, two), (two, one)]
