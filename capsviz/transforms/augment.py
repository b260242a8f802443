"""Convert images between float and uint8, and augment training images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsviz.transforms import Fill

LUMA = (0.2989, 0.587, 0.114)  # weights of red, green and blue in grey, as in torchvision


def to_float(images: Tensor) -> Tensor:
    """Convert uint8 (N, C, H, W) to float32 in [0, 1]; float inputs are returned unchanged."""
    return images if images.is_floating_point() else images / 255


def to_uint8(images: Tensor) -> np.ndarray:
    """Convert images in [0, 1], of any shape and device, to a rounded uint8 array."""
    return (images * 255).round().byte().cpu().numpy()


class Draws(NamedTuple):
    """Random draws for the augmentation of N images; None for changes that are switched off."""

    offsets: Tensor  # (2, N) rows and columns, for `cut`
    mirrored: Tensor | None = None  # (N,) bool
    brightness: Tensor | None = None  # (N,) factors
    contrast: Tensor | None = None  # (N,) factors
    maps: Tensor | None = None  # (2, 3, N) from positions in the new image to the old one

    def take(self, index: Tensor) -> Draws:
        """Return the draws of some of the images."""
        return self._each(lambda drawn: drawn[..., index])

    def to(self, device) -> Draws:
        """Return the draws on another device."""
        return self._each(lambda drawn: drawn.to(device))

    def _each(self, change) -> Draws:
        drawn = {name: one for name, one in self._asdict().items() if one is not None}
        return self._replace(**{name: change(one) for name, one in drawn.items()})


@dataclass(frozen=True)
class Augmentation:
    """Random augmentation of training images, drawn separately for each image.

    The order is: random window of the padded image, mirroring, affine map about the centre
    (bilinear), brightness, contrast. The last two are torchvision's `adjust_brightness` and
    `adjust_contrast` on images in [0, 1]; results are clamped to [0, 1]. Factors are drawn
    uniformly from 1 - strength ... 1 + strength.
    """

    shift_px: int = 0  # padding in pixels before the window is cut out
    crop_px: int | None = None  # side of the square window; None: the size of the image
    flip: bool = False  # mirror left to right with probability 1/2
    brightness: float = 0.0  # strength, from 0 to 1: the image times the factor
    contrast: float = 0.0  # strength, from 0 to 1: the difference to its mean grey times the factor
    rotation_deg: float = 0.0  # largest angle, in both directions
    scale: float = 0.0  # strength, from 0 to below 1: the size times the factor
    shear_deg: float = 0.0  # largest angle of vertical lines, in both directions
    fill: Fill = "black"  # outside the image; "mean" is the mean of each channel

    def draw(
        self, n: int, image_shape: tuple[int, int, int], *, generator: torch.Generator | None = None
    ) -> Draws:
        """Draw changes for n images (C, H, W) on the CPU, so that all devices get the same."""
        size, (_, height, width) = self.crop_px, image_shape
        room = (0, 0) if size is None else (height - size, width - size)
        offsets = draw_offsets(n, self.shift_px, room=room, generator=generator)
        mirrored = torch.rand(n, generator=generator) < 0.5 if self.flip else None
        brightness, contrast = (
            1 + strength * (2 * torch.rand(n, generator=generator) - 1) if strength else None
            for strength in (self.brightness, self.contrast)
        )
        strengths = (self.rotation_deg, self.scale, self.shear_deg)
        maps = _affine_maps(n, *strengths, generator) if any(strengths) else None
        return Draws(offsets, mirrored, brightness, contrast, maps)

    def apply(
        self, images: Tensor, draws: Draws, parts: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Apply B draws to uint8 images (B, C, H, W) and their parts (B, K, C, H, W), if any.

        Returns both as float32 in [0, 1], of the window's size. The contrast of a part changes
        about the mean of its image, so that equal pixels stay equal.
        """
        C = images.shape[1]
        if parts is not None:
            images = torch.cat((images, parts.flatten(1, 2)), 1)
        edge, outside = self.fill == "edge", None
        if self.fill != "black":
            images = to_float(images)
        if self.fill == "mean":
            outside = images.mean((2, 3), keepdim=True)
            images = images - outside
        images = cut(images, draws.offsets, self.shift_px, self.crop_px, edge=edge)
        if draws.mirrored is not None:
            images = torch.where(draws.mirrored[:, None, None, None], images.flip(3), images)
        images = to_float(images)
        if draws.maps is not None:
            H, W = images.shape[2:]  # affine_grid's units are half a side: correct the aspect ratio
            sides = draws.maps.new_tensor([[1, H / W, 1], [W / H, 1, 1]])
            grid = torch.nn.functional.affine_grid(
                draws.maps.permute(2, 0, 1) * sides, list(images.shape), align_corners=False
            )
            images = torch.nn.functional.grid_sample(
                images, grid, padding_mode="border" if edge else "zeros", align_corners=False
            )
        if outside is not None:
            images = images + outside
        if draws.brightness is not None:
            images = (images * draws.brightness[:, None, None, None]).clamp(0, 1)
        if draws.contrast is not None:
            factor, mean = draws.contrast[:, None, None, None], _mean_grey(images[:, :C])
            images = (factor * images + (1 - factor) * mean).clamp(0, 1)
        whole, rest = images[:, :C], images[:, C:]
        return whole, None if parts is None else rest.unflatten(1, (-1, C))


