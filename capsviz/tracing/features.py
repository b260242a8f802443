"""What a network holds of images before its answer, with capsules or without."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from capsviz.tracing.forward import trace
from capsviz.tracing.outputs import scores


def features(model, images: Tensor, classes: Tensor) -> Tensor:
    """Vectors (N, F) float64, on the CPU, of N images (N, C, H, W).

    The pose of one class after the last iteration (`classes`, (N,)); of a network without capsules
    what its last linear layer is given.

    Raises
    ------
    ValueError  for a network that has neither.
    """
    if hasattr(model, "look"):
        poses = trace(model, images, keep=("poses",)).poses
        assert poses is not None  # what is asked for is there, or `trace` says so
        return poses[-1][torch.arange(len(classes)), classes.cpu()].double()
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ValueError("this network has neither capsules nor a linear layer at its end")
    inputs: list[Tensor] = []
    hook = linear[-1].register_forward_pre_hook(
        lambda module, arguments: inputs.append(arguments[0].flatten(1).double().cpu())
    )
    try:
        scores(model, images)
    finally:
        hook.remove()
    return torch.cat(inputs)
