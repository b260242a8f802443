"""Convolve small maps by the discrete Fourier transform, with fewer products.

A convolution of stride s is a sum of s * s convolutions of stride 1, one for each phase of the rows
and columns. A convolution of N x N numbers with k x k taps, without padding, gives (N - k + 1)^2
sums; it is a product of transforms of N x N points. Transforms of real numbers come in conjugate
pairs, of which one suffices. A product of two complex numbers takes three real ones (Gauss). The
result is three small real matrices around one matrix product for each of their rows,

    sums = synthesis @ ((pixels @ map) * (taps @ kernels)),

as in minimal filtering (Lavin & Gray 2016, arXiv:1509.09308). The points are roots of unity, as in
Mathieu et al. (2014, arXiv:1312.5851), because these lose no precision. CapsNet's second
convolution, 9 x 9 taps of stride 2 on 20 x 20 numbers, has N = 10. It takes 592 products for 36
sums, where a direct convolution takes 2,916.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from capsviz.nn import allocator
from capsviz.nn.computation import cached, is_transformed

LEAST_IMAGES = 16  # below this, reading the transformed kernels takes longer than is gained
MOST_BYTES = 1 << 28  # of transformed kernels
GAIN = 2  # least ratio of direct products to those of the transform
TYPES = torch.float32, torch.float64, torch.bfloat16

_cache: tuple[tuple, Tensor, Tensor] | None = None  # (shape, type), kernels, transformed kernels


class Shape(NamedTuple):
    """Sizes of one convolution and of its transform."""

    channels: int
    outputs: int
    kernel: int
    stride: int
    rows: int  # of the result
    columns: int

    @property
    def taps(self) -> int:
        """Return the rows, and columns, of the kernel of each phase."""
        return math.ceil(self.kernel / self.stride)

    @property
    def points(self) -> tuple[int, int]:
        """Return the rows and columns that are transformed."""
        return self.rows + self.taps - 1, self.columns + self.taps - 1

    @property
    def products(self) -> int:
        """Return the number of real products of one map's transform with one kernel's."""
        N, M = self.points
        alone = (1 + (N % 2 == 0)) * (1 + (M % 2 == 0))  # real: their own conjugates
        return alone + 3 * (N * M - alone) // 2


def shape_of(images: Tensor, weight: Tensor, stride: int) -> Shape:
    """Return the sizes for images (B, C, H, W) and kernels (O, C, k, k)."""
    O, C, k, _ = weight.shape
    rows, columns = ((side - k) // stride + 1 for side in images.shape[2:])
    return Shape(C, O, k, stride, rows, columns)


def pays(images: Tensor, weight: Tensor, stride: int) -> bool:
    """Return whether the transform saves enough products and its kernels fit `MOST_BYTES`."""
    if len(images) < LEAST_IMAGES or images.dtype != weight.dtype or images.dtype not in TYPES:
        return False
    s = shape_of(images, weight, stride)
    if min(s.rows, s.columns) < 1 or s.kernel == 1:
        return False
    maps = stride * stride * s.channels
    of_kernels = s.products * maps * s.outputs
    transforms = s.products * (maps * math.prod(s.points) + s.rows * s.columns * s.outputs)
    literal = s.rows * s.columns * s.kernel**2 * s.channels * s.outputs
    room = weight.element_size() * of_kernels <= MOST_BYTES
    return room and GAIN * (of_kernels + transforms) <= literal


def convolve(images: Tensor, weight: Tensor, bias: Tensor, stride: int = 1) -> Tensor:
    """Return `conv2d(images, weight, bias, stride)`, channels-last, by the transform.

    It uses PyTorch's operations alone, so it has derivatives of any order. Transformed kernels are
    cached until the kernels change, unless their gradient is needed. In bfloat16, errors are about
    0.5 % of the results (`conv2d`: 0.3 %), because the transforms are rounded as well.
    """
    s, B = shape_of(images, weight, stride), len(images)
    pixels, taps, synthesis = _matrices(s.rows, s.columns, s.taps, images.dtype)
    if is_transformed() or (torch.is_grad_enabled() and weight.requires_grad):
        kernels = _transformed(weight, taps, s)
    else:
        kernels = _cached_kernels(weight, taps, s)
    maps = (pixels @ _phases(images, *s.points, stride)).view(s.products, B, -1)
    products = torch.bmm(kernels, maps.transpose(1, 2))  # this order avoids a copy in backward
    sums = synthesis @ products.view(s.products, -1).to(synthesis)
    out = sums.view(-1, s.outputs, B).permute(2, 0, 1) + bias
    return out.to(images).view(B, s.rows, s.columns, s.outputs).permute(0, 3, 1, 2)


def workspace_bytes(images: Tensor, weight: Tensor, stride: int) -> int:
    """Estimate the bytes of a training step's transforms and gradients; 0 unless it pays."""
    if not pays(images, weight, stride):
        return 0
    s = shape_of(images, weight, stride)
    maps = stride * stride * s.channels
    numbers = maps * s.outputs + len(images) * (maps + s.outputs)
    return 2 * weight.element_size() * s.products * numbers


