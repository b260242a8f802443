"""A small decoder: a coarse map from the pose, and transposed convolutions that refine it.

After the deconvolution decoder of ethanleet/CapsNet, built for any image size: the map is a quarter
of the image wide and high, and two transposed convolutions of stride 2 double it, to odd sizes too.
"""

import torch
from torch import nn

MAPS = (16, 64, 32)  # at a quarter of the image's size, at half of it, and at its own
KERNEL = 5  # pixels; with stride 2 and a padding of 2 it reaches every size


def layers(inputs: int, image_shape: tuple[int, int, int], *, norm: bool = False) -> nn.Sequential:
    """A linear layer to the coarse map, two transposed convolutions, and one to the pixels."""
    channels, *full = image_shape
    half = [(side + 1) // 2 for side in full]
    coarse = [(side + 1) // 2 for side in half]
    first, second, third = MAPS
    decoder = nn.Sequential(
        nn.Linear(inputs, first * coarse[0] * coarse[1], bias=not norm),
        nn.Unflatten(1, (first, *coarse)),
        *_rectified(first, norm),
        _doubling(first, second, half, norm),
        *_rectified(second, norm),
        _doubling(second, third, full, norm),
        *_rectified(third, norm),
        nn.ConvTranspose2d(third, channels, 3, padding=1),
        nn.Sigmoid(),
    )
    return decoder.to(memory_format=torch.channels_last)


def _rectified(maps: int, norm: bool) -> list[nn.Module]:
    return [nn.BatchNorm2d(maps), nn.ReLU()] if norm else [nn.ReLU()]


def _doubling(before: int, after: int, size: list[int], norm: bool) -> nn.ConvTranspose2d:
    """From half of `size`, rounded up, to `size`."""
    rows, columns = (1 - side % 2 for side in size)
    return nn.ConvTranspose2d(before, after, KERNEL, 2, KERNEL // 2, (rows, columns), bias=not norm)
