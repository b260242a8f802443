"""ConvNet with average pooling: CapsNet's two convolutions, the mean over positions, ten classes.

The baseline of Gu, Tresp & Hu 2021 (arXiv:2103.15459), with about 5.3 M parameters, CapsNet's 9x9
kernels and no weight that depends on a position. They find it more robust to affine transformations
than CapsNet.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from capsviz.nn.models._bases import PlainClassifier
from capsviz.validation import Positive


@dataclass(frozen=True)
class Config:
    """All settings of the ConvNet."""

    image_shape: tuple[int, int, int] = (1, 28, 28)  # C, H, W
    classes: int = 10
    kernel: Positive = 9  # pixels
    channels: tuple[Positive, Positive] = (256, 256)
    strides: tuple[Positive, Positive] = (1, 2)


class AverageConvNet(PlainClassifier):
    """Two convolutions with ReLU, the average over all positions, one linear layer."""

    def __init__(self, image_shape: tuple[int, int, int], classes: int, **options):
        super().__init__(Config, image_shape, classes, options)
        settings = self.settings
        channels, height, width = settings.image_shape
        k, (first, second), (step1, step2) = settings.kernel, settings.channels, settings.strides
        if min(height, width) < k + (k - 1) * step1:
            raise ValueError(
                f"images of {height} x {width} are too small for two {k}x{k} convolutions: "
                f"expected at least {k + (k - 1) * step1} pixels"
            )
        self.width = first + second
        self.conv1 = nn.Conv2d(channels, first, k, step1)
        self.conv2 = nn.Conv2d(first, second, k, step2)
        self.classes = nn.Linear(second, settings.classes)

    def scores(self, images: Tensor) -> Tensor:
        """Return logits (B, J) of images (B, C, H, W)."""
        features = self.conv2(self.conv1(images).relu()).relu()
        return self.classes(features.mean((2, 3)))


build = AverageConvNet
