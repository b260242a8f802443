"""A small residual network: torchvision's basic blocks, 16, 32 and 64 channels wide.

The CIFAR network of He, Zhang, Ren & Sun 2016 (arXiv:1512.03385), section 4.2: a 3x3 convolution,
three groups of `blocks` basic blocks at full, half and quarter size, the average over positions.
Three blocks make ResNet-20, with 0.27 M parameters. Shortcuts are 1x1 convolutions if sizes change.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from capsviz.nn.models._bases import Classifier
from capsviz.nn.stems.resnet import residual_groups
from capsviz.validation import Positive, Sizes


@dataclass(frozen=True)
class Config:
    """All settings of the ResNet."""

    image_shape: tuple[int, int, int] = (1, 28, 28)  # C, H, W
    classes: int = 10
    channels: Sizes = (16, 32, 64)  # of the groups
    blocks: Positive = 3  # in each group


class ResNet(Classifier):
    """Convolution and batch norm, groups of residual blocks, the average, one linear layer."""

    def __init__(self, image_shape: tuple[int, int, int], classes: int, **options):
        super().__init__(Config, image_shape, classes, options)
        settings = self.settings
        width = settings.channels[0]
        self.stem = nn.Sequential(
            nn.Conv2d(settings.image_shape[0], width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        )
        self.width = 4 * settings.blocks * width
        self.groups = residual_groups(width, settings.channels, settings.blocks)
        self.classes = nn.Linear(settings.channels[-1], settings.classes)

    def scores(self, images: Tensor) -> Tensor:
        """Return logits (B, J) of images (B, C, H, W)."""
        return self.classes(self.groups(self.stem(images)).mean((2, 3)))


build = ResNet
