"""Spatter: drops of dark grey mud, opaque where they are thick.

Gaussian noise of mean 0.65 and deviation 0.3, blurred by 1 px; where it is above 0.65 there is mud.
That mask is blurred by 1.5 px and cut to zero below 0.8: it covers the image by a grey of 63/255.
"""

import torch

from capsviz.transforms.corruptions import gaussian

MEAN, DEVIATION, LIQUID_PX, LEVEL, MASK_PX = 0.65, 0.3, 1.0, 0.65, 1.5  # severity 4
THICK, GREY = 0.8, 63 / 255


def corrupt(images, generator):
    """Throw mud."""
    liquid = MEAN + DEVIATION * torch.randn(images.shape, generator=generator)
    mud = gaussian((gaussian(liquid, LIQUID_PX) > LEVEL).float(), MASK_PX)
    mud = torch.where(mud < THICK, 0.0, mud)
    return images * (1 - mud) + GREY * mud
