"""Find picture files, and read them upright, on an opaque background, in [0, 1]."""

import difflib
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unicodedata import normalize

import numpy as np
from PIL import Image, ImageFile, ImageOps
from torch import Tensor

SMALLEST = 4  # pixels on each side
PHOTOMETRIC = 262  # TIFF tag: whether 0 is white; Pillow heeds it for 8 bits only
LARGEST = 50_000_000  # pixels in all
DARK = 64  # of 255: if no pixel of a set is as bright, its range is probably wrong
BYTE = 255  # largest value of 8 bits
MASK = re.compile(r"(.+)[\W_](?:masks?|segmentation|groundtruth)(?:[\W_]*\d+)?", re.I)
HIDDEN = (".", "__MACOSX")  # files and folders with these prefixes are ignored
STUBS = {"BUFR", "GRIB", "HDF5", "MPEG", "WMF"}  # formats that Pillow recognises but cannot read
HINTS = {  # for suffixes that are not read
    frozenset({".heic", ".heif"}): "to read .heic: pip install pillow-heif",
    frozenset({".dcm", ".dicom"}): "convert DICOM to PNG or TIFF, for example by pydicom",
}


def natural(name: str) -> tuple:
    """Return a key for natural sorting (2 before 11), the same for all Unicode forms of a name."""
    parts = re.split(r"(\d+)", normalize("NFC", name))
    return [int(part) if part.isdecimal() else part for part in parts], name


def folders(root: Path) -> list[Path]:
    """Return the folders in a folder that are not hidden, in natural order."""
    found = [p for p in root.iterdir() if p.is_dir() and not p.name.startswith(HIDDEN)]
    return sorted(found, key=lambda path: natural(path.name))


def listing(root: Path, *, below: bool = True) -> tuple[list[Path], Counter]:
    """Return the picture files in a folder, and the number of other files by suffix.

    Files count as pictures by their suffix. Hidden files and folders count as "hidden", and masks
    beside their pictures (x_mask.png of x.png) as "mask". With `below`, subfolders are read, too; a
    folder that several links lead to is read once. The order is that of torchvision's ImageFolder.
    OSError for a folder that cannot be read.
    """
    pictures: list[Path] = []
    others: Counter[str] = Counter()
    known = set()
    for folder, inner, files in os.walk(root, followlinks=True, onerror=_raise):
        known.add(os.path.realpath(folder))
        others["hidden"] += sum(name.startswith(HIDDEN) for name in (*inner, *files))
        inner[:] = [
            name
            for name in inner
            if below
            and not name.startswith(HIDDEN)
            and os.path.realpath(os.path.join(folder, name)) not in known
        ]
        for name in (name for name in files if not name.startswith(HIDDEN)):
            if (ending := Path(name).suffix.lower()) in _endings():
                pictures.append(Path(folder, name))
            else:
                others[ending] += 1
    stems = {path.with_suffix("") for path in pictures}
    masks = {
        path
        for path in pictures
        if (found := MASK.fullmatch(path.stem)) and path.parent / found[1].rstrip(" _-") in stems
    }
    others["mask"] += len(masks)
    pictures = [path for path in pictures if path not in masks]
    return sorted(pictures, key=lambda path: (str(path.parent), path.name)), +others


def absent(path) -> str:
    """Return a text that a path does not exist, with a similar name if there is one."""
    place = Path(path).expanduser()
    others = {p.name: p for p in place.parent.iterdir()} if place.parent.is_dir() else {}
    for name in difflib.get_close_matches(place.name, others, 1):
        kind = "folder" if others[name].is_dir() else "file"
        return f"is not there: did you mean the {kind} '{Path(path).with_name(name)}'?"
    return "is not there"


def _raise(error: OSError) -> None:
    raise error


@cache
def _endings() -> frozenset[str]:
    with suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener()
    known = Image.registered_extensions()  # includes PDF, which Pillow can only write
    readable = set(Image.OPEN) - STUBS
    return frozenset(ending for ending, kind in known.items() if kind in readable)


def in_words(others: Counter) -> str:
    """Return a text with the numbers of other files, from `listing`; "" if there are none."""
    kinds = {ending: n for ending, n in others.most_common() if ending not in ("hidden", "mask")}
    texts = []
    if kinds:
        each = ", ".join(f"{n} {ending or 'without ending'}" for ending, n in kinds.items())
        hints = [hint for endings, hint in HINTS.items() if endings & set(kinds)]
        about = "; ".join([each, *hints])
        texts.append(f"{sum(kinds.values())} files that are not pictures ({about})")
    if others["mask"]:
        texts.append(f"{others['mask']} masks of the pictures beside them")
    if others["hidden"]:
        texts.append(f"{others['hidden']} hidden files or folders")
    return "; ".join(texts)


