"""Warp images by affine maps: one matrix per image, one bilinear warp (kornia)."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsviz.discovery import require_known
from capsviz.transforms import Fill


class Family(NamedTuple):
    """A one-parameter family of warps: the arguments of `matrix` that it sets, and its range."""

    parameters: tuple[str, ...]
    start: float
    stop: float
    step: float
    neutral: float  # the value that changes nothing
    unit: str  # written after a number; "": none
    label: str  # axis label


MAX_SIZES = 3600  # of a warp
FAMILIES = {
    "rotation": Family(("angle_deg",), -90, 90, 5, 0, "°", "rotation, degrees counter-clockwise"),
    "scale": Family(("scale_x", "scale_y"), 0.5, 1.5, 0.05, 1, "×", "scale, times the size"),
    "shear": Family(("shear",), -1, 1, 0.1, 0, "", "shear, pixels down per pixel to the right"),
    "shift-x": Family(("shift_x_px",), -8, 8, 1, 0, " px", "shift to the right, pixels"),
    "shift-y": Family(("shift_y_px",), -8, 8, 1, 0, " px", "shift down, pixels"),
}


def family(name: str) -> Family:
    """Return one of `FAMILIES`; ValueError for an unknown name."""
    require_known("warp", name, FAMILIES)
    return FAMILIES[name]


def family_matrix(name: str, size: float, image_size: tuple[int, int]) -> Tensor:
    """Return the matrix (1, 2, 3) of a warp of `FAMILIES`; ValueError for a scale of 0 or less."""
    parameters = family(name).parameters
    if name == "scale" and not size > 0:
        raise ValueError(f"a scale must be above 0, got {size:g}")
    return matrix(image_size, **dict.fromkeys(parameters, float(size)))


def sizes(name: str, start=None, stop=None, step=None) -> np.ndarray:
    """Return the sizes (A,) of a warp, in its unit, from start to stop in steps.

    `stop` is included if the step allows. None: the default of the family. ValueError for a bad
    step or range, and as from `family_matrix`.
    """
    own, given = family(name), (start, stop, step)
    start, stop, step = (
        float(default if value is None else value)
        for default, value in zip((own.start, own.stop, own.step), given, strict=True)
    )
    if not (np.isfinite([start, stop, step]).all() and step > 0 and start <= stop):
        raise ValueError(
            "expected finite sizes, --from below --to, and a step above 0, got "
            f"{start:g} to {stop:g} by {step:g}"
        )
    count = int((stop - start) / step + 1e-9) + 1
    if count > MAX_SIZES:
        raise ValueError(
            f"{count} sizes are too many, expected at most {MAX_SIZES}: use a larger --step"
        )
    family_matrix(name, start, (1, 1))  # raises for a scale of 0 or less
    return (start + step * np.arange(count)).round(9)  # so that 0.5 + 10 * 0.05 is exactly 1


def matrix(
    image_size: tuple[int, int],
    *,
    angle_deg: Tensor | float = 0.0,
    shear: Tensor | float = 0.0,
    scale_x: Tensor | float = 1.0,
    scale_y: Tensor | float = 1.0,
    shift_x_px: Tensor | float = 0.0,
    shift_y_px: Tensor | float = 0.0,
) -> Tensor:
    """Return matrices that rotate, then shear, then scale about the centre, then shift.

    Parameters
    ----------
    image_size              (H, W) in pixels; the centre is ((W - 1) / 2, (H - 1) / 2).
    angle_deg               counter-clockwise, degrees.
    shear                   adds shear * x to y, as affNIST does (y down).
    scale_x, scale_y        1 leaves the size, 2 doubles it.
    shift_x_px, shift_y_px  to the right and down, pixels.
    All but `image_size` are numbers or tensors (B,).

    Returns
    -------
    Matrices (B, 2, 3) that map a pixel (x, y) of the original to its position in the warped image.
    """
    terms = (angle_deg, shear, scale_x, scale_y, shift_x_px, shift_y_px)
    values = [torch.as_tensor(v, dtype=torch.float64).reshape(-1) for v in terms]
    angle, slant, sx, sy, tx, ty = torch.broadcast_tensors(*values)
    cos, sin = torch.cos(torch.deg2rad(angle)), torch.sin(torch.deg2rad(angle))
    rotation = torch.stack([cos, sin, -sin, cos], 1).view(-1, 2, 2)  # y points down
    one, zero = torch.ones_like(slant), torch.zeros_like(slant)
    shearing = torch.stack([one, zero, slant, one], 1).view(-1, 2, 2)
    linear = torch.diag_embed(torch.stack([sx, sy], 1)) @ shearing @ rotation
    height, width = image_size
    centre = torch.tensor([(width - 1) / 2, (height - 1) / 2], dtype=torch.float64)
    offset = centre - linear @ centre + torch.stack([tx, ty], 1)
    return torch.cat([linear, offset[:, :, None]], 2).float()


def warp(images: Tensor, matrices: Tensor, fill: Fill = "black") -> Tensor:
    """Warp images (B, C, H, W) by matrices (B, 2, 3), bilinearly.

    A single image or a single matrix is broadcast.
    """
    from kornia.geometry.transform import warp_affine  # takes a second to import

    B = max(len(images), len(matrices))
    if {len(images), len(matrices)} - {1, B}:
        counts = f"{len(images)} images and {len(matrices)} matrices"
        raise ValueError(f"expected as many matrices as images, or one of either: got {counts}")
    images = images.expand(B, *images.shape[1:])
    matrices = matrices.to(images).expand(B, 2, 3)
    height, width = images.shape[-2:]
    if fill == "mean":
        outside = images.mean((2, 3), keepdim=True)
        return warp(images - outside, matrices) + outside
    return warp_affine(
        images, matrices, (height, width), mode="bilinear", align_corners=True,
        padding_mode="border" if fill == "edge" else "zeros",
    )  # fmt: skip


def rotate(images: Tensor, angle_deg: Tensor | float, fill: Fill = "black") -> Tensor:
    """Rotate counter-clockwise about the centre."""
    height, width = images.shape[-2:]
    return warp(images, matrix((height, width), angle_deg=angle_deg), fill)
