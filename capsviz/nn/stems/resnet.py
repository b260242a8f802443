"""A ResNet-20 as stem: its last map, cut into capsules along the channels.

He, Zhang, Ren & Sun 2016 (arXiv:1512.03385), section 4.2, as the network `resnet` without its
average and its classes: 16, 32, 64 channels at full, half and quarter size. A capsule is
`dimensions` channels of the last map at one position, after a 1x1 convolution gives them signs.
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
    """0.27 M weights; 8 types of 8 dimensions take each of the last 64 channels once."""

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
        """The last map."""
        return self.body(channels_last(images))


build = Residual


def residual_groups(width: int, channels: tuple[int, ...], blocks: int) -> nn.Sequential:
    """Groups of `blocks` basic blocks, each group after the first at half the size before it."""
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
    """torchvision's `BasicBlock`, whose import takes two seconds and 150 MB."""

    def __init__(self, width: int, after: int, stride: int = 1, shortcut: nn.Module | None = None):
        super().__init__()
        self.conv1 = nn.Conv2d(width, after, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Two convolutions (B, C, h, w), and what they are added to."""
        out = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu_()))
        out += x if self.downsample is None else self.downsample(x)
        return out.relu_()
