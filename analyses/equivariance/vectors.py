"""Vectors for `equivariance`: a class capsule's pose, a CNN's last features, the pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from capsviz import checkpoint, tracing
from capsviz.transforms.warps import family_matrix, warp


def features(model, images: Tensor, labels: Tensor) -> np.ndarray:
    """What a network holds of N images (N, C, H, W) before its answer: (N, F).

    The pose of the true class (`labels`, (N,)) after the last iteration; of a network without
    capsules what its last linear layer is given.

    Raises
    ------
    ValueError  for a network that has neither.
    """
    if hasattr(model, "look"):
        poses = tracing.trace(model, images, keep=("poses",)).poses[-1]
        return poses[torch.arange(len(labels)), labels].double().numpy()
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ValueError("this network has neither capsules nor a linear layer at its end")
    inputs: list[Tensor] = []
    hook = linear[-1].register_forward_pre_hook(
        lambda module, arguments: inputs.append(arguments[0].flatten(1).double().cpu())
    )
    try:
        tracing.scores(model, images)
    finally:
        hook.remove()
    return torch.cat(inputs).numpy()


def controls(model, seeds: Sequence[int]) -> tuple[dict[str, list], list[str]]:
    """Networks of the same kind, freshly initialised: for each preset a list of one a seed.

    Returns
    -------
    Their name -> networks, and a line for each preset that cannot be had.
    """
    networks, notes = {}, []
    for preset in checkpoint.presets(model) if seeds else ():
        name = "freshly initialised" + (f" ({preset})" if preset else "")
        try:
            networks[name] = [checkpoint.fresh(model, seed, preset=preset) for seed in seeds]
        except ValueError as error:
            notes.append(f"no control {name}: {error}")
    return networks, notes


def of_class(networks, images: Tensor, label: int, warps) -> Iterator[list[np.ndarray]]:
    """Vectors of images of one class, unwarped and warped: (1 + A, N, F) by network, warp by warp.

    Each warp is made once and looked at by all networks; the pixels come last.

    Parameters
    ----------
    networks  in the place of one may stand several, among which the classes take turns.
    warps     name in `capsviz.transforms.warps.FAMILIES` -> sizes (1 + A,), the neutral one first.
    """
    labels = torch.full((len(images),), label)
    turn = [one[label % len(one)] if isinstance(one, list) else one for one in networks]

    def look(images):
        return [*(features(model, images, labels) for model in turn), images.flatten(1).numpy()]

    upright = look(images)
    for name, sizes in warps.items():
        parts = [upright]
        for size in sizes[1:]:
            matrix = family_matrix(name, size, tuple(images.shape[2:]))
            with torch.inference_mode():  # looked at once: no trace of it is to be remembered
                parts.append(look(warp(images, matrix).clamp(0, 1)))
        yield [np.stack(one) for one in zip(*parts, strict=True)]
