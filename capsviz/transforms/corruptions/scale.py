"""Scale: every image shrinks to 0.7 of its size, about the centre. Nothing is random."""

from capsviz.transforms import warps

SCALE = 0.7  # severity 3


def corrupt(images, generator):
    """Shrink each image."""
    size = tuple(images.shape[-2:])
    return warps.warp(images, warps.matrix(size, scale_x=SCALE, scale_y=SCALE))
