"""Layers that make primary capsules: a squash, a norm, or poses with separate activations.

The file of a routing names one of `KINDS` as CHILDREN. Either the length of a capsule is its
activation (a squash), or the activation is separate from a pose of any length.
"""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from capsviz.nn.computation import normed
from capsviz.nn.convolution import Convolution
from capsviz.nn.functional import squash, squash_exp


class Capsules(NamedTuple):
    """Poses and activations of a layer of capsules."""

    poses: Tensor  # (B, I, D)
    activations: Tensor | None = None  # (B, I) in [0, 1]; None: the poses' lengths


def lay_out(features: Tensor, types: int) -> Tensor:
    """Reshape features (B, types * D, rows, columns) to capsules (B, types * rows * columns, D).

    Capsule i = (type * rows + row) * columns + column holds the D channels of one type at one
    position.
    """
    B, channels, rows, columns = features.shape
    capsules = features.reshape(B, types, channels // types, rows, columns).movedim(2, 4)
    return capsules.reshape(B, types * rows * columns, channels // types)


class PrimaryCapsules(nn.Module):
    """A convolution whose channels are laid out as capsules and squashed (arXiv:1710.09829, 4).

    There is no ReLU before the squash.

    Parameters
    ----------
    channels    of the incoming feature map.
    types       capsule types (32 in the paper).
    dimensions  D, of one capsule (8 in the paper).
    kernel      pixels, of the square kernel.
    stride      pixels.
    scale       factor on the convolution before bias and squash: 1 in the paper's text, 1/types in
                the authors' code, whose softmax couples one input to all types. If that softmax is
                leaky (has a "none of them" class), the factor is 1/(types + 1).
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
        self.types, self.scale = types, scale
        self.convolution = Convolution(channels, types * dimensions, kernel, stride, scale)

    def forward(self, features: Tensor) -> Tensor:
        """Return squashed capsules (B, I, D), float32 at least, of features (B, channels, h, w)."""
        out = lay_out(self.convolution(features), self.types)
        return squash(out.to(torch.promote_types(self.convolution.weight.dtype, torch.float32)))


SQUASHES = {"squash": squash, "squash_exp": squash_exp}
Kind = Literal["squash", "squash_exp", "layer_norm", "batch_norm", "free"]
KINDS = get_args(Kind)
WITH_LOGITS = ("batch_norm", "free")


class ToCapsules(nn.Module):
    """Turn features into capsules, by one of `KINDS`.

    squash, squash_exp  vectors whose length is their activation.
    layer_norm          each pose has mean 0 and variance 1, then one gain and shift; activations
                        are 1 (arXiv:2002.04764).
    batch_norm          poses, and activations as the sigmoid of separate logits. Both have batch
                        norm without gain and shift (self-routing, variational).
    free                the same without a norm. Logits are reduced by 1, so that the capsules of an
                        untrained network are not half active (EM, the authors' code).
    """

    def __init__(self, kind: str, types: int, dimensions: int):
        super().__init__()
        self.kind, self.types = kind, types
        if kind == "layer_norm":
            self.norm = nn.LayerNorm(dimensions)
        if kind == "batch_norm":
            self.poses = nn.BatchNorm2d(types * dimensions, affine=False)
            self.logits = nn.BatchNorm2d(types, affine=False)

    def forward(self, features: Tensor, logits: Tensor | None = None) -> Capsules:
        """Return capsules; kinds `WITH_LOGITS` also need logits (B, types, rows, columns)."""
        if self.kind == "batch_norm" and logits is not None:
            features, logits = normed(self.poses, features), normed(self.logits, logits)
        poses = lay_out(features, self.types)
        if self.kind in SQUASHES:
            return Capsules(SQUASHES[self.kind](poses))
        if self.kind == "layer_norm":
            poses = normed(self.norm, poses)
            return Capsules(poses, torch.ones_like(poses[..., 0]))
        assert logits is not None
        logits = logits - 1 if self.kind == "free" else logits
        return Capsules(poses, logits.flatten(1).sigmoid())
