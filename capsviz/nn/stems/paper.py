"""The two 9x9 convolutions of CapsNet (Sabour, Frosst & Hinton 2017, arXiv:1710.09829, section 4).

The network `capsnet` uses this file for routings whose children are not squashed vectors. With
squashed vectors it has the same layers as `conv1` and `primary`.
"""

from torch import Tensor

from capsviz.nn.convolution import Convolution
from capsviz.nn.stems import Stem

KERNEL, CHANNELS = 9, 256
LAYERS = ((KERNEL, 1, 0), (KERNEL, 2, 0))


class Paper(Stem):
    """Two convolutions: 5.3 M weights for the paper's 32 types of 8 dimensions."""

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
        self.conv1 = Convolution(image_shape[0], channels, KERNEL)
        self.primary = Convolution(channels, types * dimensions, KERNEL, 2)

    def before(self, images: Tensor) -> Tensor:
        """Return the features after the first convolution and ReLU."""
        return self.conv1(images).relu()


build = Paper
