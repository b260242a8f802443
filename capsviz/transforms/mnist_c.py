"""Corrupt grey images with the 15 corruptions of MNIST-C (Mu & Gilmer 2019, arXiv:1906.02337).

Each corruption is a function of images (B, 1, H, W) float32 on the CPU and a generator, and has the
severity of the published data. Definitions and parameters are those of the authors' program
(google-research/mnist-c), implemented for batches in torch and kornia; docstrings state
differences. The random numbers differ, so images are other draws of the same distribution. Sizes in
pixels are for MNIST, 28 x 28; for other image sizes, positions at an edge move with it. Shared
helpers come first.
"""

import itertools
import math

import numpy as np
import torch
from scipy.ndimage import binary_propagation
from torch import Tensor
from torch.nn.functional import pad

from capsviz.transforms import MNIST_C, warps
from capsviz.transforms.augment import cut


def signs(n: int, generator: torch.Generator) -> Tensor:
    """Draw n values (n,), -1 or 1 with equal probability."""
    return torch.randint(0, 2, (n,), generator=generator) * 2.0 - 1


def gaussian(images: Tensor, sigma: float, *, axes="yx", border="replicate") -> Tensor:
    """Blur images (B, C, H, W) by a Gaussian of `sigma` px, cut at 4 sigma, along y, x or both.

    `border` is "replicate" to repeat the pixels at the edge, "constant" for zeros outside.
    """
    from kornia.filters import gaussian_blur2d  # takes a second to import

    side = 2 * int(4 * sigma + 0.5) + 1
    size = (side if "y" in axes else 1, side if "x" in axes else 1)
    return gaussian_blur2d(images, size, (sigma, sigma), border_type=border)


def pull(images: Tensor, linear: Tensor) -> Tensor:
    """Warp images (B, C, H, W): an output pixel at p is read at `linear` (B, 2, 2) times p.

    Positions p are (x, y), y down, relative to the centre. Bilinear, zeros outside.
    """
    height, width = images.shape[-2:]
    centre = torch.tensor([(width - 1) / 2, (height - 1) / 2], dtype=torch.float64)
    forward = torch.linalg.inv(linear.double())
    offset = centre - forward @ centre
    return warps.warp(images, torch.cat([forward, offset[..., None]], 2))


def line(x0: Tensor, y0: Tensor, x1: Tensor, y1: Tensor, size: tuple[int, int]) -> Tensor:
    """Draw a soft line from (x0, y0) to (x1, y1), x0 <= x1, in each of B images (B, 1, H, W).

    Ends are (B,) in pixels, `size` is (H, W). The line covers the columns from floor(x0) to
    ceil(x1) - 1; nothing is drawn if x0 = x1. Its brightness at the vertical distance d is
    max(0, 1 + log(1 - d / 2.3)).
    """
    x0, y0, x1, y1 = (v.double()[:, None, None] for v in (x0, y0, x1, y1))
    y, x = torch.arange(size[0])[:, None], torch.arange(size[1])
    run = x1 - x0
    slope = (y1 - y0) / torch.where(run == 0, math.inf, run)
    distance = (y - y0 - slope * (x - x0)).abs()
    brightness = (1 + torch.log1p(-(distance / 2.3).clamp(max=1 - 1e-9))).clamp(0, 1)
    mask = (x >= x0.floor()) & (x < x1.ceil()) & (run > 0)
    return (brightness * mask)[:, None].float()


def brightness(images, generator):
    """Add 0.5 to every pixel, clipped at 1. Nothing is random.

    The authors raise the value of HSV, which for a grey pixel is its grey value. The sum of an
    integer and 127.5 is rounded to the even neighbour; theirs may be rounded to the other.
    """
    return (images + 0.5).clamp(max=1)  # severity 5


def canny_edges(images, generator):
    """Replace the image by its edges, white on black. Nothing is random.

    Canny's method with the settings of scikit-image's `canny`: a Gaussian of 1 px, normalised at
    the border, then Sobel gradients with thresholds 0.1 and 0.2 of their length. A pixel stays if
    no interpolated neighbour along its gradient has a longer one. Pixels above the lower threshold
    stay if a path leads to one above the upper. Pixels at the border are no edges. Results differ
    from scikit-image's by rounding only.
    """
    ones = torch.ones_like(images[:1])
    smooth = gaussian(images.double(), 1, border="constant")
    smooth = smooth / gaussian(ones.double(), 1, border="constant")
    down, right = _sobel(smooth)
    length = pad(torch.hypot(down, right), (1, 1, 1, 1))
    thin = _local_maxima(length, pad(down, (1, 1, 1, 1)), pad(right, (1, 1, 1, 1)))
    weak, strong = (thin & (length >= least) for least in (0.1, 0.2))
    corners = np.ones((1, 1, 3, 3))  # paths may go diagonally
    return torch.from_numpy(binary_propagation(strong, corners, weak)).float()


