"""Read the image that a visitor draws, uploads, or opens by a link."""

import base64
import binascii
import io
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from capsviz import pictures
from capsviz.pictures.strokes import mnist_style
from capsviz.transforms.augment import to_uint8

SHEET_PX = 280  # side of the drawing sheet
HEAD = "data:image/png;base64,"
LONGEST = 1_000_000  # characters of a drawing; a sheet full of scribbles has a tenth of that


class Sample(NamedTuple):
    """An image on the page."""

    image: Tensor  # (1, C, H, W) in [0, 1], before any warp
    label: int | None  # its class, if known
    name: str  # for file names
    origin: dict = {}  # for the link, see `settings.query`


def from_sheet(sheet: str, frame: pictures.Frame) -> Tensor:
    """Return a drawing as an image (1, C, H, W) in the style of MNIST.

    `sheet` is a PNG as data URI, whose opacity is the stroke. ValueError for an empty sheet, or
    anything but a PNG with sides of `SHEET_PX`.
    """
    refusal = f"expected a drawing of {SHEET_PX} x {SHEET_PX} pixels as PNG"
    if not isinstance(sheet, str) or not sheet.startswith(HEAD) or len(sheet) > LONGEST:
        raise ValueError(refusal)
    opacity = _png(sheet[len(HEAD) :], "RGBA", (SHEET_PX, SHEET_PX), refusal, refusal)[..., 3]
    if not opacity.any():
        raise ValueError("The sheet is empty: draw a digit with the mouse or a finger.")
    channels, height, width = frame.whole
    image = frame.apply(mnist_style(opacity, invert="no", size=(height, width))["input"])
    return torch.from_numpy(np.array(image, np.float32)).repeat(1, channels, 1, 1)


def from_file(path: str | os.PathLike, frame: pictures.Frame, invert: str = "auto") -> Tensor:
    """Read a picture by `pictures.prepare`; errors name the file without its folder."""
    try:
        return pictures.prepare(path, frame, invert).image
    except ValueError as error:
        raise ValueError(str(error).replace(str(path), Path(path).name)) from error


def own(image: Tensor, name: str) -> Sample:
    """Return a visitor's image (1, C, H, W), rounded to 256 levels as in its link."""
    letters = packed(image)
    origin = {} if letters is None else {"ink": letters}
    return Sample((image * 255).round() / 255, None, name, origin)


def packed(image: Tensor) -> str | None:
    """Encode an image (1, C, H, W) in [0, 1] as text for a link; None unless C is 1 or 3."""
    pixels = to_uint8(image[0])
    if len(pixels) not in (1, 3):
        return None
    content = io.BytesIO()
    flat = pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))
    Image.fromarray(flat).save(content, "png", optimize=True)
    return base64.urlsafe_b64encode(content.getvalue()).decode().rstrip("=")


def unpacked(text: str, shape: tuple[int, int, int]) -> Tensor:
    """Decode the image of `packed`, (1, C, H, W) float32; ValueError for another shape."""
    pixels = _png(
        text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4),
        {1: "L", 3: "RGB"}.get(shape[0]), (shape[2], shape[1]),
        "the link holds no image that can be read",
        "the link's image is not of this network's size",
    )  # fmt: skip
    planes = np.atleast_3d(pixels).transpose(2, 0, 1)
    return torch.from_numpy(planes.astype(np.float32) / 255)[None]


def _png(text: str, mode: str | None, size: tuple[int, int], unreadable: str, other: str):
    """Return the pixels of a PNG in base64.

    ValueError with the text `unreadable` if it is not a PNG, or `other` for another mode or size.
    """
    try:
        content = base64.b64decode(text, validate=True)
        with Image.open(io.BytesIO(content), formats=["PNG"]) as picture:
            if picture.size != size or picture.mode != mode:
                raise ValueError(other)
            return np.asarray(picture)
    except (
        binascii.Error, UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError
    ) as error:  # fmt: skip
        raise ValueError(unreadable) from error
