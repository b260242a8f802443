"""MultiMNIST: two overlapping digits of different classes in each image, 36x36; made from MNIST.

Section 6 of Sabour, Frosst & Hinton (2017, arXiv:1710.09829): each digit is shifted by up to 4
pixels in each direction, and combined with another digit of the same split. The image is the sum of
both, clipped at 255, as in the authors' generator (Sarasra/models, research/capsules,
mnist_shift.py).

Differences: the 28x28 frames overlap by 80 % on average, but the digits' 20x20 boxes, for which the
paper states 80 %, by 73 %. Shifts are the paper's; the authors' training files have up to 6 pixels.
The order of the two digits is random; in the authors' files the digit that is drawn first comes
first.
"""

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from capsviz.data import Dataset, mnist
from capsviz.data._made import draws, several

SHIFT_PX = 4  # largest shift, and margin of the canvas, so that no pixel of a frame is lost
IMAGE_SHAPE, CLASSES = (1, 36, 36), mnist.CLASSES


def load(split, root=None, *, download=True, pairs=1, seed=0):
    """Make `pairs` images (1, 36, 36) for every MNIST digit: first one of each, then another.

    The first n images do not depend on the number of pairs (1,000 in the paper). MemoryError if
    they do not fit.
    """
    return several(partial(make, seed=seed), "multimnist", split, root, download, pairs=pairs)


def make(plain: Dataset, pair: int = 0, *, seed: int = 0) -> Dataset:
    """Overlay every digit of a split with one of another class: images (N, C, H + 8, W + 8).

    `pair`, from 0, selects one of the random partners of each digit. ValueError if all digits are
    of one class.
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
    images = first + torch.minimum(second, 255 - first)  # sum in uint8, clipped at 255
    return Dataset(
        images, plain.labels[both], plain.classes, "multimnist", plain.split, parts=parts
    )


def partners(labels: Tensor, *, generator: torch.Generator) -> Tensor:
    """Draw for each label (N,) the index (N,) of a label of another class, uniformly."""
    order = labels.argsort(stable=True)
    counts = labels.bincount()
    others = len(labels) - counts
    if others[labels].min() < 1:
        raise ValueError(f"digits of different classes are needed, got {counts.tolist()} of each")
    uniform = torch.rand(len(labels), dtype=torch.float64, generator=generator)
    drawn = (uniform * others[labels]).long()
    start = counts.cumsum(0) - counts  # of each class in `order`; draws from there on skip it
    return order[drawn + (drawn >= start[labels]) * counts[labels]]
