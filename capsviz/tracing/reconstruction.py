"""How far a network's own reconstruction is from an image, with gradients.

Frosst, Sabour & Hinton (2018), arXiv:1811.06969: the winning capsule reconstructs the image as its
class; where that is far from the image, the image is suspect.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from capsviz.tracing.record import last_activations


def distance(images: Tensor, reconstructions: Tensor) -> Tensor:
    """L2 norm (N,) of the pixel difference of images and reconstructions, both (N, C, H, W)."""
    return (images - reconstructions).flatten(1).norm(dim=1)


def look(model: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """Activations (N, J) and the distance (N,) to the winning capsule's reconstruction.

    Gradients reach the images, unless they are switched off.

    Raises
    ------
    ValueError  for a network without capsules or without a decoder.
    """
    require_capsules(model)
    look: Callable[..., dict[str, Tensor]] = getattr(model, "look")  # noqa: B009
    parts = look(images, keep=("lengths", "reconstruction"))
    reconstruction = require_reconstruction(parts.get("reconstruction"))
    activations = last_activations(parts)
    assert activations is not None
    return activations, distance(images, reconstruction)


def require_capsules(model: nn.Module) -> None:
    """ValueError for a network without capsules."""
    if not hasattr(model, "look"):
        raise ValueError(
            "this network has no capsules, so none can win: expected a capsule network"
        )


def require_reconstruction(reconstruction: Tensor | None) -> Tensor:
    """The reconstruction, if a network made one; ValueError otherwise."""
    if reconstruction is None:
        raise ValueError("this network has no decoder, so there is no reconstruction to compare")
    return reconstruction
