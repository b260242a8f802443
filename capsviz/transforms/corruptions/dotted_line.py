"""Dotted line: a soft line across the image, two columns off, two columns on.

From the first column at a random row to the last column at another. Rows are drawn from all but
the last, and the last column stays free, as the authors have it.
"""

import torch

from capsviz.transforms.corruptions import line


def corrupt(images, generator):
    """Draw a dotted line over each image."""
    B, _, H, W = images.shape
    start, end = torch.randint(0, H - 1, (2, B), generator=generator)
    zero = torch.zeros(B)
    on = torch.arange(W) // 2 % 2 == 1
    return (images + on * line(zero, start, zero + W - 1, end, (H, W))).clamp(max=1)
