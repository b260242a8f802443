"""The stem of Efficient-CapsNet: four small convolutions and a depthwise one (Mazzia et al. 2021).

arXiv:2101.12491 and the authors' code. 32 kernels of 5x5, then 64, 64 and 128 of 3x3, the last
with stride 2, all without padding. ReLU and then batch norm follow each. At the end there is one
linear 9x9 kernel for each channel. Weights are drawn from He's normal distribution.
"""

import torch
from torch import Tensor, nn

from capsviz.nn.computation import channels_last
from capsviz.nn.stems import Stem

CHANNELS = (32, 64, 64)
KERNEL = 9  # of the depthwise convolution
LAYERS = ((5, 1, 0), (3, 1, 0), (3, 1, 0), (3, 2, 0), (KERNEL, 1, 0))


class Slim(Stem):
    """A slim stem: 141,184 weights for grey images and the paper's 16 types of 8 dimensions."""

    final = "depthwise"

    def __init__(self, image_shape: tuple[int, int, int], types: int, dimensions: int):
        super().__init__()
        self.inner = types * dimensions
        width, body = image_shape[0], []
        for after, (kernel, stride, _) in zip((*CHANNELS, self.inner), LAYERS, strict=False):
            body += [
                nn.Conv2d(width, after, kernel, stride),
                nn.ReLU(),
                nn.BatchNorm2d(after, eps=1e-3),
            ]
            width = after
        self.body = nn.Sequential(*body)
        self.depthwise = nn.Conv2d(width, width, KERNEL, groups=width)
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and module.bias is not None:
                nn.init.kaiming_normal_(module.weight)
                nn.init.zeros_(module.bias)
        self.to(memory_format=torch.channels_last)

    def before(self, images: Tensor) -> Tensor:
        """Return the features before the depthwise convolution."""
        return self.body(channels_last(images))


build = Slim
