"""Read any picture: upright, on an opaque ground, in [0, 1]."""

from __future__ import annotations

import os
import warnings

import numpy as np
from PIL import Image, ImageOps

SMALLEST = 4  # pixels: less shows nothing
LARGEST = 50_000_000  # pixels in all, before a picture is refused


def load(path: str | os.PathLike, longest: int | None = None, *, alike: bool = False) -> np.ndarray:
    """Any picture as RGB (h, w, 3) float32 in [0, 1], upright, on an opaque ground.

    Parameters
    ----------
    longest  a picture of twice as many pixels on its longer side, or more, is averaged down, to not
             less than this; None: never.
    alike    as all pictures of a set: transparent ground is white, whole numbers of more than 8
             bits are over 65,535, and fractions stay as they are. False: ground and scale are
             chosen by what the picture shows.

    Raises
    ------
    ValueError  for what is not a picture, or has too few or more than `LARGEST` pixels; of a set,
                for values beyond those.
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
                    values = np.asarray(picture, dtype=np.float32)
                    values = _over(values, picture.mode) if alike else _unit(values)
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
    # bright ink would vanish on white
    bright = not alike and (colour * alpha).sum() > 0.5 * 3 * alpha.sum()
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


def _over(values: np.ndarray, mode: str) -> np.ndarray:
    """Grey values as [0, 1], on one scale for all pictures of a mode of Pillow's."""
    top = 65535 if mode.startswith("I") else 1
    if not (values.min() >= 0 and values.max() <= top):
        raise ValueError(
            f"its values are {values.min():g} to {values.max():g}, expected 0 to {top:,}"
        )
    return values / top


def _shorten(picture: Image.Image, longest: int | None) -> Image.Image:
    """Averaged down by a whole number, to less than twice `longest` pixels."""
    by = 1 if longest is None else max(picture.size) // longest
    return picture.reduce(by) if by > 1 else picture