def _phases(images: Tensor, rows: int, columns: int, stride: int) -> Tensor:
    """Split (B, C, H, W) into phases: (rows * columns, B * stride * stride * C)."""
    B, C, H, W = images.shape
    images = images.permute(0, 2, 3, 1)
    if (stride * rows, stride * columns) != (H, W):
        images = pad(images, (0, 0, 0, stride * columns - W, 0, stride * rows - H))
    parts = images.reshape(B, rows, stride, columns, stride, C).permute(1, 3, 0, 2, 4, 5)
    return parts.reshape(rows * columns, -1)


def _transformed(weight: Tensor, taps: Tensor, s: Shape) -> Tensor:
    """Transform kernels (O, C, k, k) to (P, O, stride * stride * C)."""
    return (taps @ _phases(weight, s.taps, s.taps, s.stride)).view(s.products, s.outputs, -1)


def _cached_kernels(weight: Tensor, taps: Tensor, s: Shape) -> Tensor:
    """Return `_transformed` without gradients, from the cache if the kernels are unchanged."""
    global _cache
    with torch.inference_mode(False), torch.no_grad():  # images may need gradients
        last, kind = _cache, (s, weight.dtype)
        if last is None or last[0] != kind or not torch.equal(last[1], weight):
            last = _cache = None  # free the old kernels first: 150 MB in CapsNet
            allocator.trim()  # the new kernels may not fit into the same place
            last = _cache = (kind, weight.detach().clone(), _transformed(weight.detach(), taps, s))
    return last[2]


@cached
def _matrices(
    rows: int, columns: int, taps: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the matrices of the transform for P real products.

    pixels (P, N * M), taps (P, taps * taps), synthesis (rows * columns, P) in float32 at least.
    """
    N, M = rows + taps - 1, columns + taps - 1
    pixels: list[np.ndarray] = []
    kernels: list[np.ndarray] = []
    synthesis: list[np.ndarray] = []
    n, m = np.meshgrid(np.arange(N), np.arange(M), indexing="ij")
    for u, v in itertools.product(range(N), range(M)):
        conjugate = (-u % N, -v % M)
        if conjugate < (u, v):
            continue
        wave = np.exp(-2j * np.pi * (u * n / N + v * m / M))
        a, b = wave.real.ravel(), wave.imag.ravel()  # of the map
        c, d = a.reshape(N, M)[:taps, :taps].ravel(), -b.reshape(N, M)[:taps, :taps].ravel()
        back = np.conj(wave)[:rows, :columns].ravel() / (N * M)
        if conjugate == (u, v):
            pixels, kernels, synthesis = [*pixels, a], [*kernels, c], [*synthesis, back.real]
            continue
        # (a + ib)(c + id) stands for itself and its conjugate. With x = c(a + b), y = a(d - c) and
        # z = b(c + d), its real part is x - z and its imaginary part is x + y.
        real, imaginary = 2 * back.real, -2 * back.imag
        pixels += [a + b, a, b]
        kernels += [c, d - c, c + d]
        synthesis += [real + imaginary, imaginary, -real]
    first, second, third = (torch.from_numpy(np.array(x)) for x in (pixels, kernels, synthesis))
    exact = torch.promote_types(dtype, torch.float32)
    return first.to(dtype), second.to(dtype), third.t().contiguous().to(exact)
