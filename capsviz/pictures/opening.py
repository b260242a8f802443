"""Find pictures, and read any of them: upright, on an opaque ground, in [0, 1]."""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageFile, ImageOps
from torch import Tensor

SMALLEST = 4  # pixels on each side
PHOTOMETRIC = 262  # of TIFF: what 0 means; Pillow heeds it in pictures of 8 bits alone
LARGEST = 50_000_000  # pixels in all
DARK = 64  # of 255: a set without brighter pixels lies far below its range
HIDDEN = (".", "__MACOSX")  # names that begin so are ignored
STUBS = {"BUFR", "GRIB", "HDF5", "MPEG", "WMF"}  # formats that Pillow knows and cannot read
PHONES = {".heic", ".heif"}


def natural(name: str) -> tuple:
    """Return the key that sorts names by the numbers in them: 2 before 11."""
    parts = re.split(r"(\d+)", name)
    return [int(part) if part.isdecimal() else part for part in parts], name


def folders(root: Path) -> list[Path]:
    """Return the folders in a folder that are not hidden, sorted by name, numbers by value."""
    found = [p for p in root.iterdir() if p.is_dir() and not p.name.startswith(HIDDEN)]
    return sorted(found, key=lambda path: natural(path.name))


def listing(root: Path, *, below: bool = True) -> tuple[list[Path], Counter]:
    """Return the pictures in a folder, by their endings, and its other files by ending.

    Hidden files and folders are ignored; a folder that links lead to twice is read once. The order
    is that of torchvision's ImageFolder. `below` says whether to read the folders in it, too.
    OSError for a folder that cannot be read.
    """
    pictures: list[Path] = []
    others: Counter[str] = Counter()
    walked, known = [], set()
    for place, inner, files in os.walk(root, followlinks=True, onerror=_refuse):
        known.add(os.path.realpath(place))
        inner[:] = [
            name
            for name in inner
            if below
            and not name.startswith(HIDDEN)
            and os.path.realpath(os.path.join(place, name)) not in known
        ]
        walked.append((place, files))
    for place, files in sorted(walked):
        for name in sorted(files):
            if name.startswith(HIDDEN):
                continue
            if (ending := Path(name).suffix.lower()) in _endings():
                pictures.append(Path(place, name))
            else:
                others[ending] += 1
    return pictures, others


def _refuse(error: OSError) -> None:
    raise error


@cache
def _endings() -> frozenset[str]:
    with suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener()
    known = Image.registered_extensions()  # among them PDF, which Pillow can only write
    readable = set(Image.OPEN) - STUBS
    return frozenset(ending for ending, kind in known.items() if kind in readable)


def in_words(others: Counter) -> str:
    """Return how many files are no pictures, by ending; "" for none."""
    if not others:
        return ""
    kinds = ", ".join(f"{n} {ending or 'without ending'}" for ending, n in others.most_common())
    hint = "; to read .heic: pip install pillow-heif" if PHONES & set(others) else ""
    return f"{sum(others.values())} files that are not pictures ({kinds}{hint})"


def headers(paths: Sequence[Path]) -> list[str]:
    """Return lines about picture files: formats, sizes, modes and depth, by their headers alone."""
    sizes, kinds = [], Counter[str]()
    frames = deep = 0
    for path in paths:
        with suppress(Exception), Image.open(path) as file:  # decoders raise anything
            sizes.append(file.size)
            bits = 16 if "16" in _stored(file) else 32 if file.mode in "IF" else 8
            mode = "grey" if file.mode[0] in "1LIF" else file.mode
            kinds[f"{file.format} {mode} of {bits} bits"] += 1
            frames += file.format != "MPO" and getattr(file, "n_frames", 1) > 1
            deep += bits > 8 and file.mode in ("RGB", "RGBA")
    if not sizes:
        return []
    least, most = (how(sizes, key=lambda size: size[0] * size[1]) for how in (min, max))
    lines = [
        f"pictures: {', '.join(f'{n} {kind}' for kind, n in kinds.most_common())}; "
        f"{least[0]} x {least[1]} to {most[0]} x {most[1]} pixels"
    ]
    if frames:
        lines.append(f"WARN {frames} files hold several pictures: only the first of each is used")
    if deep:
        lines.append(f"WARN {deep} colour pictures of 16 bits are read with 8")
    return lines


def _stored(file: ImageFile.ImageFile) -> str:
    """Return the mode of a picture and the format of its pixels in the file, as "RGB;16B"."""
    formats = file.tile[0][3] if file.tile else ()
    parts = formats if isinstance(formats, tuple) else (formats,)
    return " ".join([file.mode, *(part for part in parts if isinstance(part, str))])


def too_dark(brightest: int) -> str | None:
    """Return one line if the brightest pixel of a set, of 255, lies far below its range."""
    if not 0 < brightest < DARK:
        return None
    least = (brightest - 0.5) / 255 * 65535
    bits = next(bits for bits in (8, 10, 12, 14) if 2**bits > least)
    return (
        f"no pixel is brighter than {brightest} of 255: name the largest value by --range, e.g. "
        f"--range {2**bits - 1} for {bits} bits in files of 16"
    )


def load(path, longest: int | None = None, *, alike: bool = False, top: float = 0) -> np.ndarray:
    """Read a picture as RGB (h, w, 3) float32 in [0, 1], upright, on an opaque ground.

    Parameters
    ----------
    path     of a file, or an open one.
    longest  a picture with a longer side of at least twice as many pixels is averaged down, to at
             least this; None: never.
    alike    treat all pictures of a set the same way: transparent ground is white, integers of more
             than 8 bits are divided by 65,535, and floats are unchanged. False: ground and scale
             are chosen by the picture.
    top      the largest value of grey pictures of more than 8 bits; 0: as `alike` says.

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
                negative = getattr(file, "tag_v2", {}).get(PHOTOMETRIC) == 0  # 0 is white
                if picture.mode.startswith(("I", "F")):
                    values = np.asarray(picture, dtype=np.float32)
                    of_mode = 65535 if picture.mode.startswith("I") else 1
                    scaled = alike or top
                    values = _over(values, top or of_mode) if scaled else _unit(values)
                    values = 1 - values if negative else values
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


def _over(values: np.ndarray, top: float) -> np.ndarray:
    """Return grey values in [0, 1], divided by `top`; ValueError for values beyond it."""
    if not (values.min() >= 0 and values.max() <= top):
        raise ValueError(
            f"its values are {values.min():g} to {values.max():g}, expected 0 to {top:,g}: name "
            "the largest value by --range"
        )
    return values / top


def _shorten(picture: Image.Image, longest: int | None) -> Image.Image:
    """Average down by a whole number, to less than twice `longest` pixels."""
    by = 1 if longest is None else max(picture.size) // longest
    return picture.reduce(by) if by > 1 else picture
