"""A user's own picture, brought to what a network was trained on."""

from __future__ import annotations

import os
import warnings
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn

from capsviz.pictures import centring, foreground

CENTRED = ("grey", "inverted", "ink", "cropped", "input")  # steps of `centring`

SMALLEST = 4  # pixels: less shows nothing
LARGEST = 50_000_000  # pixels in all, before a picture is refused
LONGEST = 800  # pixels: of a longer picture no more than twice this is kept


class Frame(NamedTuple):
    """What a network's images are: whole pictures, zeros around them, and of that the centre."""

    whole: tuple[int, int, int]  # (C, H, W)
    pad_px: int = 0  # rows and columns of zeros on each side
    crop_px: int | None = None  # side of the square that is left; None: nothing is cut off

    @property
    def centred(self) -> bool:
        """Whether ink is scaled and centred: for images like MNIST's digits."""
        return self.whole == (1, 28, 28)

    def apply(self, whole: np.ndarray) -> np.ndarray:
        """A whole picture (H, W) or (H, W, C) as the network is given it."""
        px = self.pad_px
        padded = np.pad(whole, ((px, px), (px, px), *((0, 0),) * (whole.ndim - 2)))
        if self.crop_px is None:
            return padded
        top, left = ((side - self.crop_px) // 2 for side in padded.shape[:2])
        return padded[top : top + self.crop_px, left : left + self.crop_px]


def frame(model) -> Frame:
    """The frame of a network: what its card says, or else the shape that it is for."""
    if not hasattr(model, "config"):
        raise ValueError(
            f"a {type(model).__name__} does not say the shape of its images: wrap it by "
            "capsviz.wrap(network, image_shape, classes)"
        )
    about = getattr(model, "card", {}).get("dataset", {})
    own, (C, H, W) = about.get("options", {}), about.get("whole", model.config["image_shape"])
    px = own.get("pad_px", 0)
    return Frame((C, H - 2 * px, W - 2 * px), px, own.get("crop_px"))


def open_image(
    path: str | os.PathLike[str], model: nn.Module | None = None, *, invert: str = "auto"
) -> Tensor:
    """Your own picture as a network takes it: (1, C, H, W) float32 in [0, 1].

    Parameters
    ----------
    path    any format that Pillow reads: a drawing, a scan, a photograph.
    model   the network that it is for; None: one of MNIST's digits, (1, 28, 28).
    invert  "yes", "no" or "auto": dark ink on a light ground is inverted; grey networks only.

    Raises
    ------
    ValueError  for what is not a picture, is too small or too large, or shows nothing, and for a
                network that does not say the shape of its images.
    """
    return read(path, Frame((1, 28, 28)) if model is None else frame(model), invert)


class Prepared(NamedTuple):
    """A picture as a network takes it, and what it went through."""

    image: Tensor  # (1, C, H, W) float32 in [0, 1]
    steps: dict[str, np.ndarray]  # by name (h, w) or (h, w, 3) in [0, 1], the network's own last


def read(path: str | os.PathLike, frame: Frame, invert: str = "auto") -> Tensor:
    """Read a picture for a network: `prepare` without the steps, (1, C, H, W) in [0, 1]."""
    return prepare(path, frame, invert).image


def prepare(
    path: str | os.PathLike, frame: Frame, invert: str = "auto", *, centre: bool | None = None
) -> Prepared:
    """Read a picture and bring it to what a network was trained on.

    Networks of digits get what MNIST did to its digits, see `pictures.centring`. A picture that
    already has the size of the whole pictures is left where it is. Others are resized to it, of 1
    or 3 channels. Transparent ground is made black under bright ink and white under dark ink.

    Parameters
    ----------
    path    any format that Pillow reads, of any depth.
    frame   what the network expects.
    invert  "yes", "no" or "auto": dark ink on a light ground is inverted; grey networks only.
    centre  whether to find, scale and centre the ink of grey pictures; None: if `frame.centred`.

    Raises
    ------
    ValueError  for what is not a picture, is too small or too large, or shows nothing.
    """
    channels, height, width = frame.whole
    size = (height, width)
    if channels not in (1, 3):
        raise ValueError(f"the network takes {channels} channels, a picture has 1 or 3")
    pixels = load(path, LONGEST)
    try:
        if channels == 3:
            steps = {"original": pixels, "input": _resize(pixels, *size)}
        elif frame.centred if centre is None else centre:
            centred = centring.mnist_style(pixels, invert=invert, size=size)
            steps = {name: getattr(centred, name) for name in CENTRED}
        else:
            steps = _inverted(centring.to_grey(pixels), size, invert)
    except ValueError as error:
        raise ValueError(f"'{path}': {error}") from error
    steps["input"] = frame.apply(steps["input"])
    planes = np.atleast_3d(steps["input"]).transpose(2, 0, 1)
    image = torch.from_numpy(np.ascontiguousarray(planes, np.float32))
    return Prepared(image[None].clamp(0, 1), steps)


def _inverted(grey: np.ndarray, size: tuple[int, int], invert: str) -> dict[str, np.ndarray]:
    bright = 1 - grey if foreground.is_dark_on_light(grey, invert) else grey
    return {"grey": grey, "inverted": bright, "input": _resize(bright[..., None], *size)[..., 0]}


def load(path: str | os.PathLike, longest: int | None = None) -> np.ndarray:
    """Any picture as RGB (h, w, 3) float32 in [0, 1], upright, on an opaque ground.

    Parameters
    ----------
    longest  a picture of twice as many pixels on its longer side, or more, is averaged down, to not
             less than this; None: never.

    Raises
    ------
    ValueError  for what is not a picture, or has too few or more than `LARGEST` pixels.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path) as file:
                _check_size(path, *file.size)
                if longest is not None:
                    file.draft(None, (longest, longest))  # JPEG: half, a quarter or an eighth
                picture = ImageOps.exif_transpose(file)
                if picture.mode.startswith(("I", "F")):
                    values = _unit(np.asarray(picture, dtype=np.float32))
                    values = np.asarray(_shorten(Image.fromarray(values), longest))
                    return np.repeat(values[..., None], 3, 2).clip(0, 1)
                picture = _shorten(picture.convert("RGBA"), longest)
                rgba = np.asarray(picture, dtype=np.float32) / 255
    except FileNotFoundError as error:
        raise ValueError(f"there is no file '{path}'") from error
    except _SizeError:
        raise
    except Exception as error:  # decoders of damaged files raise whatever they meet
        raise ValueError(f"'{path}' is not a picture that can be read ({error})") from error
    colour, alpha = rgba[..., :3], rgba[..., 3:]
    bright = (colour * alpha).sum() > 0.5 * 3 * alpha.sum()  # bright ink would vanish on white
    return colour * alpha + (1 - alpha) * (not bright)


class _SizeError(ValueError):
    """A picture is too large or too small."""


def _check_size(path, width: int, height: int) -> None:
    size = f"'{path}' is {width} x {height} pixels"
    if width * height > LARGEST:
        raise _SizeError(f"{size}, expected at most {LARGEST:,} in all")
    if min(width, height) < SMALLEST:
        raise _SizeError(f"{size}, expected at least {SMALLEST} on each side")


def _unit(values: np.ndarray) -> np.ndarray:
    """Grey values of any depth as [0, 1]: as they are, or over the largest value of that depth."""
    highest = float(values.max())
    if not np.isfinite(values).all():
        raise ValueError("it holds values that are no numbers")
    depths = (1, *(2**bits - 1 for bits in (8, 10, 12, 14, 16)))
    return values / next((top for top in depths if highest <= top), highest)


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
