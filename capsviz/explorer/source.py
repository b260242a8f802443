"""Where an image comes from: a drawing, a file; each brought to what the network was trained on."""

from __future__ import annotations

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
from capsviz.pictures.centring import mnist_style

SHEET_PX = 280  # side of the sheet that is drawn on
HEAD = "data:image/png;base64,"
LONGEST = 1_000_000  # characters of a drawing; one all scribbled over has a tenth


class Sample(NamedTuple):
    """What a visitor looks at."""

    image: Tensor  # (1, C, H, W) in [0, 1], before any warp
    label: int | None  # its class, if it is known
    name: str  # for files
    origin: dict | None = None  # of a link, see `link.query`; None: the image itself


def from_sheet(sheet: str, frame: pictures.Frame) -> Tensor:
    """A drawing, a PNG as data URI whose opacity is the ink, as MNIST's digits are.

    Returns
    -------
    (1, C, H, W) float32 in [0, 1].

    Raises
    ------
    ValueError  for an empty sheet, or what is no drawing of `SHEET_PX` a side.
    """
    refusal = f"expected a drawing of {SHEET_PX} x {SHEET_PX} pixels as PNG"
    if not isinstance(sheet, str) or not sheet.startswith(HEAD) or len(sheet) > LONGEST:
        raise ValueError(refusal)
    try:
        content = base64.b64decode(sheet[len(HEAD) :], validate=True)
        with Image.open(io.BytesIO(content), formats=["PNG"]) as picture:
            if picture.size != (SHEET_PX, SHEET_PX) or picture.mode != "RGBA":
                raise ValueError(refusal)
            opacity = np.asarray(picture)[..., 3]
    except (binascii.Error, UnidentifiedImageError, OSError, SyntaxError) as error:
        raise ValueError(refusal) from error
    if not opacity.any():
        raise ValueError("The sheet is empty: draw a digit with the mouse or a finger.")
    return from_opacity(opacity, frame)


def from_opacity(opacity: np.ndarray, frame: pictures.Frame) -> Tensor:
    """Ink (h, w) uint8, scaled and centred as MNIST's digits were: (1, C, H, W) in [0, 1]."""
    channels, height, width = frame.whole
    image = frame.apply(mnist_style(opacity, invert="no", size=(height, width)).input)
    return torch.from_numpy(np.array(image, np.float32)).repeat(1, channels, 1, 1)


def from_file(path: str | os.PathLike, frame: pictures.Frame, invert: str = "auto") -> Tensor:
    """A user's picture, as of `pictures.read`; errors name the file and not its folder."""
    try:
        return pictures.read(path, frame, invert)
    except ValueError as error:
        raise ValueError(str(error).replace(str(path), Path(path).name)) from error
