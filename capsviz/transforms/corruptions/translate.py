"""Translation by 3 pixels left or right, and 3 pixels up or down; zeros come in."""

import torch

from capsviz.transforms.augment import cut

SHIFT_PX = 3  # severity 3


def corrupt(images, generator):
    """Shift each image along a diagonal."""
    corners = torch.randint(0, 2, (2, len(images)), generator=generator)
    return cut(images, corners * 2 * SHIFT_PX, SHIFT_PX)
