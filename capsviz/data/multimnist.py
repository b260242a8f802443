"""MultiMNIST: two overlapping digits of different classes in each image, 36x36; made from MNIST.

Section 6 of Sabour, Frosst & Hinton (2017, arXiv:1710.09829): each digit is shifted by up to 4
pixels in each direction, and combined with another one of the same split. The 28x28 frames of both
overlap by 80 % on average; the paper says so of the digits' 20x20 boxes, which overlap by 73 %. The
image is the sum of both, clipped at 255, as in the authors' generator (Sarasra/models,
research/capsules, mnist_shift.py). The shifts are the paper's; the authors' training files go up to
6 pixels. The order of the digits is random; in their files the digit that the other was chosen for
comes first.
"""

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from capsviz.data import Dataset, mnist
from capsviz.data._made import draws, several

SHIFT_PX = 4  # at most; the canvas has that margin, so that no pixel of a frame is lost
IMAGE_SHAPE, CLASSES = (1, 36, 36), mnist.CLASSES


def load(split, root=None, *, download=True, pairs=1, seed=0):
    """Make `pairs` images (1, 36, 36) for every MNIST digit: first one of each, then another.

    The first n images are the same whatever the number of pairs (the paper has 1,000). MemoryError
    if they do not fit.
    """
    return several(partial(make, seed=seed), "multimnist", split, root, download, pairs=pairs)


def make(plain: Dataset, pair: int = 0, *, seed: int = 0) -> Dataset:
    """Combine every digit of a split with another one: images (N, C, H + 8, W + 8), parts, labels.

    `pair` says which of the many partners of each digit, from 0. ValueError if all digits are of
    one class.
    """
    generator = draws(plain.split, pair, seed)
    n, (_, height, width) = len(plain), plain.image_shape
    both = torch.stack([torch.arange(n), partners(plain.labels, generator=generator)], 1)
    swapped = torch.rand(n, generator=generator) < 0.5
    both[swapped] = both[swapped].flip(1)
    size = 2 * SHIFT_PX + 1  # shifts in each direction
    down, right = torch.randint(0, size, (2, n, 2), generator=generator)
    canvas = pad(plain.images, (2 * SHIFT_PX,) * 4)
    places = canvas.unfold(2, height + size - 1, 1).unfold(3, width + size - 1, 1)  # no copy
    parts = places[both, :, down, right]  # (N, 2, C, H + 8, W + 8)
    first, second = parts.unbind(1)
    images = first + torch.minimum(second, 255 - first)  # a sum of uint8 that ends at 255
    return Dataset(
        images, plain.labels[both], plain.classes, "multimnist", plain.split, parts=parts
    )


def partners(labels: Tensor, *, generator: torch.Generator) -> Tensor:
    """Draw for each label (N,) the index (N,) of one of another class, all equally likely."""
    order = labels.argsort(stable=True)
    counts = labels.bincount()
    others = len(labels) - counts
    if others[labels].min() < 1:
        raise ValueError(f"digits of different classes are needed, got {counts.tolist()} of each")
    uniform = torch.rand(len(labels), dtype=torch.float64, generator=generator)
    drawn = (uniform * others[labels]).long()
    start = counts.cumsum(0) - counts  # where a class begins in `order`: jump over one's own
    return order[drawn + (drawn >= start[labels]) * counts[labels]]
