"""Corrupt colour images with the corruptions of ImageNet-C.

Source: Hendrycks & Dietterich (2019, arXiv:1903.12261). Definitions and parameters are those of the
authors' program for images of 32 x 32 pixels, which made CIFAR-10-C (hendrycks/robustness). Sizes
in pixels do not grow with the image.

Differences: frost is left out, because it needs the authors' photographs; zooms are about the exact
centre; an elastic image is sampled once instead of twice.

A corruption is a function of images (B, 3, H, W) in [0, 1], a generator on the CPU, and parameters.
`KINDS` holds five sets of parameters for each, one for each severity.
"""

import io
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import grid_sample

from capsviz.transforms import mnist_c
from capsviz.transforms.augment import to_uint8
from capsviz.transforms.mnist_c import blur_along, gaussian, pull

GREY = (0.299, 0.587, 0.114)  # of red, green and blue


def _gaussian_noise(images, generator, deviation):
    return images + deviation * torch.randn(images.shape, generator=generator)


def _shot_noise(images, generator, photons):
    return torch.poisson(images * photons, generator) / photons


def _defocus_blur(images, generator, radius, sigma):
    """Blur with a small smoothed disk; images are mirrored at the edge."""
    from kornia.filters import filter2d, gaussian_blur2d  # takes a second to import

    y, x = np.mgrid[-2:3, -2:3]
    disk = torch.from_numpy(x**2 + y**2 <= radius**2).float()
    kernel = gaussian_blur2d((disk / disk.sum())[None, None], (3, 3), (sigma, sigma), "constant")
    return filter2d(images, kernel[0], border_type="reflect")


def _glass_blur(images, generator, sigma, rounds):
    """Blur, replace pixels by near ones, and blur again.

    Each pixel except in the first two rows and columns is replaced by the pixel that lies 0 or 1 px
    up and 0 or 1 px to the left. The authors intend to swap the two pixels, but their code copies
    one over the other.
    """
    B, C, H, W = images.shape
    # 1e-3: a rounding error must not lower a grey value
    blurred = (gaussian(images, sigma) * 255 + 1e-3).floor() / 255
    for _ in range(rounds):
        up, left = torch.randint(0, 2, (2, B, H, W), generator=generator)
        rows, columns = torch.arange(H)[:, None], torch.arange(W)
        free = (rows > 1) & (columns > 1)
        source = (rows - up * free) * W + columns - left * free
        index = source.flatten(1)[:, None].expand(-1, C, -1)
        blurred = blurred.flatten(2).gather(2, index).view(B, C, H, W)
    return gaussian(blurred, sigma)


def _motion_blur(images, generator, radius, sigma, middle=0.0):
    angle = middle + (torch.rand(len(images), generator=generator) * 2 - 1) * 45
    return blur_along(images, torch.deg2rad(angle.double()), radius, sigma)


def _zoomed(images, factor: float):
    return pull(images, torch.eye(2)[None] / factor)


def _zoom_blur(images, generator, steps):
    zooms = [_zoomed(images, 1 + step / 100) for step in range(steps)]
    return (images + sum(zooms)) / (steps + 1)


def _snow(images, generator, mean, deviation, zoom, least, radius, sigma, kept):
    shape = len(images), 1, *images.shape[2:]
    flakes = _zoomed(mean + deviation * torch.randn(shape, generator=generator), zoom)
    flakes = (torch.where(flakes < least, 0, flakes).clamp(0, 1) * 255).floor() / 255
    flakes = _motion_blur(flakes, generator, radius, sigma, -90)
    grey = torch.einsum("bchw,c->bhw", images, torch.tensor(GREY))[:, None]
    pale = kept * images + (1 - kept) * torch.maximum(images, 1.5 * grey + 0.5)
    return pale + flakes + flakes.rot90(2, (2, 3))


def _brightness(images, generator, added):
    """Raise the value of HSV, which is the largest channel."""
    value = images.amax(1, keepdim=True)
    raised = (value + added).clamp(max=1)
    return torch.where(value > 0, images * raised / value.clamp_min(1e-9), raised)


def _contrast(images, generator, factor):
    mean = images.mean((2, 3), keepdim=True)
    return (images - mean) * factor + mean


def _elastic_transform(images, generator, reach, sigma, corners):
    """Apply a random affine map and a smooth random shift; images are mirrored at the edge."""
    B, _, H, W = images.shape
    side = min(H, W)
    moved, third = side * corners, side // 3
    points = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]).double() * third
    points = points + torch.tensor([W // 2, H // 2])
    shift = (torch.rand(B, 3, 2, generator=generator).double() * 2 - 1) * moved
    ones = torch.ones(B, 3, 1, dtype=torch.double)
    back = torch.linalg.solve(torch.cat([points + shift, ones], 2), points.expand(B, 3, 2))
    noise = torch.rand(B, 2, H, W, generator=generator) * 2 - 1
    if reach:
        noise = gaussian(noise, side * sigma, border="reflect")
    y, x = torch.meshgrid(torch.arange(H), torch.arange(W), indexing="ij")
    at = torch.stack([x, y]) + side * reach * noise.double()
    at = torch.cat([at, torch.ones_like(at[:, :1])], 1)
    from_px = torch.einsum("bkhw,bkc->bhwc", at, back)
    grid = 2 * from_px / torch.tensor([W - 1, H - 1]) - 1
    how = {"padding_mode": "reflection", "align_corners": True}
    return grid_sample(images, grid.to(images), **how)


def _each(images, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    """Apply `change` to each image as a Pillow image."""
    pictures = [Image.fromarray(one) for one in to_uint8(images).transpose(0, 2, 3, 1)]
    made = np.stack([np.asarray(change(one)) for one in pictures])
    return torch.from_numpy(made).permute(0, 3, 1, 2).float() / 255


def _pixelate(images, generator, share):
    H, W = images.shape[2:]
    box = Image.Resampling.BOX
    small = int(W * share), int(H * share)
    return _each(images, lambda one: one.resize(small, box).resize((W, H), box))


def _jpeg_compression(images, generator, quality):
    def change(one):
        file = io.BytesIO()
        one.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return _each(images, change)


KINDS: dict[str, tuple[Callable, tuple]] = {  # name: function, and parameters by severity
    "gaussian_noise": (_gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot_noise": (_shot_noise, (500, 250, 100, 75, 50)),
    "impulse_noise": (mnist_c.impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    "defocus_blur": (_defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    "glass_blur": (_glass_blur, ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))),
    "motion_blur": (_motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "zoom_blur": (_zoom_blur, (7, 12, 16, 21, 26)),  # lengths of the authors' numpy.arange
    "snow": (_snow, (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95), (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9), (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    )),
    "fog": (partial(mnist_c.fog, side=32), ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "brightness": (_brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),
    "contrast": (_contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "elastic_transform": (_elastic_transform, (
        (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03),
    )),
    "pixelate": (_pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),
    "jpeg_compression": (_jpeg_compression, (80, 65, 58, 50, 40)),
}  # fmt: skip


def of_severity(name: str, severity: int) -> Callable[[Tensor, torch.Generator], Tensor]:
    """Return one of `KINDS` at a severity from 1 to 5, as a function of images and generator."""
    function, by_severity = KINDS[name]
    chosen = by_severity[severity - 1]
    parameters = chosen if isinstance(chosen, tuple) else (chosen,)
    return lambda images, generator: function(images, generator, *parameters)
