"""Networks: each file here is one, found by its name.

A file offers `build(image_shape, classes, **options) -> Module`. The module takes images
(B, C, H, W), float32 in [0, 1], and has
    config                               what `build` needs to make it again, as plain data
    forward(images) -> Output            an output that names its parts, `lengths` (B, J) at least
    objective(output, images, labels)    -> Objective, what training minimises
and, if it is a capsule network, `look` and `decode` (see `capsviz.tracing`).
"""

from typing import NamedTuple

from torch import Tensor, nn

from capsviz.discovery import load, names


class Output(NamedTuple):
    """What a capsule network says of images."""

    lengths: Tensor  # (B, J) one score in [0, 1] per class
    poses: Tensor | None = None  # (B, J, E)
    primary: Tensor | None = None  # (B, I, D)


class Scores(NamedTuple):
    """What a network without capsules says of images."""

    lengths: Tensor  # (B, J) probabilities: what a capsule's length is to a capsule network
    logits: Tensor  # (B, J) before the softmax


class Objective(NamedTuple):
    """What training minimises, and its parts for each image."""

    loss: Tensor  # ()
    margin: Tensor  # (B,)
    reconstruction: Tensor | None = None  # (B,) sum of squared pixel differences


def available() -> list[str]:
    """Names of the networks."""
    return names("capsviz.models")


def build(name: str, image_shape: tuple[int, int, int], classes: int, **options) -> nn.Module:
    """Make a network by its name; ValueError for an unknown name, option or size."""
    return load("capsviz.models", name, what="model").build(image_shape, classes, **options)
