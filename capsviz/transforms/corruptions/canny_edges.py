"""Canny edges: the image is replaced by its edges, white on black. Nothing is random.

Canny's method with the settings of scikit-image's `canny`: a Gaussian of 1 px, made even at the
border; Sobel gradients, thresholds 0.1 and 0.2 of their length; a pixel stays where no interpolated
neighbour along the gradient is longer; pixels above the lower threshold stay where a path leads to
one above the upper. Pixels at the border are no edges. Differences are those of rounding alone.
"""

import torch
from torch.nn.functional import max_pool2d, pad

from capsviz.transforms.corruptions import gaussian

SIGMA_PX, LOW, HIGH = 1.0, 0.1, 0.2


def corrupt(images, generator):
    """Find edges."""
    ones = torch.ones_like(images[:1])
    smooth = gaussian(images.double(), SIGMA_PX, border="constant")
    smooth = smooth / gaussian(ones.double(), SIGMA_PX, border="constant")
    down, right = sobel(smooth)
    length = pad(torch.hypot(down, right), (1, 1, 1, 1))
    thin = longest(length, pad(down, (1, 1, 1, 1)), pad(right, (1, 1, 1, 1)))
    return connected(thin & (length >= LOW), thin & (length >= HIGH)).float()


def sobel(images):
    """Gradients down and right (B, 1, H - 2, W - 2): of the inner pixels; 1 px steps weigh 8."""
    y = images[..., 2:, :] - images[..., :-2, :]
    x = images[..., :, 2:] - images[..., :, :-2]
    down = y[..., :-2] + 2 * y[..., 1:-1] + y[..., 2:]
    right = x[..., :-2, :] + 2 * x[..., 1:-1, :] + x[..., 2:, :]
    return down, right


def longest(length, down, right):
    """Where the gradient (B, 1, H, W) is as long as its neighbours on both sides along itself."""
    steep, same = down.abs() >= right.abs(), down * right >= 0
    minor = torch.minimum(down.abs(), right.abs())
    weight = minor / torch.maximum(down.abs(), right.abs()).clamp(min=1e-300)

    def at(y, x):
        return length.roll((-y, -x), (-2, -1))

    largest = length > 0
    for side in (-1, 1):
        straight = torch.where(steep, at(side, 0), at(0, side))
        other = torch.where(steep, at(side, -side), at(-side, side))
        diagonal = torch.where(same, at(side, side), other)
        largest &= diagonal * weight + straight * (1 - weight) <= length
    return largest


def connected(weak, strong):
    """Weak pixels that a path of weak ones, also over corners, joins to a strong one."""
    while True:
        grown = (max_pool2d(strong.float(), 3, 1, 1) > 0) & weak
        if torch.equal(grown, strong):
            return grown
        strong = grown
