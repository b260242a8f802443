"""Image moments: slant, width, height, stroke thickness and position of an object.

Every measure is a ratio of sums of grey values. So it changes smoothly with the image, needs no
threshold, and does not depend on contrast. The background must be dark. Central moments are those
of Hu (1962); the perimeter of a grey image is its total variation (coarea formula).
"""

from typing import NamedTuple

import numpy as np

DARK = 0.3  # share of an image's brightest pixel; the border of a dark background is below it


class Moments(NamedTuple):
    """Measures of N images; all NaN for an image that is black everywhere."""

    slant_deg: np.ndarray  # (N,) shear from the vertical; positive: the top leans to the right
    width_px: np.ndarray  # (N,) of a box with the same spread along x about the slanted axis
    height_px: np.ndarray  # (N,) of a box with the same spread along y
    thickness_px: np.ndarray  # (N,) of the stroke: twice the area over the perimeter
    x_px: np.ndarray  # (N,) centre of mass, to the right of the image's centre
    y_px: np.ndarray  # (N,) centre of mass, below the image's centre


def moments(images: np.ndarray) -> Moments:
    """Measure images (N, C, H, W) of any non-negative scale; colours are averaged.

    Width and height are exact for boxes. The spread along x is measured about the slanted axis
    x(y), so a slant does not change the width. Thickness counts the ends of a stroke as edges: a
    straight stroke of t x L pixels has about t L / (t + L). Slanted strokes thinner than 3 px are
    measured up to a fifth too thick, because the grid blurs them.

    Raises
    ------
    ValueError  for images of another shape, or with negative or infinite values.
    """
    images = np.asarray(images, dtype=float)
    if images.ndim != 4:
        raise ValueError(f"expected images (N, C, H, W), got the shape {images.shape}")
    if images.size and not (images.min() >= 0 and images.max() < np.inf):
        raise ValueError("expected finite pixel values of at least 0")
    grey = images.mean(1)
    area = grey.sum((1, 2))
    area[area == 0] = np.nan
    x, y = (np.arange(size) - (size - 1) / 2 for size in (grey.shape[2], grey.shape[1]))
    share = grey / area[:, None, None]
    along_x, along_y = share.sum(1), share.sum(2)
    mean_x, mean_y = along_x @ x, along_y @ y
    xx = along_x @ x**2 - mean_x**2
    yy = along_y @ y**2 - mean_y**2
    xy = share @ x @ y - mean_x * mean_y
    lean = np.divide(xy, yy, out=np.zeros_like(xy), where=yy > 1e-9)  # dx / dy; y points down
    return Moments(
        slant_deg=-np.degrees(np.arctan(lean)) + 0 * area,
        width_px=_box(xx - lean * xy),
        height_px=_box(yy),
        thickness_px=2 * area / _perimeter(grey),
        x_px=mean_x,
        y_px=mean_y,
    )


def on_dark(images: np.ndarray) -> bool:
    """Return whether images (N, C, H, W) have a dark background, by their borders."""
    grey = np.asarray(images, dtype=float).mean(1)
    border = np.concatenate([grey[:, [0, -1]].reshape(len(grey), -1),
                             grey[:, 1:-1, [0, -1]].reshape(len(grey), -1)], 1)  # fmt: skip
    return bool(border.mean() <= DARK * grey.max((1, 2)).mean())


def _box(variance: np.ndarray) -> np.ndarray:
    """Return the side of a box with this variance: n pixels in a row have (n^2 - 1) / 12."""
    return np.sqrt(12 * np.maximum(variance, 0) + 1)


def _perimeter(grey: np.ndarray) -> np.ndarray:
    """Return the total variation (N,), from gradients at pixel corners; outside is black."""
    padded = np.pad(grey, ((0, 0), (1, 1), (1, 1)))
    right = np.diff(padded, axis=2)
    down = np.diff(padded, axis=1)
    right = (right[:, 1:] + right[:, :-1]) / 2
    down = (down[:, :, 1:] + down[:, :, :-1]) / 2
    perimeter = np.hypot(right, down).sum((1, 2))
    perimeter[perimeter == 0] = np.nan
    return perimeter
