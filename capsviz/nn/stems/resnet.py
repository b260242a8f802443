"""A ResNet-20 as stem: its last map, cut into capsules along the channels.

He, Zhang, Ren & Sun 2016 (arXiv:1512.03385), section 4.2: the network `resnet` without pooling and
classifier. It has 16, 32, 64 channels at full, half and quarter size. A 1x1 convolution then allows
negative numbers; a capsule is `dimensions` of its channels at one position.
"""

import torch
from torch import Tensor, nn

from capsviz.nn.computation import channels_last
from capsviz.nn.stems import Stem

BLOCKS, CHANNELS = 3, (16, 32, 64)
LAYERS = (
    (3, 1, 1),
    *((3, 1, 1),) * (2 * BLOCKS),
    *(((3, 2, 1), *((3, 1, 1),) * (2 * BLOCKS - 1)) * 2),
    (1, 1, 0),
)


class Residual(Stem):
    """A residual stem: 0.27 M weights. 8 types of 8 dimensions match its 64 last channels."""

    final = "capsules"

    def __init__(self, image_shape: tuple[int, int, int], types: int, dimensions: int):
        super().__init__()
        self.inner = CHANNELS[-1]
        width = CHANNELS[0]
        self.body = nn.Sequential(
            nn.Conv2d(image_shape[0], width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            *residual_groups(width, CHANNELS, BLOCKS),
        )
        self.capsules = nn.Conv2d(self.inner, types * dimensions, 1)
        self.to(memory_format=torch.channels_last)

    def before(self, images: Tensor) -> Tensor:
        """Return the last feature map of the ResNet."""
        return self.body(channels_last(images))


build = Residual


def residual_groups(width: int, channels: tuple[int, ...], blocks: int) -> nn.Sequential:
    """Return groups of `blocks` basic blocks; each group after the first halves the size."""
    groups = []
    for number, after in enumerate(channels):
        for block in range(blocks):
            stride, shortcut = 2 if number > 0 and block == 0 else 1, None
            if stride != 1 or width != after:
                shortcut = nn.Sequential(
                    nn.Conv2d(width, after, 1, stride, bias=False), nn.BatchNorm2d(after)
                )
            groups.append(Block(width, after, stride, shortcut))
            width = after
    return nn.Sequential(*groups)


class Block(nn.Module):
    """torchvision's `BasicBlock`, copied because importing it takes two seconds and 150 MB."""

    def __init__(self, width: int, after: int, stride: int = 1, shortcut: nn.Module | None = None):
        super().__init__()
        self.conv1 = nn.Conv2d(width, after, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Return the input (B, C, h, w), or its shortcut, plus two convolutions of it."""
        out = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu_()))
        out += x if self.downsample is None else self.downsample(x)
        return out.relu_()