def _sobel(images):
    """Return Sobel gradients down and right of the inner pixels (B, 1, H - 2, W - 2), times 8."""
    y = images[..., 2:, :] - images[..., :-2, :]
    x = images[..., :, 2:] - images[..., :, :-2]
    down = y[..., :-2] + 2 * y[..., 1:-1] + y[..., 2:]
    right = x[..., :-2, :] + 2 * x[..., 1:-1, :] + x[..., 2:, :]
    return down, right


def _local_maxima(length, down, right):
    """Return where no neighbour along a gradient (B, 1, H, W), on either side, has a longer one."""
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


def dotted_line(images, generator):
    """Draw a soft line across the image, two columns off, two columns on.

    It runs from a random row of the first column to a random row of the last. Neither is the last
    row, and the last column stays empty, as in the authors' code.
    """
    B, _, H, W = images.shape
    start, end = torch.randint(0, H - 1, (2, B), generator=generator)
    zero = torch.zeros(B)
    on = torch.arange(W) // 2 % 2 == 1
    return (images + on * line(zero, start, zero + W - 1, end, (H, W))).clamp(max=1)


def fog(images, generator, thickness=3.0, decay=1.4, side=256):
    """Add a plasma fractal, and scale the sum back to the image's maximum (severity 5).

    The fractal is made by the diamond-square algorithm on a torus and scaled to [0, 1]. Its uniform
    noise shrinks by `decay`² from each grid to the next finer one. The image gets its upper left
    corner. For images larger than `side`, the fractal's side is the next power of two.
    """
    H, W = images.shape[-2:]
    side = max(side, 1 << (max(H, W) - 1).bit_length())
    fractals = [plasma(len(part), side, generator, decay) for part in images.split(50)]
    white = images.amax((1, 2, 3), keepdim=True)
    added = thickness * torch.cat(fractals)[:, None, :H, :W]
    return (images + added) * white / (white + thickness)


