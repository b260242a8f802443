"""Parts that several corruptions share: draws, Gaussian blur, affine maps, and a soft line."""

import math

import torch
from torch import Tensor

from capsviz.transforms.warps import warp


def signs(n: int, generator: torch.Generator) -> Tensor:
    """Draw n values (n,), -1 or 1 with equal probability."""
    return torch.randint(0, 2, (n,), generator=generator) * 2.0 - 1


def gaussian(images: Tensor, sigma: float, *, axes="yx", border="replicate") -> Tensor:
    """Gaussian blur (B, C, H, W) of `sigma` px, cut at 4 sigma, along y, x or both.

    A border "replicate" repeats the pixels at the edge, "constant" takes zeros outside.
    """
    from kornia.filters import gaussian_blur2d  # takes a second to import

    side = 2 * int(4 * sigma + 0.5) + 1
    size = (side if "y" in axes else 1, side if "x" in axes else 1)
    return gaussian_blur2d(images, size, (sigma, sigma), border_type=border)


def pull(images: Tensor, linear: Tensor) -> Tensor:
    """Warp (B, 1, H, W): an output pixel comes from `linear` (B, 2, 2) times its position.

    Positions (x, y), y down, are relative to the centre. Bilinear, zeros outside.
    """
    height, width = images.shape[-2:]
    centre = torch.tensor([(width - 1) / 2, (height - 1) / 2], dtype=torch.float64)
    forward = torch.linalg.inv(linear.double())
    offset = centre - forward @ centre
    return warp(images, torch.cat([forward, offset[..., None]], 2))


def line(x0: Tensor, y0: Tensor, x1: Tensor, y1: Tensor, size: tuple[int, int]) -> Tensor:
    """Draw a soft line from (x0, y0) to (x1, y1), x0 <= x1, in each of B images (B, 1, H, W).

    Brightness falls with the vertical distance d to the line as 1 + log(1 - d / 2.3), not below 0,
    in the columns from floor(x0) to ceil(x1) - 1. A line of no width is not drawn. Ends are (B,)
    pixels, `size` is (H, W).
    """
    x0, y0, x1, y1 = (v.double()[:, None, None] for v in (x0, y0, x1, y1))
    y, x = torch.arange(size[0])[:, None], torch.arange(size[1])
    run = x1 - x0
    slope = (y1 - y0) / torch.where(run == 0, math.inf, run)
    distance = (y - y0 - slope * (x - x0)).abs()
    brightness = (1 + torch.log1p(-(distance / 2.3).clamp(max=1 - 1e-9))).clamp(0, 1)
    mask = (x >= x0.floor()) & (x < x1.ceil()) & (run > 0)
    return (brightness * mask)[:, None].float()
