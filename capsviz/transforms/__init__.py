"""What is done to images: augmentation, affine warps, corruptions."""

from typing import Literal

Fill = Literal["black", "edge", "mean"]  # outside: 0, the nearest pixel, the mean colour
