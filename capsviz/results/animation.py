"""Animations as GIF, in one palette."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import matplotlib
import numpy as np

from capsviz.files import write_bytes
from capsviz.results import COLOURS


def animate(frames: Iterable[np.ndarray], path: Path, *, fps: float) -> Path:
    """Write RGB frames (h, w, 3) uint8 as a GIF that loops, all in one palette.

    The palette holds greys, the colour map and the house colours: a palette chosen for each frame
    would lose the rare ones, and the colours of the legend would flicker.
    """
    from imageio.v3 import imwrite
    from PIL import Image

    greys = np.append(255, np.arange(0, 249, 4)).repeat(3)  # of equals the first is taken: white
    scale = (matplotlib.colormaps["viridis"](np.linspace(0, 1, 128))[:, :3] * 255).round().ravel()
    house = [int(c[i : i + 2], 16) for c in COLOURS for i in (1, 3, 5)]
    palette = Image.new("P", (1, 1))
    palette.putpalette([*greys.astype(int), *scale.astype(int), *house])
    flat = (
        Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
        for frame in frames
    )
    pictures = [np.asarray(picture.convert("RGB")) for picture in flat]
    content = imwrite(
        "<bytes>", pictures, plugin="pillow", extension=".gif", duration=round(1000 / fps), loop=0
    )
    write_bytes(path, content)
    return path
