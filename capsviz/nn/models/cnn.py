"""The paper's baseline CNN: three wide convolutions, two fully connected layers, dropout.

Sabour, Frosst & Hinton 2017 (arXiv:1710.09829), section 5: 256, 256 and 128 channels of 5x5 kernels
with stride 1, then 328 and 192 units, then dropout and a softmax. Only convolutions padded to keep
the image's size give the paper's 35.4 M parameters. Gu, Tresp & Hu 2021 (arXiv:2103.15459) find the
5x5 kernels a handicap. With CapsNet's 9x9 kernels and without padding, the network has 8.7 M
parameters for 28x28 images (CapsNet: 8.2 M).
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn

from capsviz.nn.models._bases import PlainClassifier
from capsviz.validation import Part, Positive, Sizes


@dataclass(frozen=True)
class Config:
    """All settings of the CNN."""

    image_shape: tuple[int, int, int] = (1, 28, 28)  # C, H, W
    classes: int = 10
    kernel: Positive = 5  # pixels; CapsNet's are 9
    padding: Literal["same", "valid"] = "same"  # "valid": no padding, as in CapsNet
    channels: Sizes = (256, 256, 128)
    hidden: Sizes = (328, 192)
    dropout: Part = 0.5  # before the last layer


class CNN(PlainClassifier):
    """Convolutions and fully connected layers with ReLU, dropout, and a linear class layer."""

    def __init__(self, image_shape: tuple[int, int, int], classes: int, **options):
        super().__init__(Config, image_shape, classes, options)
        settings = self.settings
        rows, columns = _check(settings)
        self.width = sum(settings.channels)
        layers: list[nn.Module] = []
        for before, after in pairwise((settings.image_shape[0], *settings.channels)):
            layers += [nn.Conv2d(before, after, settings.kernel, padding=settings.padding)]
            layers += [nn.ReLU()]
        layers += [nn.Flatten()]
        for before, after in pairwise((settings.channels[-1] * rows * columns, *settings.hidden)):
            layers += [nn.Linear(before, after), nn.ReLU()]
        layers += [nn.Dropout(settings.dropout), nn.Linear(settings.hidden[-1], settings.classes)]
        self.layers = nn.Sequential(*layers)

    def scores(self, images: Tensor) -> Tensor:
        """Return logits (B, J) of images (B, C, H, W)."""
        return self.layers(images)


def _check(settings: Config) -> tuple[int, int]:
    """Return rows and columns after the convolutions; ValueError if there are none."""
    lost = (settings.kernel - 1) * len(settings.channels) if settings.padding == "valid" else 0
    rows, columns = (side - lost for side in settings.image_shape[1:])
    if min(rows, columns) < 1:
        raise ValueError(
            f"images of {settings.image_shape[1]} x {settings.image_shape[2]} are too small for "
            f"{len(settings.channels)} unpadded {settings.kernel}x{settings.kernel} convolutions: "
            f"expected at least {lost + 1} x {lost + 1}, or padding 'same'"
        )
    return rows, columns


build = CNN