def _affine_maps(
    n: int, rotation_deg: float, scale: float, shear_deg: float, generator: torch.Generator | None
) -> Tensor:
    """Draw maps (2, 3, n) for `affine_grid`: rotation times shear, divided by the scale."""
    drawn = 2 * torch.rand(3, n, generator=generator) - 1
    angle, slant = torch.deg2rad(drawn[0] * rotation_deg), torch.deg2rad(drawn[1] * shear_deg)
    size, turn, lean = 1 + scale * drawn[2], torch.stack((angle.cos(), angle.sin())), slant.tan()
    cos, sin = turn / size
    zero = torch.zeros(n)
    return torch.stack(
        (torch.stack((cos, cos * lean - sin, zero)), torch.stack((sin, sin * lean + cos, zero)))
    )


def _mean_grey(images: Tensor) -> Tensor:
    """Return the mean (B, 1, 1, 1): RGB weighted by luminance, other channels equally."""
    mean = images.mean((2, 3), keepdim=True)
    if images.shape[1] != len(LUMA):
        return mean.mean(1, keepdim=True)
    red, green, blue = mean.split(1, 1)
    return LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue


def shift(images: Tensor, max_px: int, *, generator: torch.Generator | None = None) -> Tensor:
    """Shift each of the images (B, C, H, W) by random integers of pixels, filling with zeros.

    Both shifts are uniform in -max_px ... max_px (the paper uses 2), drawn on the CPU.
    """
    offsets = draw_offsets(len(images), max_px, generator=generator)
    return cut(images, offsets.to(images.device), max_px)


def draw_offsets(
    n: int, max_px: int, *, room: tuple[int, int] = (0, 0), generator: torch.Generator | None = None
) -> Tensor:
    """Draw offsets for `cut`: integers (2, n), rows and columns, in 0 ... 2 * max_px + room.

    `room` is (rows, columns) by which the images are larger than the windows.
    """
    drawn = (torch.randint(0, 2 * max_px + more + 1, (n,), generator=generator) for more in room)
    return torch.stack(tuple(drawn))


def cut(
    images: Tensor, offsets: Tensor, max_px: int, size: int | None = None, *, edge: bool = False
) -> Tensor:
    """Pad images (B, C, H, W) by max_px, and cut windows at offsets (2, B), without a GPU sync.

    Windows are squares of `size` pixels; None: as large as the images. Padding is with zeros, or
    with the nearest pixels if `edge` (float images only).
    """
    if max_px == 0 and size is None:
        return images
    B, _, H, W = images.shape
    if size is not None:
        H = W = size
    padded = torch.nn.functional.pad(images, (max_px,) * 4, "replicate" if edge else "constant")
    windows = padded.unfold(2, H, 1).unfold(3, W, 1)  # (B, C, offsets, offsets, H, W), no copy
    return windows[torch.arange(B, device=images.device), :, offsets[0], offsets[1]]
