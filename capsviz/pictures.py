"""A user's own picture, brought to what a network was trained on."""

from __future__ import annotations

import os
import warnings
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from capsviz import centring, ink

CENTRED = ("grey", "inverted", "ink", "cropped", "seen")  # steps of `centring`

SMALLEST = 4  # pixels: less shows nothing
LARGEST = 50_000_000  # pixels in all, before a picture is refused
LONGEST = 800  # pixels: of a longer picture no more than twice this is kept


class Prepared(NamedTuple):
    """A picture as a network takes it, and what it went through."""

    image: Tensor  # (1, C, H, W) float32 in [0, 1]
    steps: dict[str, np.ndarray]  # by name (h, w) or (h, w, 3) in [0, 1], the network's own last


def read(
    path: str | os.PathLike, image_shape: tuple[int, int, int], invert: str = "auto"
) -> Tensor:
    """Read a picture for a network: `prepare` without the steps, (1, C, H, W) in [0, 1]."""
    return prepare(path, image_shape, invert).image


def prepare(
    path: str | os.PathLike,
    image_shape: tuple[int, int, int],
    invert: str = "auto",
    *,
    centre: bool | None = None,
    pad_px: int = 0,
) -> Prepared:
    """Read a picture and bring it to what a network was trained on.

    Grey networks get what MNIST did to its digits, see `capsviz.centring`. A picture that already
    has the network's size is left where it is. Colour networks get the picture resized.
    Transparent ground is made black under bright ink and white under dark ink.

    Parameters
    ----------
    path         any format that Pillow reads, 8 or 16 bits.
    image_shape  (C, H, W) that the network expects, of 1 or 3 channels.
    invert       "yes", "no" or "auto": dark ink on a light ground is inverted; grey networks only.
    centre       whether to find, scale and centre the ink; None: for grey networks.
    pad_px       rows and columns of zeros on each side of what the network expects.

    Raises
    ------
    ValueError  for what is not a picture, is too small or too large, or shows nothing.
    """
    channels, height, width = image_shape
    if channels not in (1, 3):
        raise ValueError(f"the network takes {channels} channels, a picture has 1 or 3")
    size = height - 2 * pad_px, width - 2 * pad_px
    pixels = load(path, LONGEST)
    if min(pixels.shape[:2]) < SMALLEST:
        raise ValueError(
            f"'{path}' is {pixels.shape[1]} x {pixels.shape[0]} pixels, "
            f"expected at least {SMALLEST} on each side"
        )
    try:
        if channels == 3:
            steps = {"original": pixels, "seen": _resize(pixels, *size)}
        elif centre is False:
            steps = _inverted(centring.to_grey(pixels), size, invert)
        else:
            made = centring.mnist_style(pixels, invert=invert, size=size)
            steps = {name: getattr(made, name) for name in CENTRED}
    except ValueError as error:
        raise ValueError(f"'{path}': {error}") from error
    seen = np.atleast_3d(steps["seen"])
    seen = np.pad(seen, ((pad_px, pad_px), (pad_px, pad_px), (0, 0)))
    steps["seen"] = seen if channels == 3 else seen[..., 0]
    image = torch.from_numpy(np.ascontiguousarray(seen.transpose(2, 0, 1), np.float32))
    return Prepared(image[None].clamp(0, 1), steps)


def _inverted(grey: np.ndarray, size: tuple[int, int], invert: str) -> dict[str, np.ndarray]:
    bright = 1 - grey if ink.is_dark_on_light(grey, invert) else grey
    return {"grey": grey, "inverted": bright, "seen": _resize(bright[..., None], *size)[..., 0]}


def load(path: str | os.PathLike, longest: int | None = None) -> np.ndarray:
    """Any picture as RGB (h, w, 3) float32 in [0, 1], upright, on an opaque ground.

    Parameters
    ----------
    longest  a picture of twice as many pixels on its longer side, or more, is averaged down, to not
             less than this; None: never.

    Raises
    ------
    ValueError  for what is not a picture, or has more than `LARGEST` pixels.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path) as picture:
                if picture.width * picture.height > LARGEST:
                    raise ValueError(
                        f"'{path}' is {picture.width} x {picture.height} pixels, "
                        f"expected at most {LARGEST:,} in all"
                    )
                if longest is not None:
                    picture.draft(None, (longest, longest))  # JPEG: half, a quarter or an eighth
                picture = ImageOps.exif_transpose(picture)
                if picture.mode.startswith(("I", "F")):
                    values = np.asarray(picture, dtype=np.float32)
                    values = values / (65535 if values.max() > 255 else 255)
                    values = np.asarray(_shorten(Image.fromarray(values), longest))
                    return np.repeat(values[..., None], 3, 2).clip(0, 1)
                picture = _shorten(picture.convert("RGBA"), longest)
                rgba = np.asarray(picture, dtype=np.float32) / 255
    except FileNotFoundError as error:
        raise ValueError(f"there is no file '{path}'") from error
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"'{path}' is not a picture that can be read ({error})") from error
    colour, alpha = rgba[..., :3], rgba[..., 3:]
    bright = (colour * alpha).sum() > 0.5 * 3 * alpha.sum()  # bright ink would vanish on white
    return colour * alpha + (1 - alpha) * (not bright)


def _shorten(picture: Image.Image, longest: int | None) -> Image.Image:
    """Averaged down by a whole number, to less than twice `longest` pixels."""
    by = 1 if longest is None else max(picture.size) // longest
    return picture.reduce(by) if by > 1 else picture


def _resize(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """(h, w, C) -> (height, width, C), averaging where it gets smaller."""
    tensor = torch.from_numpy(np.ascontiguousarray(pixels, dtype=np.float32)).permute(2, 0, 1)[None]
    resized = torch.nn.functional.interpolate(
        tensor, (height, width), mode="bilinear", antialias=True, align_corners=False
    )
    return resized[0].permute(1, 2, 0).clamp(0, 1).numpy()
