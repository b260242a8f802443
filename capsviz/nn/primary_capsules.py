"""Primary capsules: a convolution whose channels are laid out as capsules, and squashed."""

import torch
from torch import Tensor, nn

from capsviz.nn.children import lay_out
from capsviz.nn.convolution import convolve
from capsviz.nn.functional import squash


class PrimaryCapsules(nn.Module):
    """Convolutional capsules without routing (section 4 of arXiv:1710.09829).

    A convolution gives types x dimensions channels. A capsule is `dimensions` channels of one type
    at one position: index i = (type * rows + row) * columns + column. There is no ReLU before the
    squash.

    Parameters
    ----------
    channels    of the incoming feature map.
    types       capsule types (32 in the paper).
    dimensions  D, of one capsule (8 in the paper).
    kernel      pixels, of the square kernel.
    stride      pixels.
    scale       factor on the convolution before bias and squash: 1 in the paper's text, 1/types in
                the authors' code, where a softmax over types couples one input to all of them
                (1/(types + 1) if it is leaky: over "none of them" too).
    """

    def __init__(
        self,
        channels: int,
        *,
        types: int = 32,
        dimensions: int = 8,
        kernel: int = 9,
        stride: int = 2,
        scale: float = 1.0,
    ):
        super().__init__()
        self.types, self.dimensions, self.scale = types, dimensions, scale
        convolution = nn.Conv2d(channels, types * dimensions, kernel, stride)
        self.convolution = convolution.to(memory_format=torch.channels_last)

    def forward(self, features: Tensor) -> Tensor:
        """Feature map (B, channels, h, w) -> capsules (B, I, D), squashed, float32 at least."""
        conv = self.convolution
        weight = conv.weight if self.scale == 1 else conv.weight * self.scale
        out = convolve(features, weight, conv.bias, conv.stride[0])
        return squash(
            lay_out(out, self.types).to(torch.promote_types(conv.weight.dtype, torch.float32))
        )
