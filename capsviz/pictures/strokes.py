"""Bring the strokes of a drawing or photograph to the style of MNIST: bright on black, centred.

MNIST's digits were scaled into a box of 20 x 20 pixels, keeping their shape, and put into 28 x 28
with their centre of mass in the middle (LeCun, Cortes & Burges, yann.lecun.com/exdb/mnist). The
strokes are first separated from the paper, which may be lit unevenly.
"""

import numpy as np
import scipy
from PIL import Image

from capsviz.discovery import require_known

BOX = 20 / 28  # longer side of the strokes, as a share of the shorter side of the output
WORKING = 400  # pixels: longer pictures are downsampled to this before strokes are found
FINEST = 1.7  # pixels of the output: thinner strokes are thickened to this
INVERT = ("auto", "yes", "no")
CONTRAST = 0.15  # least contrast of strokes
FINE = 100  # pixels: in pictures of this length or more, single pixels count as noise
PAPER = 1 / 3  # width of a window that always shows some paper, as a share of the longer side
EVEN = 0.15  # largest interquartile range of an evenly lit border, as a share of the range
FULL = 0.5  # least brightness of a piece of stroke
SPECK = 0.03  # pieces smaller than this share of the largest piece are dirt
INSIDE = 0.2  # pieces at the border are dropped if one inside has this share of the largest
SHEET = 0.15  # least area of a sheet of paper on a table, as a share of the picture
AROUND = 0.75  # least share of the border of its box that belongs to the sheet
MARGIN = 0.05  # share of its box that is cut off on each side of a sheet


def mnist_style(
    image: np.ndarray, *, invert: str = "auto", size: tuple[int, int] = (28, 28)
) -> dict[str, np.ndarray]:
    """Prepare a drawing, scan or photograph in the same way as MNIST's digits.

    The image is (h, w) or (h, w, 3), in [0, 1] or uint8. Strokes are separated from the paper, dirt
    is removed, and thin strokes are thickened. An image that already has `size` (H, W) is only made
    bright on black. `invert` is that of `is_dark_on_light`.

    Returns the steps, float32 in [0, 1]: `grey`; `inverted`, with bright strokes; `ink`, strokes
    without background, downsized if large; `cropped`, the box around them; and `input` (H, W).
    ValueError for another shape or `invert`, or an empty picture.
    """
    grey = to_grey(image)
    small = average(grey, WORKING)
    if np.ptp(small) < CONTRAST:
        raise ValueError("the picture is empty: all its pixels are nearly the same grey")
    prepared = grey.shape == tuple(size)
    dark = is_dark_on_light(small, invert)
    if invert == "auto" and not dark and not prepared:
        sheet = find_sheet(small)
        if sheet is not None:
            dark, small = True, small[sheet]
    inverted, small = (1 - grey, 1 - small) if dark else (grey, small)
    ink = cropped = placed = inverted
    if not prepared:
        ink, mask = find_strokes(small)
        rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
        box = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        cropped = thicken(box, BOX * min(size))
        placed = place(cropped, size)
    return {"grey": grey, "inverted": inverted, "ink": ink, "cropped": cropped, "input": placed}


def thicken(strokes: np.ndarray, box: float) -> np.ndarray:
    """Thicken bright strokes (h, w) on black to `FINEST` pixels in a box of `box` pixels.

    Strokes of a pen are thinner, relative to the digit, than those of MNIST.
    """
    scale = max(strokes.shape) / box
    depth = scipy.ndimage.distance_transform_edt(np.pad(strokes > 0.5, 1))
    ridge = depth[(depth == scipy.ndimage.maximum_filter(depth, 3)) & (depth > 0)]
    missing = FINEST * scale - 2 * float(np.median(ridge)) if len(ridge) else 0
    by = round(missing / 2)
    if by < 1:
        return strokes
    y, x = np.mgrid[-by : by + 1, -by : by + 1]
    return scipy.ndimage.grey_dilation(np.pad(strokes, by), footprint=y**2 + x**2 <= by**2)


