"""Photographs of single digits, as far as a test can take them: ink on grey, uneven paper."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

SIZE = (800, 600)


def photograph(digit: np.ndarray, seed: int, size: tuple[int, int] = SIZE) -> Image.Image:
    """A JPEG of dark ink somewhere on light grey paper, lit from one side, with noise.

    Parameters
    ----------
    digit  (h, w) uint8, bright on black.
    size   width and height in pixels.
    """
    draws, (width, height) = np.random.default_rng(seed), size
    side = int(draws.uniform(0.45, 0.8) * height)
    strokes = Image.fromarray(digit).resize((side, side), Image.Resampling.BICUBIC)
    top, left = draws.integers(height - side + 1), draws.integers(width - side + 1)
    ink = np.zeros((height, width))
    ink[top : top + side, left : left + side] = np.asarray(strokes) / 255
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    angle = draws.uniform(0, 2 * np.pi)
    slope = np.cos(angle) * (x - 0.5) + np.sin(angle) * (y - 0.5)
    away = (x - draws.uniform()) ** 2 + (y - draws.uniform()) ** 2  # from the brightest place
    paper = draws.uniform(0.5, 0.75) + 0.36 * slope - 0.08 * away
    picture = paper * (1 - 0.75 * ink) + draws.normal(0, 0.03, ink.shape)
    content = io.BytesIO()
    Image.fromarray((picture.clip(0, 1) * 255).astype(np.uint8)).save(content, "JPEG", quality=80)
    return Image.open(content)
