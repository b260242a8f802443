"""Parts of `view`: one warp of one image, and a class's pose decoded after a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


class Warp(NamedTuple):
    """How an image is warped; these change nothing."""

    angle_deg: float = 0.0  # counter-clockwise
    scale: float = 1.0
    shear: float = 0.0  # pixels down per pixel to the right
    shift_x_px: float = 0.0  # to the right
    shift_y_px: float = 0.0  # down


def warped(image: Tensor, how: Warp) -> Tensor:
    """Return an image (1, C, H, W) in [0, 1], warped; the image itself if nothing is changed.

    Raises
    ------
    ValueError  for a scale that is not above 0, or an angle beyond 360°.
    """
    from capsviz.transforms.warps import matrix, warp

    if how == Warp():
        return image
    if not how.scale > 0:
        raise ValueError(f"a scale must be above 0, got {how.scale:g}")
    if not abs(how.angle_deg) <= 360:
        raise ValueError(f"an angle must lie within -360° and 360°, got {how.angle_deg:g}°")
    affine = matrix(
        tuple(image.shape[-2:]),
        angle_deg=how.angle_deg,
        shear=how.shear,
        scale_x=how.scale,
        scale_y=how.scale,
        shift_x_px=how.shift_x_px,
        shift_y_px=how.shift_y_px,
    )
    return warp(image, affine).clamp(0, 1)


def redecode(model, poses: np.ndarray, capsule: int, changes) -> np.ndarray | None:
    """Decode a class's pose of (J, E) after adding `changes` (E,): (C, H, W) uint8.

    None for a network without a decoder.
    """
    import torch

    from capsviz.tracing import decode, reconstructs
    from capsviz.transforms.augment import to_uint8

    if not reconstructs(model):
        return None
    changed = torch.from_numpy(poses.copy())[None]
    changed[0, capsule] += torch.tensor(changes, dtype=changed.dtype)
    return to_uint8(decode(model, changed, torch.tensor([capsule]))[0].float())
