"""Find pictures, and read any of them: upright, on an opaque ground, in [0, 1]."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps
from torch import Tensor

SMALLEST = 4  # pixels on each side
LARGEST = 50_000_000  # pixels in all
HIDDEN = (".", "__MACOSX")  # names that begin so are ignored


def folders(root: Path) -> list[Path]:
    """Return the folders in a folder that are not hidden, sorted by name."""
    return sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith(HIDDEN))


def listing(root: Path) -> tuple[list[Path], Counter]:
    """Return the pictures in a folder and below, by their endings, and other files by ending.

    Hidden files and folders are ignored. The order is that of torchvision's ImageFolder.
    """
    pictures: list[Path] = []
    others: Counter[str] = Counter()
    walked = []
    for place, below, files in os.walk(root, followlinks=True):
        below[:] = [name for name in below if not name.startswith(HIDDEN)]
        walked.append((place, files))
    for place, files in sorted(walked):
        for name in sorted(files):
            ending = Path(name).suffix.lower()
            if ending in _endings():
                pictures.append(Path(place, name))
            elif not name.startswith(HIDDEN):
                others[ending] += 1
    return [path for path in pictures if not path.name.startswith(HIDDEN)], others


@cache
def _endings() -> frozenset[str]:
    known = Image.registered_extensions()  # among them PDF, which Pillow can only write
    return frozenset(ending for ending, kind in known.items() if kind in Image.OPEN)


def load(path: str | os.PathLike, longest: int | None = None, *, alike: bool = False) -> np.ndarray:
    """Read a picture as RGB (h, w, 3) float32 in [0, 1], upright, on an opaque ground.

    Parameters
    ----------
    longest  a picture with a longer side of at least twice as many pixels is averaged down, to at
             least this; None: never.
    alike    treat all pictures of a set the same way: transparent ground is white, integers of more
             than 8 bits are divided by 65,535, and floats are unchanged. False: ground and scale
             are chosen by the picture.

    ValueError for files that are not pictures, too few or too many pixels, and, if `alike`, values
    outside that range.
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
    except Exception as error:  # decoders raise anything for damaged files
        raise ValueError(
            f"'{path}' is not a picture that can be read, as a PNG or JPEG file ({error})"
        ) from error
    colour, alpha = rgba[..., :3], rgba[..., 3:]
    # bright ink would vanish on white
    bright = not alike and (colour * alpha).sum() > 0.5 * 3 * alpha.sum()
    return colour * alpha + (1 - alpha) * (not bright)


def square(pixels: np.ndarray, side: int, channels: int) -> Tensor:
    """Resize the shorter side of a picture (h, w, 3) and crop the centre, as for class folders.

    The picture is that of `load(path, alike=True)`; the result is (C, side, side) uint8, with 1
    channel for grey or 3 for colour.
    """
    from torchvision.transforms import functional  # takes time to import

    picture = Image.fromarray((pixels * 255).round().astype("uint8"))
    picture = picture.convert("L" if channels == 1 else "RGB")
    picture = functional.center_crop(functional.resize(picture, side, antialias=True), side)
    return functional.pil_to_tensor(picture)


class _SizeError(ValueError):
    """A picture is too large or too small."""


def _check_size(path, width: int, height: int) -> None:
    size = f"'{path}' is {width} x {height} pixels"
    if width * height > LARGEST:
        raise _SizeError(f"{size}, expected at most {LARGEST:,} in all")
    if min(width, height) < SMALLEST:
        raise _SizeError(f"{size}, expected at least {SMALLEST} on each side")


def _unit(values: np.ndarray) -> np.ndarray:
    """Return grey values of any depth in [0, 1]: divided by the largest value of that depth."""
    highest = float(values.max())
    if not np.isfinite(values).all():
        raise ValueError("it holds values that are not numbers")
    depths = (1, *(2**bits - 1 for bits in (8, 10, 12, 14, 16)))
    return values / next((top for top in depths if highest <= top), highest)


def _over(values: np.ndarray, mode: str) -> np.ndarray:
    """Return grey values in [0, 1], on one scale for all pictures of a Pillow mode."""
    top = 65535 if mode.startswith("I") else 1
    if not (values.min() >= 0 and values.max() <= top):
        raise ValueError(
            f"its values are {values.min():g} to {values.max():g}, expected 0 to {top:,}"
        )
    return values / top


def _shorten(picture: Image.Image, longest: int | None) -> Image.Image:
    """Average down by a whole number, to less than twice `longest` pixels."""
    by = 1 if longest is None else max(picture.size) // longest
    return picture.reduce(by) if by > 1 else picture
