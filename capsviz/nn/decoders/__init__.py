"""Decoders: each file here reconstructs images from masked class poses.

A file offers `layers(inputs, image_shape, *, norm=False) -> nn.Sequential`, which maps (B, inputs),
zero except for one class's pose, to pixels in [0, 1], (B, C, H, W). `norm` adds batch norm to the
hidden layers. To add a decoder, add a file; its name is a value of CapsNet's option `decoder`.
"""

import torch
from torch import Tensor, nn

from capsviz.discovery import load, names, parameters
from capsviz.nn.functional import mask


def available() -> list[str]:
    """Return the names of the decoders."""
    return names("capsviz.nn.decoders")


class Decoder(nn.Module):
    """Reconstruct an image from the pose of one class.

    Parameters
    ----------
    name                 of a file in `capsviz/nn/decoders`.
    classes, dimensions  J and E of the poses.
    image_shape          (C, H, W) of the reconstruction.
    norm                 batch norm before the ReLU of every hidden layer.
    options              of that file, e.g. `hidden` of "fully_connected".
    """

    def __init__(
        self,
        name: str,
        classes: int,
        dimensions: int,
        image_shape: tuple[int, int, int],
        *,
        norm: bool = False,
        **options,
    ):
        super().__init__()
        module = load("capsviz.nn.decoders", name, what="decoder")
        self.image_shape, self.norm = tuple(image_shape), norm
        inputs = classes * dimensions
        if "norm" not in parameters(getattr(module, "layers", None)):
            raise ValueError(
                f"the decoder '{name}' has no function layers(inputs, image_shape, *, norm=False)"
            )
        self.layers = module.layers(inputs, self.image_shape, norm=norm, **options)
        if not isinstance(self.layers, nn.Sequential):
            kind = type(self.layers).__name__
            raise ValueError(
                f"`layers` of the decoder '{name}' gives a {kind}, expected an nn.Sequential"
            )

    def forward(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Decode poses (B, J, E), all but those of `classes` (B,) set to zero.

        Returns images (B, C, H, W) in [0, 1], float32 at least.
        """
        if self.norm and self.training and len(poses) == 1:
            raise ValueError(
                "the decoder's batch norm needs at least 2 images in every training batch, got 1: "
                "choose another batch size, or a decoder without batch norm"
            )
        masked = mask(poses, classes)
        masked = masked.to(next(self.layers.parameters(), masked).dtype)  # quantised: no parameters
        drawn = self.layers(masked).to(torch.promote_types(poses.dtype, torch.float32))
        if tuple(drawn.shape[1:]) != self.image_shape:
            raise ValueError(
                f"the decoder gives {tuple(drawn.shape)}, expected images (B, {self.image_shape})"
            )
        return drawn

    @property
    def activations(self) -> int:
        """Estimate how many numbers are stored for one image."""
        _, height, width = self.image_shape
        units = sum(m.out_features for m in self.layers if isinstance(m, nn.Linear))
        maps = [m for m in self.layers if isinstance(m, nn.Conv2d | nn.ConvTranspose2d)]
        return units + sum(m.out_channels for m in maps) * height * width