def plasma(n, side, generator, decay=1.4):
    """Draw n fractals (n, side, side) in [0, 1]; `side` is a power of two.

    Each pass doubles the grid. A new point is the mean of the four around it plus noise: first the
    centres of squares, then, from corners and centres, the middles of their sides.
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


def glass_blur(images, generator):
    """Swap pixels with neighbours, between two Gaussian blurs of 0.7 px (severity 1).

    Two passes go from the bottom right to the top left over all pixels at least 2 px from the upper
    and left edge. With probability 1/2, a pixel is swapped with the one that lies 0 or 1 px up and
    0 or 1 px to the left.

    As in the authors' code, the blurs are along y alone (their multichannel call makes scikit-image
    take the last axis as colours), and after the first one, grey values are rounded down.
    """
    blurred = gaussian(images, 0.7, axes="y") * 255 + 1e-3  # rounding must not lower a grey value
    return gaussian(_shuffle(blurred.floor() / 255, generator), 0.7, axes="y")


def _shuffle(images, generator):
    """Swap pixels (B, 1, H, W) with near ones, in two passes: a permutation of the pixels."""
    B, _, H, W = images.shape
    order = 2 * [y * W + x for y in range(H - 1, 1, -1) for x in range(W - 1, 1, -1)]
    steps = (len(order), B)
    swapped = torch.randint(0, 2, steps, generator=generator)
    up, left = torch.randint(0, 2, (2, *steps), generator=generator) - 1
    moves = swapped * (up * W + left)
    pixels = images.reshape(B, -1).clone()
    for source, move in zip(order, moves, strict=True):
        target = (source + move)[:, None]
        kept = pixels[:, source].clone()
        pixels[:, source] = pixels.gather(1, target)[:, 0]
        pixels.scatter_(1, target, kept[:, None])
    return pixels.view_as(images)


def impulse_noise(images, generator, amount=0.17):
    """Set a share `amount` of the values to 0 or 1 with equal probability (severity 4)."""
    hit = torch.rand(images.shape, generator=generator) <= amount
    salt = torch.rand(images.shape, generator=generator) <= 0.5
    return torch.where(hit, salt.float(), images)


def motion_blur(images, generator):
    """Spread each pixel along a line at an angle between -45° and 45° (severity 1).

    The authors call ImageMagick's MotionBlurImage(radius 10, sigma 3), which is reimplemented here.
    An output pixel is the weighted mean of the 21 pixels at 0 ... 20 px along the line. Weights are
    one half of a Gaussian of 3 px. Positions are rounded to pixels and clamped at the edge. Ours is
    in float32, theirs in 16 bits: they differ by at most one grey value.
    """
    angle = (torch.rand(len(images), generator=generator) * 2 - 1) * 45
    return blur_along(images, torch.deg2rad(angle.double()))


def blur_along(images, angle, radius=10, sigma=3):
    """Blur (B, C, H, W) along angles (B,) in radians, clockwise from the right."""
    B, _, H, W = images.shape
    steps = torch.arange(2 * radius + 1, dtype=torch.float64)
    weights = torch.exp(-(steps**2) / (2 * sigma**2))
    weights = (weights / weights.sum()).to(images)
    dx, dy = ((steps[:, None] * part(angle) - 0.5).ceil().long() for part in (torch.cos, torch.sin))
    y, x, which = torch.arange(H)[:, None], torch.arange(W), torch.arange(B)[:, None, None]
    last = images.permute(0, 2, 3, 1)
    total = torch.zeros_like(last)
    for weight, right, down in zip(weights, dx, dy, strict=True):
        rows = (y + down[:, None, None]).clamp(0, H - 1)
        columns = (x + right[:, None, None]).clamp(0, W - 1)
        total += weight * last[which, rows, columns]
    return total.permute(0, 3, 1, 2)


def rotate(images, generator):
    """Rotate by 0.4 radian (22.9°) one way or the other, about the centre (severity 2)."""
    return warps.rotate(images, math.degrees(0.4) * signs(len(images), generator))


def scale(images, generator):
    """Shrink to 0.7 of the size, about the centre (severity 3). Nothing is random."""
    size = tuple(images.shape[-2:])
    return warps.warp(images, warps.matrix(size, scale_x=0.7, scale_y=0.7))


def shear(images, generator):
    """Shear by 0.4 radian to one side or the other, about the centre (severity 2).

    An output pixel (x, y) comes from (x - y sin s, y cos s), s = ±0.4: scikit-image's
    AffineTransform of 2019, which also stretches the height by 1 / cos s.
    """
    s = 0.4 * signs(len(images), generator)
    one, zero = torch.ones_like(s), torch.zeros_like(s)
    return pull(images, torch.stack([one, -s.sin(), zero, s.cos()], 1).view(-1, 2, 2))


def shot_noise(images, generator):
    """Draw Poisson counts with mean 3 for white, divided by 3 and clipped at 1 (severity 5)."""
    return (torch.poisson(images * 3, generator=generator) / 3).clamp(max=1)


def spatter(images, generator):
    """Add drops of dark grey mud, opaque where they are thick (severity 4).

    Gaussian noise of mean 0.65 and standard deviation 0.3 is blurred by 1 px; mud is where it is
    above 0.65. That mask is blurred by 1.5 px and set to 0 below 0.8. It is the opacity of a grey
    of 63/255 over the image.
    """
    liquid = 0.65 + 0.3 * torch.randn(images.shape, generator=generator)
    mud = gaussian((gaussian(liquid, 1) > 0.65).float(), 1.5)
    mud = torch.where(mud < 0.8, 0.0, mud)
    return images * (1 - mud) + 63 / 255 * mud


def stripe(images, generator):
    """Invert the left and the right quarter of the columns. Nothing is random."""
    width = images.shape[-1]
    x, quarter = torch.arange(width), width // 4
    return torch.where((x < quarter) | (x >= width - quarter), 1 - images, images)


def translate(images, generator):
    """Shift by 3 pixels left or right, and 3 pixels up or down (severity 3); zeros come in."""
    corners = torch.randint(0, 2, (2, len(images)), generator=generator)
    return cut(images, corners * 2 * 3, 3)


HALF_PX, HEIGHT_PX, MARGIN_PX = 2, 2, 2  # half a stroke along the axis; height; margin at the edge
RISES_PX = range(-5, 5)


def zigzag(images, generator):
    """Draw a soft zigzag across the image, 2 px up and down, 8 px from peak to peak.

    Its axis goes from column 2 to the third last column. It starts in any row but the last, and
    ends at most 5 rows above or 4 below. The turns lie 2, 6, 10, ... px along the axis; a last
    piece comes back towards it.
    """
    B, _, H, W = images.shape
    start = torch.randint(0, H - 1, (B,), generator=generator)
    rise = torch.randint(RISES_PX.start, RISES_PX.stop, (B,), generator=generator)
    lines = torch.zeros_like(images)
    for down in RISES_PX:
        these = (rise == down).nonzero().flatten()
        turns = zigzag_corners(W, down)
        for (x0, y0), (x1, y1) in itertools.pairwise(turns):
            row, one = start[these].double(), torch.ones(len(these))
            lines[these] += line(one * x0, row + y0, one * x1, row + y1, (H, W))
    return (images + lines).clamp(max=1)


def zigzag_corners(width, down):
    """Return the ends and turns [(x, y), ...] of the zigzag in px, y down from its first row."""
    angle = math.atan(down / (width - 1 - 2 * MARGIN_PX))
    length = (width - 1 - 2 * MARGIN_PX) / math.cos(angle)
    stroke = 2 * HALF_PX
    along = [(0.0, 0.0)]
    for i in range(int((length - HALF_PX) // stroke) + 1):
        along.append(((2 * i + 1) * HALF_PX, (-1) ** i * HEIGHT_PX))
    whole = stroke * (length // stroke)
    if length != whole:  # the authors' height of the end, not the axis itself
        along.append((length, along[-1][1] / (2 * (length - whole))))
    cos, sin = math.cos(angle), math.sin(angle)
    return [(MARGIN_PX + cos * a - sin * h, sin * a + cos * h) for a, h in along]


KINDS = {name: globals()[name] for name in MNIST_C}
