"""Vectors for `equivariance`: a class capsule's pose, a CNN's last features, the pixels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from capsviz.tracing import features
from capsviz.transforms.warps import family_matrix, warp


def of_class(networks, images: Tensor, label: int, warps, axes=()) -> Iterator[list[np.ndarray]]:
    """Vectors of images of one class, unwarped and warped: (1 + A, N, F) by network, warp by warp.

    Each warp is made once and looked at by all networks; after them come the pixels, and these
    along each set of axes.

    Parameters
    ----------
    warps  name in `capsviz.transforms.warps.FAMILIES` -> sizes (1 + A,), the neutral one first.
    axes   (C·H·W, E) each.
    """
    labels = torch.full((len(images),), label)

    def look(images):
        pixels = images.flatten(1).numpy()
        poses = [features(model, images, labels).numpy() for model in networks]
        return [*poses, pixels, *(pixels @ one for one in axes)]

    upright = look(images)
    for name, sizes in warps.items():
        parts = [upright]
        for size in sizes[1:]:
            matrix = family_matrix(name, size, tuple(images.shape[2:]))
            with torch.inference_mode():
                parts.append(look(warp(images, matrix).clamp(0, 1)))
        yield [np.stack(one) for one in zip(*parts, strict=True)]
