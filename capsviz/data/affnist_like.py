"""MNIST under random affine maps on 40x40, as affNIST's page describes it: not affNIST itself.

Each image is padded to 40x40, rotated, sheared, scaled along both axes and shifted, in this order
(Tieleman 2013, https://www.cs.toronto.edu/~tijmen/affNIST). All draws are uniform: rotation in
-20 ... 20 degrees; shear in -0.2 ... 0.2 (adds shear * x to y); each scale in 0.8 ... 1.2; the
position among those that keep every foreground pixel on the canvas. One bilinear warp does all of
it, with zeros outside. It runs on the CPU, so the images depend on the seed alone.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from capsviz.data import Dataset, mnist
from capsviz.data._made import draws, several
from capsviz.transforms import Fill, warps

PAD_PX = 6
IMAGE_SHAPE, CLASSES = (1, 40, 40), mnist.CLASSES
ANGLE_DEG, SHEAR, SCALE = (-20.0, 20.0), (-0.2, 0.2), (0.8, 1.2)
SPEC = {
    "canvas_px": [40, 40],
    "angle_deg": ANGLE_DEG,
    "shear": SHEAR,
    "scale_x": SCALE,
    "scale_y": SCALE,
    "shift": "uniform, the whole digit on the canvas",
}
ATTEMPTS = 100  # to draw a transform that fits
CHUNK = 2000  # images at a time


class Transforms(NamedTuple):
    """The transforms of N images: arguments of `warps.matrix`, each (N,) float64."""

    angle_deg: Tensor
    shear: Tensor
    scale_x: Tensor
    scale_y: Tensor
    shift_x_px: Tensor
    shift_y_px: Tensor


def load(split, root=None, *, download=True, variants=32, seed=0):
    """Make `variants` images (1, 40, 40) of every MNIST image: first one of each, then another.

    The first n images do not depend on the number of variants. MemoryError if they do not fit.
    """

    def images(plain: Dataset, variant: int) -> Dataset:
        return make(plain, variant, seed=seed)[0]

    return several(images, "affnist_like", split, root, download, variants=variants)


def make(plain: Dataset, variant: int = 0, *, seed: int = 0) -> tuple[Dataset, Transforms]:
    """Return one random variant (numbered from 0) of every image of a split, and the transforms.

    Images (N, C, H, W) are padded by 6 pixels on each side first.
    """
    padded = plain.pad(PAD_PX)
    drawn = transforms(plain, variant, seed=seed)
    chunks = zip(*(values.split(CHUNK) for values in (padded.images, *drawn)), strict=True)
    images = [apply(part, Transforms(*some)) for part, *some in chunks]
    return replace(padded, images=torch.cat(images), name="affnist_like"), drawn


def transforms(plain: Dataset, variant: int = 0, *, seed: int = 0) -> Transforms:
    """Return the transforms that `make` draws for a variant, without making images."""
    generator = draws(plain.split, variant, seed)
    return draw(plain.pad(PAD_PX).images, generator=generator)


def draw(images: Tensor, *, generator: torch.Generator, room: float | None = None) -> Transforms:
    """Draw transforms of images (N, C, H, W) that keep all foreground pixels on the canvas.

    If `room` is given, the foreground is ignored and shifts are at most this share of a side.
    ValueError if the foreground of an image is too large to fit.
    """
    chosen = Transforms(*torch.zeros(6, len(images), dtype=torch.float64))
    left = torch.arange(len(images))
    for _ in range(ATTEMPTS):
        drawn, fits = _draw_once(images[left], generator, room)
        for into, values in zip(chosen, drawn, strict=True):
            into[left[fits]] = values[fits]
        left = left[~fits]
        if len(left) == 0:
            return chosen
    raise ValueError(
        f"the foreground of {len(left)} images is too large for a canvas of "
        f"{images.shape[2]} x {images.shape[3]}: pad them more"
    )


def _draw_once(images: Tensor, generator, room) -> tuple[Transforms, Tensor]:
    def uniform(low, high):
        drawn = torch.rand(len(images), dtype=torch.float64, generator=generator)
        return low + (high - low) * drawn

    height, width = images.shape[-2:]
    angle, shear, sx, sy = (uniform(*r) for r in (ANGLE_DEG, SHEAR, SCALE, SCALE))
    linear = warps.matrix((height, width), angle_deg=angle, shear=shear, scale_x=sx, scale_y=sy)
    if room is None:
        ranges = shift_ranges(images, linear)
    else:
        ranges = [(torch.full_like(angle, -room * n), room * n) for n in (width, height)]
    shifts = [uniform(low, high) for low, high in ranges]
    fits = torch.stack([low <= high for low, high in ranges]).all(0)
    return Transforms(angle, shear, sx, sy, *shifts), fits


def shift_ranges(images: Tensor, matrices: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the (lowest, highest) shift right, then down, that keeps the foreground; each (N,).

    Bilinear interpolation spreads a pixel by one pixel of the original to each side. In the warped
    image that is the sum of the absolute values of a row of the matrix. Empty images get shift 0.
    """
    H, W = images.shape[-2:]
    y, x = torch.meshgrid(
        torch.arange(H, dtype=torch.float64), torch.arange(W, dtype=torch.float64), indexing="ij"
    )
    points = torch.stack([x, y, torch.ones_like(x)]).flatten(1)  # (3, H * W)
    mask = images.amax(1).flatten(1) > 0
    ranges = []
    for axis, side in ((0, W), (1, H)):
        row = matrices[:, axis].double()
        places = row @ points
        reach = row[:, :2].abs().sum(1) + 1e-3  # margin for rounding inside the warp
        first = places.where(mask, torch.inf).amin(1) - reach
        last = places.where(mask, -torch.inf).amax(1) + reach
        empty = ~mask.any(1)
        low = torch.where(empty, 0.0, -1 - first)
        ranges.append((low, torch.where(empty, 0.0, side - last)))
    return ranges


def apply(images: Tensor, transforms: Transforms, fill: Fill = "black") -> Tensor:
    """Transform images (N, C, H, W) uint8; return uint8."""
    height, width = images.shape[-2:]
    matrices = warps.matrix((height, width), **transforms._asdict())
    warped = warps.warp(images.float(), matrices, fill)
    return warped.round().clamp(0, 255).byte()
