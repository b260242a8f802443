"""Layers that make primary capsules: a squash, a norm, or poses with separate activations.

The file of a routing names its own as CHILDREN: where a capsule's length is its activation, that is
a squash; elsewhere a free pose has an activation beside it.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from capsviz.discovery import unknown
from capsviz.nn.computation import normed
from capsviz.nn.convolution import Convolution
from capsviz.nn.functional import squash, squash_exp


class Capsules(NamedTuple):
    """Capsules of a layer, and what else they say."""

    poses: Tensor  # (B, I, D)
    activations: Tensor | None = None  # (B, I) in [0, 1]; None: the poses' lengths


def lay_out(features: Tensor, types: int) -> Tensor:
    """Features (B, types * D, rows, columns) -> (B, types * rows * columns, D).

    A capsule is D channels of one type at one position: index i = (type * rows + row) * columns +
    column.
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
        self.types, self.scale = types, scale
        self.convolution = Convolution(channels, types * dimensions, kernel, stride, scale)

    def forward(self, features: Tensor) -> Tensor:
        """Feature map (B, channels, h, w) -> capsules (B, I, D), squashed, float32 at least."""
        out = lay_out(self.convolution(features), self.types)
        return squash(out.to(torch.promote_types(self.convolution.weight.dtype, torch.float32)))


class Squashed(nn.Module):
    """Vectors whose length is their activation."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, features: Tensor, types: int, logits: Tensor | None) -> Capsules:
        """Features -> squashed capsules."""
        return Capsules(self.function(lay_out(features, types)))


class Normalised(nn.Module):
    """Layer norm of every pose, with one gain and shift: no activation (arXiv:2002.04764)."""

    def __init__(self, dimensions: int):
        super().__init__()
        self.norm = nn.LayerNorm(dimensions)

    def forward(self, features: Tensor, types: int, logits: Tensor | None) -> Capsules:
        """Features -> poses of mean 0 and variance 1 before gain and shift, activations 1."""
        poses = normed(self.norm, lay_out(features, types))
        return Capsules(poses, torch.ones_like(poses[..., 0]))


class Activated(nn.Module):
    """Free poses with an activation beside them, the logistic of features of its own.

    norm  batch norm of both, without gain and shift (self-routing, variational Bayes); else the
          logistic's argument is less 1, so that a new network's capsules are not half on (EM, the
          authors' code).
    """

    def __init__(self, types: int, dimensions: int, *, norm: bool):
        super().__init__()
        self.poses = nn.BatchNorm2d(types * dimensions, affine=False) if norm else None
        self.logits = nn.BatchNorm2d(types, affine=False) if norm else None

    def forward(self, features: Tensor, types: int, logits: Tensor) -> Capsules:
        """Features and logits (B, types, rows, columns) -> poses and activations."""
        if self.poses is not None and self.logits is not None:
            features, logits = normed(self.poses, features), normed(self.logits, logits)
        else:
            logits = logits - 1
        return Capsules(lay_out(features, types), logits.flatten(1).sigmoid())


KINDS = ("squash", "squash_exp", "layer_norm", "batch_norm", "free")
WITH_LOGITS = ("batch_norm", "free")


def build(kind: str, types: int, dimensions: int) -> nn.Module:
    """Return what makes capsules of features; ValueError for an unknown kind."""
    if kind not in KINDS:
        raise ValueError(unknown("children", kind, list(KINDS)))
    if kind == "layer_norm":
        return Normalised(dimensions)
    if kind in WITH_LOGITS:
        return Activated(types, dimensions, norm=kind == "batch_norm")
    return Squashed(squash if kind == "squash" else squash_exp)
