"""Make data sets of MNIST's images: several random variants of each, drawn from a seed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from capsviz import memory
from capsviz.data import SPLITS, Dataset, mnist


def draws(split: str, number: int, seed: int) -> torch.Generator:
    """Return the random generator of the variants with this number (one of each image)."""
    whole = (seed * 1_000_003 + SPLITS.index(split)) * 1_000_003 + number
    return torch.Generator().manual_seed(whole % 2**63)


def several(
    make: Callable[[Dataset, int], Dataset], name: str, split: str, root, download, **counted: int
) -> Dataset:
    """Join `make(mnist, number)` of a split of MNIST for number 0, 1, ... below a count.

    `counted` is the option of the data set that holds the count, by its name. ValueError for a
    count below 1, MemoryError if the images do not fit into memory.
    """
    ((option, count),) = counted.items()
    if count < 1:
        raise ValueError(f"{option} of the data set '{name}' must be at least 1, got {count}")
    plain = mnist.load(split, root, download=download)
    made = [make(plain, 0)]
    tensors = {field: getattr(made[0], field) for field in ("images", "labels", "parts")}
    tensors = {field: one for field, one in tensors.items() if one is not None}
    size = 2 * count * sum(one.nbytes for one in tensors.values())  # the parts and the joined copy
    what = f"{name} {split} with {count:,} {option} of each image"
    memory.require(size, what, f"ask for fewer {option}")
    made += [make(plain, number) for number in range(1, count)]
    joined: Any = {field: torch.cat([getattr(one, field) for one in made]) for field in tensors}
    return replace(made[0], **joined)
