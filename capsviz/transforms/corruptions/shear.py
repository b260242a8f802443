"""Shear by 0.4 radian to one side or the other, about the centre.

An output pixel (x, y) comes from (x - y sin s, y cos s), s = ±0.4: scikit-image's AffineTransform
of 2019, which also stretches the height by 1 / cos s. Later releases define shear otherwise.
"""

import torch

from capsviz.transforms.corruptions import pull, signs

SHEAR_RAD = 0.4  # severity 2


def corrupt(images, generator):
    """Slant each image."""
    s = SHEAR_RAD * signs(len(images), generator)
    one, zero = torch.ones_like(s), torch.zeros_like(s)
    return pull(images, torch.stack([one, -s.sin(), zero, s.cos()], 1).view(-1, 2, 2))
