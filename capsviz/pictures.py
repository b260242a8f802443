"""A user's own picture, brought to what a network was trained on."""

from __future__ import annotations

import os
import warnings

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

SMALLEST = 4  # pixels: less shows nothing
LARGEST = 50_000_000  # pixels in all, before a picture is refused
BOX = 20 / 28  # MNIST: the ink's longer side fills 20 of 28 pixels
INK = 0.15  # grey level above the background that counts as ink when looking for its box


def read(
    path: str | os.PathLike, image_shape: tuple[int, int, int], invert: str = "auto"
) -> Tensor:
    """Read a picture for a network.

    Grey networks get what MNIST did to its digits: bright ink on black, its box scaled to 20 of 28
    pixels, its centre of mass in the centre. A picture that already has the network's size is left
    where it is. Colour networks get the picture resized. Transparent ground is made
    black under bright ink and white under dark ink.

    Parameters
    ----------
    path         any format that Pillow reads, 8 or 16 bits.
    image_shape  (C, H, W) that the network expects.
    invert       "yes", "no" or "auto": dark ink on a light ground is inverted.

    Returns
    -------
    (1, C, H, W) float32 in [0, 1].

    Raises
    ------
    ValueError  for what is not a picture, is too small or too large, or shows nothing.
    """
    channels, height, width = image_shape
    pixels = load(path)
    if min(pixels.shape[:2]) < SMALLEST:
        raise ValueError(
            f"'{path}' is {pixels.shape[1]} x {pixels.shape[0]} pixels, "
            f"expected at least {SMALLEST} on each side"
        )
    if channels == 3:
        return _resize(pixels, height, width)
    grey = pixels @ np.array([0.299, 0.587, 0.114], np.float32)
    border = np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])
    if invert == "yes" or (invert == "auto" and np.median(border) > 0.5):
        grey = 1 - grey
    grey = grey - grey.min()
    if grey.max() < INK:
        raise ValueError(f"'{path}' shows no ink: all its pixels are nearly the same grey")
    if grey.shape == (height, width):
        return torch.from_numpy(grey)[None, None].clamp(0, 1)
    return centre(grey / grey.max(), height, width)


def centre(grey: np.ndarray, height: int, width: int) -> Tensor:
    """Bright ink on black (h, w) -> (1, 1, height, width), scaled and centred as MNIST was."""
    ground = np.median(np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]]))
    grey = np.clip((grey - ground) / max(1 - ground, 1e-6), 0, 1)
    rows, columns = (np.flatnonzero((grey > INK).any(axis)) for axis in (1, 0))
    if len(rows) == 0:
        raise ValueError("the picture shows no ink brighter than its border")
    ink = grey[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    factor = BOX * min(height, width) / max(ink.shape)
    size = [max(1, round(side * factor)) for side in ink.shape]
    small = _resize(np.repeat(ink[..., None], 3, 2), *size)[0, 0]
    ys, xs = (torch.arange(n, dtype=torch.float32) for n in size)
    mass = small.sum()
    at_y = round((height - 1) / 2 - float((small.sum(1) * ys).sum() / mass))
    at_x = round((width - 1) / 2 - float((small.sum(0) * xs).sum() / mass))
    at_y, at_x = min(max(at_y, 0), height - size[0]), min(max(at_x, 0), width - size[1])
    out = torch.zeros(1, 1, height, width)
    out[0, 0, at_y : at_y + size[0], at_x : at_x + size[1]] = small
    return out


def load(path: str | os.PathLike) -> np.ndarray:
    """Any picture as RGB (h, w, 3) float32 in [0, 1], upright, on an opaque ground.

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
                picture = ImageOps.exif_transpose(picture)
                if picture.mode.startswith(("I", "F")):
                    values = np.asarray(picture, dtype=np.float32)
                    values = values / (65535 if values.max() > 255 else 255)
                    return np.repeat(values[..., None], 3, 2).clip(0, 1)
                rgba = np.asarray(picture.convert("RGBA"), dtype=np.float32) / 255
    except FileNotFoundError as error:
        raise ValueError(f"there is no file '{path}'") from error
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"'{path}' is not a picture that can be read ({error})") from error
    colour, alpha = rgba[..., :3], rgba[..., 3:]
    bright = (colour * alpha).sum() > 0.5 * 3 * alpha.sum()  # bright ink would vanish on white
    return colour * alpha + (1 - alpha) * (not bright)


def _resize(pixels: np.ndarray, height: int, width: int) -> Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(pixels, dtype=np.float32)).permute(2, 0, 1)[None]
    resized = torch.nn.functional.interpolate(
        tensor, (height, width), mode="bilinear", antialias=True, align_corners=False
    )
    return resized.clamp(0, 1)
