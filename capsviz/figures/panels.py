"""Parts that the drawings of several analyses share: one image on axes, and a mosaic of many."""

from __future__ import annotations

import numpy as np

MARKERS = "osD^vPX<>*"  # of networks and their like, one each
GAP = 2  # pixels between the pictures of a mosaic


def picture(image: np.ndarray) -> np.ndarray:
    """An image (C, H, W) as `imshow` takes it: grey (H, W), or colour (H, W, 3)."""
    return image[0] if len(image) < 3 else np.moveaxis(image[:3], 0, -1)


def show(axes, image, title=None):
    """One uint8 image (C, H, W), grey or colour, without ticks, on the scale 0 to 255."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    if title is not None:
        axes.set_title(title, fontsize=6.5)
    return axes.imshow(picture(image), cmap="gray", vmin=0, vmax=255)


def mosaic(axes, pictures, columns):
    """Pictures (rows, n, C, H, W) uint8 as one image, on axes for `columns` >= n side by side.

    Returns
    -------
    The centres of rows and of pictures, in the axes' coordinates.
    """
    rows, n, channels, height, width = pictures.shape
    tall, wide = height + GAP, width + GAP
    colours = 3 if channels >= 3 else 1
    image = np.full((colours, rows * tall - GAP, n * wide - GAP), 255, np.uint8)
    for r in range(rows):
        for c in range(n):
            part = np.s_[:, r * tall : r * tall + height, c * wide : c * wide + width]
            image[part] = pictures[r, c, :colours]
    axes.imshow(picture(image), cmap="gray", vmin=0, vmax=255)
    axes.set_xlim(-0.5, columns * wide - GAP - 0.5)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=2)
    return np.arange(rows) * tall + (height - 1) / 2, np.arange(n) * wide + (width - 1) / 2
