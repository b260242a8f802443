"""The 15 corruptions of MNIST-C (Mu & Gilmer 2019, arXiv:1906.02337): each file here is one.

A file has a function `corrupt(images, generator) -> images`, (B, 1, H, W) float32 on the CPU, with
the severity of the published data. Definitions and numbers are those of the authors' program
(google-research/mnist-c), implemented for batches in torch and kornia; a file's docstring says
where ours differs. The random numbers differ, so that images are other draws of the same
distribution. Sizes in pixels are MNIST's, 28 x 28; for other image sizes, positions at an edge move
with it. The parts that several files share are here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from capsviz import discovery
from capsviz.nn.images import check_images
from capsviz.transforms.warps import warp

PACKAGE = "capsviz.transforms.corruptions"
CHUNK = 250  # images at a time; fixed, as the draws of an image depend on it


def names() -> list[str]:
    """Return the names of the corruptions of grey images, with plugins."""
    return discovery.names(PACKAGE)


def published() -> list[str]:
    """Return the names of MNIST-C's corruptions."""
    return sorted(name for name, entry in discovery.entries(PACKAGE).items() if entry.ours)


def choose(only, usual: Sequence[str] | None = None) -> list[str]:
    """Return the named corruptions, sorted; the usual ones for none; ValueError for an unknown one.

    The `usual` ones are MNIST-C's, or others in their place. Those of plugins are known, too.
    """
    usual = published() if usual is None else usual
    known = sorted(({*names()} - {*published()}) | {*usual})
    for name in only:
        if name not in known:
            raise ValueError(discovery.unknown("corruption", name, known))
    return [name for name in known if name in (only or usual)]


def apply(
    name: str, images: Tensor, generator: torch.Generator, corrupt: Callable | None = None
) -> Tensor:
    """Corrupt images (N, C, H, W) in [0, 1], of at least 8 x 8 pixels, each by its own draw.

    MNIST-C's corruptions are of one channel; those of colour images are in
    `capsviz.transforms.imagenet_c`. `corrupt` is a function in place of the file's. The generator
    is on the CPU: the same draws on every device. Results are float32 in [0, 1], in multiples of
    1/255 as in the published files.

    ValueError for an unknown name, images of another shape or range, or a file without `corrupt`.
    """
    _check(name, images, own=corrupt is None)
    if corrupt is None:
        corrupt = getattr(discovery.load(PACKAGE, name, what="corruption"), "corrupt", None)
        if len(discovery.parameters(corrupt)) != 2:
            raise ValueError(f"the corruption '{name}' has no function corrupt(images, generator)")
    assert corrupt is not None  # it has two parameters
    parts = []
    for part in images.detach().float().cpu().split(CHUNK):
        made = corrupt(part.clone(), generator)  # which it may write over
        if not isinstance(made, Tensor) or made.shape != part.shape:
            form = tuple(made.shape) if isinstance(made, Tensor) else f"a {type(made).__name__}"
            expected = f"expected a tensor {tuple(part.shape)}"
            raise ValueError(f"the corruption '{name}' gives {form}, {expected}")
        parts.append(made)
    corrupted = torch.cat(parts)
    return ((corrupted.clamp(0, 1) * 255).round() / 255).to(images.device)


def _check(name: str, images: Tensor, *, own: bool) -> None:
    check_images(images)
    if images.shape[1] != 1 and own and name in published():
        raise ValueError(f"expected grey images (N, 1, H, W), got {images.shape[1]} channels")
    if min(images.shape[2:]) < 8:
        raise ValueError(f"expected at least 8 x 8 pixels, got {tuple(images.shape[2:])}")


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
    """Warp (B, C, H, W): an output pixel comes from `linear` (B, 2, 2) times its position.

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
