"""Fog: three times a plasma fractal is added, and the sum is scaled back to the image's maximum.

The fractal is a 256 x 256 torus by the diamond-square algorithm, whose noise shrinks by 1.4² from
each grid to the next finer one, scaled to [0, 1]; the image gets its upper left corner (of images
larger than 256, the fractal is the next power of two). Uniform noise, as the authors'.
"""

import torch

THICKNESS, DECAY = 3.0, 1.4  # severity 5
SIDE, FRACTALS = 256, 50  # px; fractals at a time, for their memory


def corrupt(images, generator):
    """Add fog."""
    return cover(images, generator, THICKNESS, DECAY, SIDE)


def cover(images, generator, thickness, decay, side):
    """Add fog of a thickness and a decay of noise, from a torus of a side or larger."""
    H, W = images.shape[-2:]
    side = max(side, 1 << (max(H, W) - 1).bit_length())
    fractals = [plasma(len(part), side, generator, decay) for part in images.split(FRACTALS)]
    white = images.amax((1, 2, 3), keepdim=True)
    added = thickness * torch.cat(fractals)[:, None, :H, :W]
    return (images + added) * white / (white + thickness)


def plasma(n, side, generator, decay=DECAY):
    """n fractals (n, side, side) in [0, 1]; `side` is a power of two.

    Each pass doubles a grid: a point in the middle of four others is their mean plus noise, first
    the centres of squares, then, from corners and centres, the middles of their sides.
    """
    grid, noise = torch.zeros(n, 1, 1), 1.0
    while (m := grid.shape[-1]) < side:

        def jittered(total, noise=noise):
            shift = torch.rand(total.shape, generator=generator) * 2 - 1
            return total / 4 + noise * shift

        below = grid + grid.roll(-1, 1)
        centre = jittered(below + below.roll(-1, 2))
        top = jittered(grid + grid.roll(-1, 2) + centre + centre.roll(1, 1))
        left = jittered(grid + grid.roll(-1, 1) + centre + centre.roll(1, 2))
        upper, lower = torch.stack([grid, top], 3), torch.stack([left, centre], 3)
        grid = torch.stack([upper, lower], 2).view(n, 2 * m, 2 * m)
        noise /= decay**2
    low, high = grid.amin((1, 2), keepdim=True), grid.amax((1, 2), keepdim=True)
    return (grid - low) / (high - low)
