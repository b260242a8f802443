"""A small decoder: a coarse map from the pose, and transposed convolutions that refine it.

It follows the deconvolution decoder of ethanleet/CapsNet, for any image size. The map has a quarter
of the image's width and height; two transposed convolutions of stride 2 each double it.
"""

import torch
from torch import nn

MAPS = (16, 64, 32)  # channels at a quarter, at half and at the full size of the image
KERNEL = 5  # pixels; with stride 2 and padding 2, any output size is possible


def layers(inputs: int, image_shape: tuple[int, int, int], *, norm: bool = False) -> nn.Sequential:
    """Return a linear layer, two transposed convolutions of stride 2, and one to the pixels."""
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
    """Return a layer from half of `size`, rounded up, to `size`."""
    rows, columns = (1 - side % 2 for side in size)
    return nn.ConvTranspose2d(before, after, KERNEL, 2, KERNEL // 2, (rows, columns), bias=not norm)
