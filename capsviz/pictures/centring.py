"""Prepare a drawing or a photograph as MNIST's digits: bright on black, scaled, centred.

MNIST's digits were scaled into a box of 20 x 20 pixels, keeping their shape, and put into 28 x 28
with their centre of mass in the middle (LeCun, Cortes & Burges, yann.lecun.com/exdb/mnist).
`capsviz.pictures.foreground` finds the strokes on uneven paper before that.
"""

from __future__ import annotations

import numpy as np
from PIL import Image
from scipy import ndimage

from capsviz.pictures import foreground

BOX = 20 / 28  # longer side of the strokes, as a share of the shorter side of the output
WORKING = 400  # pixels: longer pictures are averaged down to this before strokes are found
FINEST = 1.7  # pixels of the output: thinner strokes are thickened to this


def mnist_style(
    image: np.ndarray, *, invert: str = "auto", size: tuple[int, int] = (28, 28)
) -> dict[str, np.ndarray]:
    """Prepare a drawing, scan or photograph as MNIST's digits were prepared.

    Strokes are separated from the paper, dirt is removed, and thin strokes are thickened. An image,
    (h, w) or (h, w, 3) in [0, 1] or uint8, that has `size` (H, W) is not scaled or centred.
    `invert` is that of `foreground.is_dark_on_light`.

    Returns the steps, float32 in [0, 1]: `grey`; `inverted`, with bright strokes; `ink`, strokes
    without background, downsized if large; `cropped`, the box around them; and `input` (H, W).
    ValueError for another shape or `invert`, or an empty picture.
    """
    grey = to_grey(image)
    small = foreground.average(grey, WORKING)
    if np.ptp(small) < foreground.CONTRAST:
        raise ValueError("the picture is empty: all its pixels are nearly the same grey")
    prepared = grey.shape == tuple(size)
    dark = foreground.is_dark_on_light(small, invert)
    if invert == "auto" and not dark and not prepared:
        sheet = foreground.find_sheet(small)
        if sheet is not None:
            dark, small = True, small[sheet]
    inverted, small = (1 - grey, 1 - small) if dark else (grey, small)
    ink = cropped = placed = inverted
    if not prepared:
        ink, mask = foreground.find_strokes(small)
        rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
        box = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        cropped = thicken(box, BOX * min(size))
        placed = place(cropped, size)
    return {"grey": grey, "inverted": inverted, "ink": ink, "cropped": cropped, "input": placed}


def thicken(strokes: np.ndarray, box: float) -> np.ndarray:
    """Thicken bright strokes (h, w) on black to `FINEST` pixels in a box of `box` pixels.

    A pen on paper is finer, for its size, than the strokes of MNIST.
    """
    scale = max(strokes.shape) / box
    depth = ndimage.distance_transform_edt(np.pad(strokes > 0.5, 1))
    ridge = depth[(depth == ndimage.maximum_filter(depth, 3)) & (depth > 0)]
    missing = FINEST * scale - 2 * float(np.median(ridge)) if len(ridge) else 0
    by = round(missing / 2)
    if by < 1:
        return strokes
    y, x = np.mgrid[-by : by + 1, -by : by + 1]
    return ndimage.grey_dilation(np.pad(strokes, by), footprint=y**2 + x**2 <= by**2)


def place(strokes: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Scale bright strokes (h, w) on black to the box, and centre them by mass: (H, W) float32."""
    factor = BOX * min(size) / max(strokes.shape)
    height, width = (max(1, round(side * factor)) for side in strokes.shape)
    small = np.asarray(Image.fromarray(strokes).resize((width, height), Image.Resampling.BOX))
    small = np.clip(small / max(small.max(), 1e-6), 0, 1)
    out = np.zeros(size, np.float32)
    corner = []
    for axis, length in enumerate((height, width)):
        mass = small.sum(1 - axis)
        middle = float((mass * np.arange(length)).sum() / mass.sum())
        free = size[axis] - length
        corner.append(min(max(round((size[axis] - 1) / 2 - middle), 0), free))
    out[corner[0] : corner[0] + height, corner[1] : corner[1] + width] = small
    return out


def to_grey(image: np.ndarray) -> np.ndarray:
    """Convert (h, w) or (h, w, 3), in [0, 1] or uint8, to grey (h, w) float32 in [0, 1]."""
    image = np.asarray(image)
    if image.dtype == np.uint8:
        image = image / np.float32(255)
    if image.ndim == 3 and image.shape[2] == 3:
        image = image @ np.array([0.299, 0.587, 0.114], np.float32)
    if image.ndim != 2 or 0 in image.shape:
        raise ValueError(f"an image of shape {image.shape}: expected (h, w) or (h, w, 3)")
    return np.clip(image.astype(np.float32), 0, 1)