def place(strokes: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Scale bright strokes (h, w) on black to the box, and centre their mass: (H, W) float32."""
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


def average(grey: np.ndarray, longest: int) -> np.ndarray:
    """Downsample a picture (h, w) or (h, w, C) to at most `longest` pixels a side, by averages."""
    if grey.ndim == 3:
        return np.stack([average(channel, longest) for channel in np.moveaxis(grey, 2, 0)], 2)
    factor = longest / max(grey.shape)
    if factor >= 1:
        return grey
    height, width = (max(1, round(side * factor)) for side in grey.shape)
    return np.asarray(Image.fromarray(grey).resize((width, height), Image.Resampling.BOX))


def is_dark_on_light(grey: np.ndarray, invert: str = "auto") -> bool:
    """Return whether the strokes of a picture (h, w) in [0, 1] are darker than the background.

    `invert` is "yes", "no", or "auto" to find out. If the border is evenly lit, its brightness
    decides. Otherwise the skewness of the difference to the local median decides, because strokes
    cover less area than paper.
    """
    require_known("inversion", invert, INVERT)
    if invert != "auto":
        return invert == "yes"
    border = _border(grey)
    if np.ptp(np.percentile(border, (25, 75))) < EVEN * np.ptp(grey):
        return bool(np.median(border) > (grey.min() + grey.max()) / 2)
    coarse = average(grey, FINE)
    side = max(5, round(PAPER * max(coarse.shape)))
    off = coarse - scipy.ndimage.median_filter(coarse, side, mode="nearest")
    return bool((off**3).sum() < 0)


def find_sheet(grey: np.ndarray) -> tuple[slice, slice] | None:
    """Return rows and columns of a light sheet with dark strokes on a dark table, or None.

    The sheet is the largest light piece of the picture (h, w); it must surround its content.
    """
    labels, _ = scipy.ndimage.label(grey > otsu(grey))
    largest = int(np.bincount(labels.ravel())[1:].argmax())
    rows, columns = scipy.ndimage.find_objects(labels)[largest]
    inner = _shrink(rows), _shrink(columns)
    sheet = grey[inner]
    if sheet.size < SHEET * grey.size or np.ptp(sheet) < CONTRAST:
        return None
    if (_border(labels[inner]) == largest + 1).mean() < AROUND:
        return None
    return inner if is_dark_on_light(sheet) else None


def _shrink(side: slice) -> slice:
    by = round(MARGIN * (side.stop - side.start))
    return slice(side.start + by, side.stop - by)


def find_strokes(bright: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Separate bright strokes (h, w) from the background: strokes (h, w) in [0, 1], and their mask.

    The mask is where the difference to the background is above Otsu's threshold. In the strokes,
    half of the threshold is mapped to 0, and the median of the mask to 1. ValueError if nothing is
    brighter than its surroundings.
    """
    above = stands_out(bright)
    if above.max() < CONTRAST:
        raise ValueError("the picture is empty: nothing differs from its background")
    threshold = otsu(above)
    mask = _without_dirt(above > threshold)
    full = np.median(above[mask])
    near = scipy.ndimage.binary_dilation(mask, iterations=2)
    strokes = np.clip((above - threshold / 2) / max(full - threshold / 2, 1e-6), 0, 1) * near
    return strokes.astype(np.float32), mask


def stands_out(bright: np.ndarray) -> np.ndarray:
    """Return each pixel's difference (h, w) to the background, a wide grey opening."""
    smooth = (
        scipy.ndimage.median_filter(bright, 3, mode="nearest")
        if max(bright.shape) >= FINE
        else bright
    )
    side = max(5, round(PAPER * max(bright.shape)))
    around = np.pad(smooth, side, mode="reflect", reflect_type="odd")  # continues light gradients
    return smooth - scipy.ndimage.grey_opening(around, (side, side))[side:-side, side:-side]


def otsu(values: np.ndarray, bins: int = 256) -> float:
    """Return the threshold that minimises the variance within both classes (Otsu 1979)."""
    counts, edges = np.histogram(values, bins)
    middles = (edges[:-1] + edges[1:]) / 2
    below = counts.cumsum()[:-1]
    above = counts.sum() - below
    total = (counts * middles).cumsum()
    means = total[:-1] / np.maximum(below, 1), (total[-1] - total[:-1]) / np.maximum(above, 1)
    return float(edges[1 + (below * above * (means[0] - means[1]) ** 2).argmax()])


def _without_dirt(mask: np.ndarray) -> np.ndarray:
    """Drop small pieces, and pieces at the border if a piece inside is large enough."""
    labels, _ = scipy.ndimage.label(mask, np.ones((3, 3)))
    areas = np.bincount(labels.ravel())
    areas[0] = 0
    inside = areas.copy()
    inside[_border(labels)] = 0
    if inside.max() >= INSIDE * areas.max():
        areas = inside
    return np.isin(labels, np.flatnonzero((areas >= SPECK * areas.max()) & (areas > 0)))


def pieces(strokes: np.ndarray) -> int:
    """Count unconnected pieces of bright strokes (h, w) in [0, 1], without dirt."""
    return scipy.ndimage.label(_without_dirt(strokes > FULL), np.ones((3, 3)))[1]


def _border(image: np.ndarray) -> np.ndarray:
    return np.concatenate([image[0], image[-1], image[:, 0], image[:, -1]])
