"""Compute scores, features and reconstructions, for networks with capsules or without."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from capsviz.nn.functional import predict
from capsviz.nn.images import like_of
from capsviz.tracing.forward import CHUNK_IMAGES, images_at_a_time, trace
from capsviz.tracing.needs import require
from capsviz.tracing.network import abilities, inference, inputs_of
from capsviz.tracing.record import last_activations, require_finite
from capsviz.tracing.rerouting import parents

LENGTH = "capsule length"


def require_decoder(model: Any) -> None:
    """Raise ValueError for a network without a decoder."""
    require(model, ("decode",), "a reconstruction")


def right(models: Iterable, images: Tensor, labels: Tensor) -> np.ndarray:
    """Return whether each of K networks classifies images (N, C, H, W) correctly: (K, N) bool."""
    return torch.stack([predict(scores(one, images)) == labels for one in models]).numpy()


def scores(model, images: Tensor) -> Tensor:
    """Return the scores of images, (N, J) in [0, 1], on the CPU; the largest is the prediction.

    They are activations of class capsules, or the probabilities of a network without capsules.

    Parameters
    ----------
    images  (N, C, H, W) float in [0, 1], on any device.

    Raises
    ------
    NotFiniteError  a FloatingPointError and ValueError, for scores that are NaN or infinite.
    """
    able = abilities(model)
    if able.has_capsules:
        return trace(model, images, keep=("lengths",)).require("lengths")
    images, like = inputs_of(model, images), like_of(model)
    with inference(model):
        parts = images.split(images_at_a_time(model))
        pieces = [model(part.to(like)).lengths.cpu() for part in parts]
    values = torch.cat(pieces)  # outside: no inference tensor
    return require_finite(values, f"the scores of the network '{able.name}'")


def score_name(model, images: Tensor | None = None) -> str:
    """Return the kind of a network's scores: "capsule length", "activation" or "probability".

    A score is a length if it is the norm of the pose, as in dynamic routing, but not in EM or
    self-routing. This is tested on the first of the images (N, C, H, W), or on noise. ValueError
    without images if the network does not declare their shape.
    """
    able = abilities(model)
    if not able.has_capsules:
        return "probability"
    if not able.gives("poses"):
        return "activation"
    if images is None and able.draw is not None:
        images = able.draw(1, 0)
    elif images is None:
        if able.image_shape is None:
            raise ValueError("this network does not say the shape of its images: give some")
        images = torch.rand(1, *able.image_shape, generator=torch.Generator().manual_seed(0))
    traced = trace(model, images[:1], keep=("poses", "lengths"))
    norms = traced.require("poses")[-1].float().norm(dim=-1)
    alike = torch.allclose(norms, traced.require("lengths").float(), atol=0.01)
    return LENGTH if alike else "activation"


def decode(model, poses: Tensor, classes: Tensor) -> Tensor:
    """Return reconstructions (N, C, H, W), on the CPU, from poses (N, J, E) of `classes` (N,)."""
    like = like_of(model)
    with inference(model):
        parts = [
            model.decode(some.to(like), which.to(like.device)).cpu()
            for some, which in zip(
                poses.split(CHUNK_IMAGES), classes.split(CHUNK_IMAGES), strict=True
            )
        ]
    return torch.cat(parts)


def features(model, images: Tensor, classes: Tensor) -> Tensor:
    """Return the features (N, F) of images (N, C, H, W) for classification, float64 on the CPU.

    They are the pose of one class (`classes`, (N,)) after the last iteration, or the input of the
    last linear layer of a network without capsules. ValueError for a network that has neither.
    """
    if abilities(model).has_capsules:
        return parents(model, images).poses[torch.arange(len(classes)), classes.cpu()].double()
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ValueError("this network has neither capsules nor a linear layer at its end")
    inputs: list[Tensor] = []
    with linear[-1].register_forward_pre_hook(
        lambda module, arguments: inputs.append(arguments[0].flatten(1).cpu().double())
    ):
        scores(model, images)
    return torch.cat(inputs)


def distance(images: Tensor, reconstructions: Tensor) -> Tensor:
    """Return the L2 distance (N,) between images and reconstructions, both (N, C, H, W)."""
    return (images - reconstructions).flatten(1).norm(dim=1)


def activations_and_distance(model: Any, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return activations (N, J) and the distance (N,) to the winning capsule's reconstruction.

    Frosst, Sabour & Hinton (2018), arXiv:1811.06969, detect attacks by this distance. Gradients
    reach the images, unless they are disabled. ValueError for a network without capsules or
    decoder.
    """
    require(model, ("poses", "decode"), "the distance to a reconstruction")
    parts = model.look(images, keep=("lengths", "reconstruction"))
    activations = last_activations(parts)
    assert activations is not None
    return activations, distance(images, parts["reconstruction"])
