"""A picture of class folders: its shorter side is resized, and of that the centre is left."""

from __future__ import annotations

import numpy as np
from PIL import Image
from torch import Tensor


def square(pixels: np.ndarray, side: int, channels: int) -> Tensor:
    """A picture as those of a data set become: (C, side, side) uint8.

    Parameters
    ----------
    pixels    (h, w, 3) in [0, 1], of `opening.load(path, alike=True)`.
    side      of the result, pixels.
    channels  1 for grey, 3 for colour.
    """
    from torchvision.transforms import functional  # takes time to import

    picture = Image.fromarray((pixels * 255).round().astype("uint8"))
    picture = picture.convert("L" if channels == 1 else "RGB")
    picture = functional.center_crop(functional.resize(picture, side, antialias=True), side)
    return functional.pil_to_tensor(picture)
