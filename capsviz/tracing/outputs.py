"""What a network says of images and makes of poses, with capsules or without."""

from __future__ import annotations

import torch
from torch import Tensor

from capsviz.nn.images import check_images, like_of
from capsviz.tracing.finite import name, require_finite
from capsviz.tracing.forward import CHUNK_IMAGES, images_at_a_time, trace
from capsviz.tracing.modes import inference

LENGTH = "capsule length"


def reconstructs(model) -> bool:
    """Whether a network has capsules, and decodes them."""
    return hasattr(model, "look") and getattr(model, "decoder", model) is not None


def require_decoder(model) -> None:
    """ValueError for a network whose poses cannot be drawn, before anything is computed."""
    if not reconstructs(model):
        raise ValueError(
            "this network has no decoder, so its poses cannot be drawn: expected a capsule network "
            "trained with a reconstruction"
        )


def scores(model, images: Tensor, *, chunk: int | None = None) -> Tensor:
    """What a network says of images, with capsules or without: (N, J) in [0, 1], on the CPU.

    Activations of the class capsules, or probabilities. The class is the largest one.

    Parameters
    ----------
    images  (N, C, H, W) float in [0, 1], on any device.
    chunk   images at a time; None chooses from the size of an image.

    Raises
    ------
    NotFiniteError  an ArithmeticError and ValueError, for scores that are NaN or infinite.
    """
    if hasattr(model, "look"):
        values = trace(model, images, keep=("lengths",), chunk=chunk).lengths
        assert values is not None
    else:
        check_images(images)
        like = like_of(model)
        with inference(model):
            parts = images.split(chunk or images_at_a_time(model))
            pieces = [model(part.to(like)).lengths.cpu() for part in parts]
        values = torch.cat(pieces)  # outside: no inference tensor
    return require_finite(values, f"the scores of {name(model)}")


def score_name(model, images: Tensor | None = None) -> str:
    """What the scores of a network are: "capsule length", "activation" or "probability".

    A score is a length where it is the norm of the pose, as it is of dynamic routing, and not of EM
    or self-routing; the first of the images (N, C, H, W) tells, without any one of noise.
    """
    if not hasattr(model, "look"):
        return "probability"
    if "poses" not in getattr(model, "parts", ("poses",)):  # a wrapped network without
        return "activation"
    if images is None:
        noise = torch.Generator().manual_seed(0)
        images = torch.rand(1, *model.config["image_shape"], generator=noise)
    traced = trace(model, images[:1], keep=("poses", "lengths"))
    assert traced.poses is not None and traced.lengths is not None
    norms = traced.poses[-1].float().norm(dim=-1)
    alike = norms.shape == traced.lengths.shape and torch.allclose(
        norms, traced.lengths.float(), atol=0.01
    )
    return LENGTH if alike else "activation"


def decode(model, poses: Tensor, classes: Tensor) -> Tensor:
    """Reconstructions (N, C, H, W), on the CPU, from poses (N, J, E) of `classes` (N,)."""
    like = like_of(model)
    with inference(model):
        parts = [
            model.decode(some.to(like), which.to(like.device)).cpu()
            for some, which in zip(
                poses.split(CHUNK_IMAGES), classes.split(CHUNK_IMAGES), strict=True
            )
        ]
    return torch.cat(parts)
