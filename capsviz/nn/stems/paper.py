"""The two 9x9 convolutions of CapsNet (Sabour, Frosst & Hinton 2017, arXiv:1710.09829, section 4).

With squashed capsules the network `capsnet` has these as `conv1` and `primary`; this file serves
routings whose children are no squashed vectors.
"""

import torch
from torch import Tensor, nn

from capsviz.nn.convolution import convolve
from capsviz.nn.stems import Stem

KERNEL, CHANNELS = 9, 256
LAYERS = ((KERNEL, 1, 0), (KERNEL, 2, 0))


class Paper(Stem):
    """5.3 M weights for the 32 types of 8 dimensions of the paper."""

    final = "primary"

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        types: int,
        dimensions: int,
        channels: int = CHANNELS,
    ):
        super().__init__()
        self.inner = channels
        self.conv1 = nn.Conv2d(image_shape[0], channels, KERNEL)
        self.primary = nn.Conv2d(channels, types * dimensions, KERNEL, 2)
        self.to(memory_format=torch.channels_last)

    def before(self, images: Tensor) -> Tensor:
        """After the first convolution and ReLU."""
        return convolve(images, self.conv1.weight, self.conv1.bias).relu()

    def last(self, features: Tensor) -> Tensor:
        """The second convolution."""
        return convolve(features, self.primary.weight, self.primary.bias, 2)


build = Paper
