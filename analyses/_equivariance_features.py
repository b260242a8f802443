"""Vectors for `equivariance`: a class capsule's pose, a CNN's last features, the pixels."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from capsviz import tracing
from capsviz.warps import family_matrix, warp


def features(model, images: Tensor, labels: Tensor) -> Tensor:
    """What a network holds of N images (N, C, H, W) before its answer: (N, F), on the CPU.

    The pose of the true class (`labels`, (N,)) after the last iteration; of a network without
    capsules what its last linear layer is given.

    Raises
    ------
    ValueError  for a network that has neither.
    """
    if hasattr(model, "look"):
        poses = tracing.trace(model, images, keep=("poses",)).poses[-1]
        return poses[torch.arange(len(labels)), labels]
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ValueError("this network has neither capsules nor a linear layer at its end")
    seen: list[Tensor] = []
    hook = linear[-1].register_forward_pre_hook(
        lambda module, given: seen.append(given[0].flatten(1).float().cpu())
    )
    try:
        tracing.scores(model, images)
    finally:
        hook.remove()
    return torch.cat(seen)


def shuffled(model, seed: int = 0):
    """A copy of a network with the numbers of each weight in another order: untrained, but of the
    same sizes and distributions (after Adebayo et al. 2018, arXiv:1810.03292).
    """
    draws = torch.Generator().manual_seed(seed)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for weight in other.parameters():
            order = torch.randperm(weight.numel(), generator=draws).to(weight.device)
            weight.copy_(weight.flatten()[order].view(weight.shape))
    return other


def all_of(networks, images: Tensor, labels: Tensor) -> list[np.ndarray]:
    """Vectors (N, F) of images by every network, and their pixels last."""
    made = [features(model, images, labels).numpy() for model in networks]
    return [*made, images.flatten(1).numpy()]


def warped(networks, images: Tensor, labels: Tensor, name: str, sizes) -> Iterator[list]:
    """`all_of` of the images at each size of a warp of `capsviz.warps.FAMILIES`."""
    for size in sizes:
        matrix = family_matrix(name, size, tuple(images.shape[2:]))
        with torch.inference_mode():  # looked at once: no trace of it is to be remembered
            made = all_of(networks, warp(images, matrix).clamp(0, 1), labels)
        yield made
