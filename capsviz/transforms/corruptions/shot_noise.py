"""Shot noise: each pixel is a count of photons, 3 where it is white.

Poisson of 3 times the pixel, divided by 3, cut at 1.
"""

import torch

PHOTONS = 3  # severity 5


def corrupt(images, generator):
    """Count photons."""
    return (torch.poisson(images * PHOTONS, generator=generator) / PHOTONS).clamp(max=1)
