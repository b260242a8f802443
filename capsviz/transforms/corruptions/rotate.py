"""Rotation by 0.4 radian (22.9°) one way or the other, about the centre."""

import math

from capsviz.transforms import warps
from capsviz.transforms.corruptions import signs

ANGLE_DEG = math.degrees(0.4)  # severity 2


def corrupt(images, generator):
    """Rotate each image."""
    return warps.rotate(images, ANGLE_DEG * signs(len(images), generator))
