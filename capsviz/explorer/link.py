"""The link that holds the state of the page: to its query, and back. No Gradio."""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Mapping, Sequence
from math import isfinite
from urllib.parse import parse_qsl, urlencode

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from capsviz.explorer.settings import CHOSEN, LONGEST, NONE, ROUTINGS, WARPS
from capsviz.transforms.augment import to_uint8

LARGEST = 100_000  # number of an image
LETTERS = 12_000  # of a link, at most: what is read of one


def query(pair: tuple[str, str], origin: Mapping, values: Sequence, neutral: Sequence) -> str:
    """What follows the `?` of a link: two networks, where the image is from, and what is set.

    Parameters
    ----------
    origin   of the image: {"digit": 2, "index": 0}, {"case": "easy"} or {"ink": `packed`}.
    values   of the controls, in the page's order.
    neutral  the same before anything is touched; what equals them is left out.
    """
    names = _names(len(values))
    parts = {"network": pair[0], "beside": pair[1], **origin}
    for name, value, usual in zip(names, values, neutral, strict=True):
        if value != usual:
            parts[name] = f"{value:g}" if isinstance(value, float) else value
    return urlencode(parts)


def parse(text: str) -> dict[str, str]:
    """The parts of a link, by name; of an overlong one none."""
    return dict(parse_qsl(text.removeprefix("?"))) if len(text) <= LETTERS else {}


def values_of(
    parts: Mapping[str, str], neutral: Sequence, *, classes: int, types: int, iterations: int
) -> tuple[list, list[str]]:
    """Values of the controls in a link, in the page's order; and the names of those that are none.

    What is left out, or lies outside, stays as in `neutral`.
    """
    limits = {one.name: (one.low, one.high) for one in WARPS}
    limits |= {"off": (NONE, types - 1), "map": (LONGEST, classes - 1), "donor": (0, classes - 1)}
    limits |= {"pose": (LONGEST, classes - 1), "iteration": (1, iterations)}
    limits |= {"donor-index": (0, LARGEST)}
    names = _names(len(neutral))
    values, wrong = [], []
    for name, usual in zip(names, neutral, strict=True):
        value = usual
        if name in parts:
            value = _value(name, parts[name], *limits.get(name, (-0.5, 0.5)))
            if value is None:
                wrong.append(name)
                value = usual
        values.append(value)
    return values, wrong


def _names(count: int) -> list[str]:
    """Of so many controls, in the page's order."""
    names = [one.name for one in WARPS] + list(CHOSEN)
    return names + [f"d{d}" for d in range(count - len(names))]


def _value(name: str, text: str, low: float, high: float):
    if name == "routing":
        return text if text in ROUTINGS else None
    try:
        value = float(text)
    except ValueError:
        return None
    if not isfinite(value) or not low <= value <= high:
        return None
    whole = name in (*CHOSEN, "angle", "right", "down")
    if whole and value != int(value):
        return None
    return int(value) if whole else value


def number(text: str | float) -> int:
    """A whole number of a link or a control; ValueError for what is none, or beyond all images."""
    value = float(text)  # of thousands of digits, inf
    if value != value // 1 or abs(value) > LARGEST:
        raise ValueError(f"expected a whole number of at most {LARGEST:,}, got {str(text)[:20]}")
    return int(value)


def packed(image: Tensor) -> str | None:
    """An image (1, C, H, W) in [0, 1] as the letters of a link; None for two channels."""
    pixels = to_uint8(image[0])
    if len(pixels) not in (1, 3):
        return None
    content = io.BytesIO()
    flat = pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))
    Image.fromarray(flat).save(content, "png", optimize=True)
    return base64.urlsafe_b64encode(content.getvalue()).decode().rstrip("=")


def unpacked(text: str, shape: tuple[int, int, int]) -> Tensor:
    """The image of `packed`, (1, C, H, W) float32; ValueError for what is none of that shape."""
    try:
        content = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        with Image.open(io.BytesIO(content), formats=["PNG"]) as picture:
            mode, size = {1: "L", 3: "RGB"}.get(shape[0]), (shape[2], shape[1])
            if picture.mode != mode or picture.size != size:
                raise ValueError("the link's image is not of this network's size")
            pixels = np.asarray(picture, np.float32) / 255
    except (binascii.Error, UnidentifiedImageError, OSError, SyntaxError) as error:
        raise ValueError("the link holds no image that can be read") from error
    planes = np.atleast_3d(pixels).transpose(2, 0, 1)
    return torch.from_numpy(np.ascontiguousarray(planes))[None]
