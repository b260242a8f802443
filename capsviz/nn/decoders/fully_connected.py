"""The paper's decoder: two fully connected layers of ReLUs, then a sigmoid for each pixel.

Figure 2 of Sabour, Frosst & Hinton (2017), arXiv:1710.09829.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from torch import nn


def layers(
    inputs: int,
    image_shape: tuple[int, int, int],
    *,
    norm: bool = False,
    hidden: Sequence[int] = (512, 1024),
) -> nn.Sequential:
    """Return layers of `hidden` ReLU units, then one sigmoid unit for each pixel."""
    sizes = [inputs, *hidden]
    stack: list[nn.Module] = []
    for before, after in pairwise(sizes):
        stack.append(nn.Linear(before, after, bias=not norm))
        stack += [nn.BatchNorm1d(after), nn.ReLU()] if norm else [nn.ReLU()]
    last = nn.Linear(sizes[-1], prod(image_shape))
    return nn.Sequential(*stack, last, nn.Sigmoid(), nn.Unflatten(1, image_shape))
