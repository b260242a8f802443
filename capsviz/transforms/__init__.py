"""Transform images: augmentation, affine warps, corruptions."""

from typing import Literal

Fill = Literal["black", "edge", "mean"]  # outside the image: 0, the nearest pixel, the mean colour
MNIST_C = (
    "brightness", "canny_edges", "dotted_line", "fog", "glass_blur", "impulse_noise", "motion_blur",
    "rotate", "scale", "shear", "shot_noise", "spatter", "stripe", "translate", "zigzag",
)  # fmt: skip