class Kind(NamedTuple):
    """Properties of a picture file, from its header."""

    name: str  # format, colours and depth
    size: tuple[int, int]  # width and height in pixels
    bits: int  # of a value in the file
    over: int  # divisor of the values: BYTE for 8 bits, 65,535 for larger integers, 1 for floats
    pages: int


def kinds(files: Iterable) -> list[Kind]:
    """Read the headers of picture files; those that cannot be read are skipped."""
    found = []
    for path in files:
        with suppress(Exception), Image.open(path) as file:  # decoders raise anything
            bits = 16 if "16" in _stored(file) else 32 if file.mode in "IF" else 8
            mode = "grey" if file.mode[0] in "1LIF" else file.mode
            over = {"I": 65535, "F": 1}.get(file.mode[0], BYTE)
            pages = 1 if file.format == "MPO" else getattr(file, "n_frames", 1)
            name = f"{file.format} {mode} of {bits} bits"
            found.append(Kind(name, file.size, bits, over, pages))
    return found


def described(kinds: Sequence[Kind]) -> list[str]:
    """Return one line with formats, depths and sizes of picture files; [] if there are none."""
    if not kinds:
        return []
    counts = Counter(one.name for one in kinds).most_common()
    wide, tall = (f"{min(s)} to {max(s)}" for s in zip(*(one.size for one in kinds), strict=True))
    each = ", ".join(f"{n} {name}" for name, n in counts)
    return [f"pictures: {each}; width {wide}, height {tall} pixels"]


def doubts(kinds: Sequence[Kind], top: float = 0, *, alike: bool = True) -> list[str]:
    """Return warnings about picture files; `top` and `alike` are as for `load`."""
    lines = []
    named = top and any(one.over == BYTE for one in kinds)
    if named or (alike and len({one.over for one in kinds}) > 1):
        by = Counter((one.bits, one.over if one.over == BYTE else top or one.over) for one in kinds)
        each = ", ".join(f"{n} of {bits} bits by {over:,g}" for (bits, over), n in by.items())
        what = "--range is for grey of more than 8 bits" if named else "depths differ"
        lines.append(f"{what}: pictures are divided, {each}")
    if deep := sum(one.bits > 8 and one.over == BYTE for one in kinds):
        lines.append(f"{deep} pictures of 16 bits, in colour or transparent, are read with 8")
    if several := [one.pages for one in kinds if one.pages > 1]:
        count = len(several)
        lines.append(
            f"{count} files hold several pictures: the first of each is used, and "
            f"{sum(several) - count} more are left out"
        )
    return lines


def _stored(file: ImageFile.ImageFile) -> str:
    """Return a picture's mode and the format of its pixels in the file, e.g. "RGB RGB;16B"."""
    formats = file.tile[0][3] if file.tile else ()
    parts = formats if isinstance(formats, tuple) else (formats,)
    return " ".join([file.mode, *(part for part in parts if isinstance(part, str))])


def too_dark(brightest: int, largest: float = 0) -> str | None:
    """Return a warning if the brightest pixel of a set, of 255, lies far below the range.

    It proposes the `largest` value of arrays as the range. If that is 0 (unknown), it proposes one
    for 16-bit files, and to scale data without a range: 8-bit pictures, and tensors for `Dataset`.
    """
    if not 0 < brightest < DARK:
        return None
    line = f"no pixel is brighter than {brightest} of 255: name the largest value by --range, e.g. "
    other = "with a network of your own --data-option range=N"
    if largest:
        return f"{line}--range {largest:g}, the largest of these arrays ({other})"
    least = (brightest - 0.5) / 255 * 65535
    bits = next(bits for bits in (8, 10, 12, 14) if 2**bits > least)
    return (
        f"{line}--range {2**bits - 1} for {bits}-bit data in 16-bit files ({other}); others "
        f"multiply by 255 / {brightest} yourself"
    )


