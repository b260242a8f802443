"""Decoders: from the masked class poses back to an image."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from torch import Tensor, nn

from capsviz.functional import mask


class FullyConnected(nn.Module):
    """The paper's decoder: 512 and 1,024 ReLU units, then a sigmoid for each pixel (figure 2).

    Parameters
    ----------
    classes, dimensions  J and E of the poses.
    image_shape          (C, H, W) of the reconstruction.
    hidden               units of the hidden layers.
    """

    def __init__(
        self,
        classes: int,
        dimensions: int,
        image_shape: tuple[int, int, int],
        hidden: Sequence[int] = (512, 1024),
    ):
        super().__init__()
        self.image_shape = tuple(image_shape)
        sizes = [classes * dimensions, *hidden]
        layers = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], prod(image_shape)), nn.Sigmoid())

    def forward(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Poses (B, J, E), of which `classes` (B,) are kept, -> images (B, C, H, W) in [0, 1]."""
        flat = self.layers(mask(poses, classes))
        return flat.to(poses.dtype).reshape(-1, *self.image_shape)
