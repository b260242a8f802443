"""Steps of `predict` at one size."""

from __future__ import annotations

import numpy as np

SIDE = 112  # pixels of a drawn step: four times those of MNIST


def square(step: np.ndarray) -> np.ndarray:
    """(h, w) or (h, w, 3) in [0, 1] -> (C, SIDE, SIDE) uint8, keeping its shape, on white."""
    from PIL import Image

    picture = Image.fromarray((np.asarray(step) * 255).round().astype(np.uint8))
    factor = SIDE / max(picture.size)
    size = [max(1, round(side * factor)) for side in picture.size]
    how = Image.Resampling.NEAREST if factor >= 1 else Image.Resampling.BOX
    sheet = Image.new(picture.mode, (SIDE, SIDE), "white")
    sheet.paste(picture.resize(size, how), [(SIDE - side) // 2 for side in size])
    return np.moveaxis(np.atleast_3d(np.asarray(sheet)), 2, 0)