def load(path, longest: int | None = None, *, alike: bool = False, top: float = 0) -> np.ndarray:
    """Read a picture as RGB (h, w, 3) float32 in [0, 1], upright, on an opaque background.

    Parameters
    ----------
    path     path of a file, or an open file.
    longest  if the longer side has at least twice as many pixels, the picture is downsampled by a
             whole number, to at least this; None: never.
    alike    treat all pictures of a set the same way: a transparent background becomes white,
             integers of more than 8 bits are divided by 65,535, and floats are unchanged. False:
             choose background and scale by the picture.
    top      largest value of grey pictures of more than 8 bits; 0: see `alike`.

    ValueError for files that are not pictures, too few or too many pixels, signed values (below
    -1 % of the largest) and values above `top`; TypeError for arrays.
    """
    if not (isinstance(path, str | os.PathLike) or hasattr(path, "read")):
        raise TypeError(f"expected the path of a picture file, got {type(path).__name__}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path) as file:
                if file.width * file.height > LARGEST or min(file.size) < SMALLEST:
                    raise ValueError(
                        f"it is {file.width} x {file.height} pixels, expected at least {SMALLEST} "
                        f"on each side and at most {LARGEST:,} in all"
                    )
                if longest is not None:
                    file.draft(None, (longest, longest))  # JPEG: half, a quarter or an eighth
                picture = ImageOps.exif_transpose(file)
                white_is_zero = getattr(file, "tag_v2", {}).get(PHOTOMETRIC) == 0
                if picture.mode.startswith(("I", "F")):
                    values = np.asarray(picture, dtype=np.float32)
                    of_mode = 65535 if picture.mode.startswith("I") else 1
                    values = _unit(values, top or (of_mode if alike else 0))
                    values = 1 - values if white_is_zero else values
                    values = np.asarray(_shorten(Image.fromarray(values), longest))
                    return np.repeat(values[..., None], 3, 2).clip(0, 1)
                picture = _shorten(picture.convert("RGBA"), longest)
                rgba = np.asarray(picture, dtype=np.float32) / 255
    except FileNotFoundError as error:
        raise ValueError(f"there is no file '{path}'") from error
    except Exception as error:  # decoders raise anything for damaged files
        what = _what(path, error)
        raise ValueError(f"'{path}' is not a picture that can be read ({what})") from error
    colour, alpha = rgba[..., :3], rgba[..., 3:]
    # bright strokes would vanish on white
    bright = not alike and (colour * alpha).sum() > 0.5 * 3 * alpha.sum()
    return colour * alpha + (1 - alpha) * (not bright)


def height_and_width(size) -> tuple[int, int]:
    """Return (H, W) in pixels of an `image_size`, which is the side of a square or (H, W)."""
    sides = tuple(size) if isinstance(size, Sequence) else (size, size)
    if len(sides) != 2 or not all(isinstance(one, int) and one > 0 for one in sides):
        raise ValueError(f"image_size must be pixels, as 32 or [48, 64] (H, W), got {size}")
    return sides


def cover(pixels: np.ndarray, size, channels: int) -> Tensor:
    """Resize a picture (h, w, 3) until it covers `size` and crop the centre, as for class folders.

    The picture is that of `load(path, alike=True)`; the result is (C, H, W) uint8, with 1 channel
    for grey or 3 for colour. `size` is that of `height_and_width`.
    """
    from torchvision.transforms.functional import pil_to_tensor  # takes time to import

    picture = Image.fromarray((pixels * 255).round().astype("uint8"))
    picture = picture.convert("L" if channels == 1 else "RGB")
    return pil_to_tensor(covering(picture, pixels.shape[:2], size))


def covering(picture, own: tuple[int, int], size):
    """Resize a PIL image, or images (N, C, h, w), from `own` (h, w) to cover `size`, and crop."""
    from torchvision.transforms import functional

    (height, width), (h, w) = height_and_width(size), own
    whole = [max(height, width * h // w), max(width, height * w // h)]
    return functional.center_crop(
        functional.resize(picture, whole, antialias=True), [height, width]
    )


def _what(path, error: Exception) -> str:
    """Return why a file cannot be read: because it is DICOM, or else the error."""
    with suppress(Exception), open(path, "rb") as file:
        if file.read(132)[128:] == b"DICM":
            return "it is DICOM: convert it to PNG or TIFF, for example by pydicom"
    return str(error)


def _unit(values: np.ndarray, top: float) -> np.ndarray:
    """Divide grey values by `top`; 0: by the largest value of the smallest depth that fits."""
    low, high = float(values.min()), float(values.max())
    if not np.isfinite(values).all():
        raise ValueError("it holds values that are not numbers")
    if low < -0.01 * high:
        raise ValueError(
            f"its values are {low:g} to {high:g}, and signed ones are not read: add {-low:g} to "
            "them, and name the largest value by --range"
        )
    if not top:
        depths = (1, *(2**bits - 1 for bits in (8, 10, 12, 14, 16)))
        top = next((depth for depth in depths if high <= depth), high)
    if high > top:
        raise ValueError(
            f"its values are {low:g} to {high:g}, expected 0 to {top:,g}: name the largest value "
            "by --range"
        )
    return values / top


def _shorten(picture: Image.Image, longest: int | None) -> Image.Image:
    """Downsample by a whole number, to less than twice `longest` pixels."""
    by = 1 if longest is None else max(picture.size) // longest
    return picture.reduce(by) if by > 1 else picture
