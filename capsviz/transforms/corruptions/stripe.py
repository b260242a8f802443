"""Stripe: the left and the right quarter of the columns are inverted. Nothing is random.

Of 28 columns, the first 7 and the last 7.
"""

import torch


def corrupt(images, generator):
    """Invert both sides, leave the middle."""
    width = images.shape[-1]
    x, quarter = torch.arange(width), width // 4
    return torch.where((x < quarter) | (x >= width - quarter), 1 - images, images)
