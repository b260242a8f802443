"""A stem of the capsule networks without capsules: the average over positions, one linear layer.

This is the baseline for a routing on the same stem. It uses the features before the last layer,
which makes the capsules.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from capsviz.nn import stems
from capsviz.nn.models._bases import Classifier
from capsviz.validation import Positive


@dataclass(frozen=True)
class Config:
    """All settings of the network."""

    image_shape: tuple[int, int, int] = (1, 28, 28)  # C, H, W
    classes: int = 10
    stem: str = "slim"  # a file in capsviz/nn/stems
    types: Positive = 16  # capsule types of the stem, which set the width of the slim stem
    primary_dimensions: Positive = 8


class Pooled(Classifier):
    """Features of a stem, their average over all positions, one linear layer."""

    def __init__(self, image_shape: tuple[int, int, int], classes: int, **options):
        super().__init__(Config, image_shape, classes, options)
        settings = self.settings
        sizes = settings.types, settings.primary_dimensions
        self.stem = stems.build(settings.stem, settings.image_shape, *sizes)
        delattr(self.stem, self.stem.final)  # unused by `before`
        self.width = self.stem.inner
        self.classes = nn.Linear(self.width, settings.classes)

    def scores(self, images: Tensor) -> Tensor:
        """Return logits (B, J) of images (B, C, H, W)."""
        return self.classes(self.stem.before(images).mean((2, 3)))


build = Pooled
