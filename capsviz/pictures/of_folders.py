"""A picture of class folders: its shorter side is resized, and of that the centre is left."""

from __future__ import annotations

import os

from PIL import Image
from torch import Tensor

from capsviz.pictures.opening import load


def square(path: str | os.PathLike, side: int, channels: int) -> Tensor:
    """A picture as those of a data set are read, alike for all: (C, side, side) uint8.

    Parameters
    ----------
    path      any format that Pillow reads.
    side      pixels.
    channels  1 for grey, 3 for colour.

    Raises
    ------
    ValueError  as `opening.load` does.
    """
    from torchvision.transforms import functional  # takes time to import

    picture = Image.fromarray((load(path, alike=True) * 255).round().astype("uint8"))
    picture = picture.convert("L" if channels == 1 else "RGB")
    picture = functional.center_crop(functional.resize(picture, side, antialias=True), side)
    return functional.pil_to_tensor(picture)
