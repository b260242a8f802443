"""Where the ink is in a drawing, scan or photograph, on paper that may be lit unevenly."""

from __future__ import annotations

import numpy as np
from PIL import Image
from scipy import ndimage

from capsviz.discovery import unknown

INVERT = ("auto", "yes", "no")
CONTRAST = 0.15  # below which there is no ink
FINE = 100  # pixels: from this length on, single pixels are noise
PAPER = 1 / 3  # of the longer side: a patch this wide is taken to show some paper
EVEN = 0.15  # of the picture's range: what the middle half of an evenly lit border takes, at most
FULL = 0.5  # of full ink: what a piece of ink has, at least
SPECK = 0.03  # of the ink of the largest piece: a smaller piece is dirt
INSIDE = 0.2  # of the largest piece: what must lie off the border to drop what touches it
SHEET = 0.15  # of the picture: what a sheet of paper on a table covers, at least
AROUND = 0.75  # of the border of its box: the same
MARGIN = 0.05  # of its box: what is cut off on each side of such a sheet


def average(grey: np.ndarray, longest: int) -> np.ndarray:
    """A picture (h, w) or (h, w, C) with at most `longest` pixels a side, by averaging."""
    if grey.ndim == 3:
        return np.stack([average(channel, longest) for channel in np.moveaxis(grey, 2, 0)], 2)
    factor = longest / max(grey.shape)
    if factor >= 1:
        return grey
    height, width = (max(1, round(side * factor)) for side in grey.shape)
    return np.asarray(Image.fromarray(grey).resize((width, height), Image.Resampling.BOX))


def is_dark_on_light(grey: np.ndarray, invert: str = "auto") -> bool:
    """Whether the ink of a picture (h, w) in [0, 1] is darker than its ground.

    Where the border is evenly lit, its brightness says so; else the skewness of what is left when
    the local median is taken away, for ink is rarer than paper.

    Parameters
    ----------
    invert  "yes", "no", or "auto" to find out.

    Raises
    ------
    ValueError  for another `invert`.
    """
    if invert not in INVERT:
        raise ValueError(unknown("inversion", str(invert), list(INVERT)))
    if invert != "auto":
        return invert == "yes"
    border = _border(grey)
    if np.ptp(np.percentile(border, (25, 75))) < EVEN * np.ptp(grey):
        return bool(np.median(border) > (grey.min() + grey.max()) / 2)
    coarse = average(grey, FINE)
    side = max(5, round(PAPER * max(coarse.shape)))
    off = coarse - ndimage.median_filter(coarse, side, mode="nearest")
    return bool((off**3).sum() < 0)


def find_sheet(grey: np.ndarray) -> tuple[slice, slice] | None:
    """Rows and columns of a light sheet with dark ink that lies on something dark, if there is one.

    It is the largest light piece of a picture (h, w), covers a good part of it, and goes all around
    what is in it.
    """
    labels, count = ndimage.label(grey > otsu(grey))
    if count == 0:
        return None
    largest = int(np.bincount(labels.ravel())[1:].argmax())
    rows, columns = ndimage.find_objects(labels)[largest]
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
    """Bright ink (h, w) on any ground -> the ink alone (h, w) in [0, 1], and where it is (h, w).

    What stands out of the ground is cut at Otsu's threshold; half of it counts as no ink, the
    median of what is above it as full ink.

    Raises
    ------
    ValueError  if nothing is brighter than its surroundings.
    """
    above = stands_out(bright)
    if above.max() < CONTRAST:
        raise ValueError("the picture shows no ink: nothing differs from its background")
    threshold = otsu(above)
    mask = _without_dirt(above > threshold)
    full = np.median(above[mask])
    near = ndimage.binary_dilation(mask, iterations=2)
    strokes = np.clip((above - threshold / 2) / max(full - threshold / 2, 1e-6), 0, 1) * near
    return strokes.astype(np.float32), mask


def stands_out(bright: np.ndarray) -> np.ndarray:
    """How far each pixel (h, w) is above its ground, which is what a wide grey opening leaves."""
    smooth = (
        ndimage.median_filter(bright, 3, mode="nearest") if max(bright.shape) >= FINE else bright
    )
    side = max(5, round(PAPER * max(bright.shape)))
    around = np.pad(smooth, side, mode="reflect", reflect_type="odd")  # light goes on as it changes
    return smooth - ndimage.grey_opening(around, (side, side))[side:-side, side:-side]


def otsu(values: np.ndarray, bins: int = 256) -> float:
    """Threshold that leaves the least variance within the two sides (Otsu 1979)."""
    counts, edges = np.histogram(values, bins)
    middles = (edges[:-1] + edges[1:]) / 2
    below = counts.cumsum()[:-1]
    above = counts.sum() - below
    total = (counts * middles).cumsum()
    means = total[:-1] / np.maximum(below, 1), (total[-1] - total[:-1]) / np.maximum(above, 1)
    return float(edges[1 + (below * above * (means[0] - means[1]) ** 2).argmax()])


def _without_dirt(mask: np.ndarray) -> np.ndarray:
    """Only pieces that are large, and off the border if one of those is large enough."""
    labels, _ = ndimage.label(mask, np.ones((3, 3)))
    areas = np.bincount(labels.ravel())
    areas[0] = 0
    inside = areas.copy()
    inside[_border(labels)] = 0
    if inside.max() >= INSIDE * areas.max():
        areas = inside
    return np.isin(labels, np.flatnonzero((areas >= SPECK * areas.max()) & (areas > 0)))


def pieces(strokes: np.ndarray) -> int:
    """How many pieces of bright ink (h, w) in [0, 1] are apart from one another, dirt left out."""
    return ndimage.label(_without_dirt(strokes > FULL), np.ones((3, 3)))[1]


def _border(image: np.ndarray) -> np.ndarray:
    return np.concatenate([image[0], image[-1], image[:, 0], image[:, -1]])
