"""Convolutions of small maps by the discrete Fourier transform: the same sums of fewer products.

A convolution of stride s is a sum of s * s convolutions of stride 1, one for each phase of the rows
and columns. One that turns N x N numbers by k x k taps into (N - k + 1)^2 sums is, without any
padding, a product of transforms of N x N points. Those of real numbers come in conjugate pairs of
which one is enough, and a product of two complex numbers takes three of real ones (Gauss). So it is
three small real matrices around as many products of matrices as there are rows in them,

    sums = synthesis @ ((pixels @ map) * (taps @ kernels)),

as minimal filtering is (Lavin & Gray 2016, arXiv:1509.09308), with roots of unity for its points,
as in Mathieu et al. (2014, arXiv:1312.5851), for these lose no digits. The second convolution of
CapsNet, 9 x 9 taps of stride 2 on 20 x 20 numbers, has N = 10 and takes 592 products for 36 sums
where 2,916 are written.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from capsviz.nn import allocator
from capsviz.nn.computation import is_transformed, kept

LEAST_IMAGES = 16  # fewer pay less than it takes to read the transformed kernels
MOST_BYTES = 1 << 28  # of transformed kernels
GAIN = 2  # times fewer products, transforms included
TYPES = torch.float32, torch.float64, torch.bfloat16

_kept: tuple[tuple, Tensor, Tensor] | None = None  # kernels, and what they were transformed to


class Shape(NamedTuple):
    """Of one convolution: what it is given, and what the transform has."""

    channels: int
    outputs: int
    kernel: int
    stride: int
    rows: int  # of the result
    columns: int

    @property
    def taps(self) -> int:
        """Rows and columns of the kernel of each of the pictures."""
        return math.ceil(self.kernel / self.stride)

    @property
    def points(self) -> tuple[int, int]:
        """Rows and columns that are transformed."""
        return self.rows + self.taps - 1, self.columns + self.taps - 1

    @property
    def products(self) -> int:
        """Real products of one picture's transform with one kernel's: see `_forms`."""
        N, M = self.points
        alone = (1 + (N % 2 == 0)) * (1 + (M % 2 == 0))  # real ones, their own conjugates
        return alone + 3 * (N * M - alone) // 2


def shape_of(images: Tensor, weight: Tensor, stride: int) -> Shape:
    """The shape of a convolution of images (B, C, H, W) by kernels (O, C, k, k)."""
    O, C, k, _ = weight.shape
    rows, columns = ((side - k) // stride + 1 for side in images.shape[2:])
    return Shape(C, O, k, stride, rows, columns)


def pays(images: Tensor, weight: Tensor, stride: int) -> bool:
    """Return whether there are far fewer products, and room for their kernels."""
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
    """`conv2d(images, weight, bias, stride)`, by the transform; the result is channels-last.

    Made of PyTorch's own operations, so it has derivatives of any order. Kernels that no gradient
    is wanted of are transformed once, and again when they have changed. In bfloat16 errors are
    about 0.5 % of the results where `conv2d` has 0.3 %: the transforms are rounded as well.
    """
    s, B = shape_of(images, weight, stride), len(images)
    pixels, taps, synthesis = _forms(s.rows, s.columns, s.taps, images.dtype)
    if is_transformed() or (torch.is_grad_enabled() and weight.requires_grad):
        kernels = _transformed(weight, taps, s)
    else:
        kernels = _remembered(weight, taps, s)
    maps = (pixels @ _parts(images, *s.points, stride)).view(s.products, B, -1)
    products = torch.bmm(kernels, maps.transpose(1, 2))  # so its kernels' gradients need no copy
    sums = synthesis @ products.view(s.products, -1).to(synthesis)
    out = sums.view(-1, s.outputs, B).permute(2, 0, 1) + bias
    return out.to(images).view(B, s.rows, s.columns, s.outputs).permute(0, 3, 1, 2)


def workspace_bytes(images: Tensor, weight: Tensor, stride: int) -> int:
    """Memory of a training step's transforms and of their gradients, about; 0 unless it pays."""
    if not pays(images, weight, stride):
        return 0
    s = shape_of(images, weight, stride)
    maps = stride * stride * s.channels
    numbers = maps * s.outputs + len(images) * (maps + s.outputs)
    return 2 * weight.element_size() * s.products * numbers


def _parts(images: Tensor, rows: int, columns: int, stride: int) -> Tensor:
    """(B, C, H, W) -> (rows * columns, B * stride * stride * C): every stride-th pixel of each."""
    B, C, H, W = images.shape
    images = images.permute(0, 2, 3, 1)
    if (stride * rows, stride * columns) != (H, W):
        images = pad(images, (0, 0, 0, stride * columns - W, 0, stride * rows - H))
    parts = images.reshape(B, rows, stride, columns, stride, C).permute(1, 3, 0, 2, 4, 5)
    return parts.reshape(rows * columns, -1)


def _transformed(weight: Tensor, taps: Tensor, s: Shape) -> Tensor:
    """(O, C, k, k) -> (P, O, stride * stride * C)."""
    return (taps @ _parts(weight, s.taps, s.taps, s.stride)).view(s.products, s.outputs, -1)


def _remembered(weight: Tensor, taps: Tensor, s: Shape) -> Tensor:
    """`_transformed`, without gradients; of the last kernels, if these are equal to them."""
    global _kept
    with torch.inference_mode(False), torch.no_grad():  # for whoever wants gradients of images
        last, kind = _kept, (s, weight.dtype)
        if last is None or last[0] != kind or not torch.equal(last[1], weight):
            last = _kept = None  # before the next ones are made: they take 150 MB in CapsNet
            allocator.trim()  # which need not fit where those were
            last = _kept = (kind, weight.detach().clone(), _transformed(weight.detach(), taps, s))
    return last[2]


@kept
def _forms(rows: int, columns: int, taps: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """The matrices of the transform; the last, which sums, is of float32 at least.

    pixels (P, N * M), taps (P, taps * taps), synthesis (rows * columns, P), for P real products.
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
        # (a + ib)(c + id), of which each stands for two: x = c(a + b), y = a(d - c), z = b(c + d)
        # are its real part x - z and its imaginary part x + y
        real, imaginary = 2 * back.real, -2 * back.imag
        pixels += [a + b, a, b]
        kernels += [c, d - c, c + d]
        synthesis += [real + imaginary, imaginary, -real]
    first, second, third = (torch.from_numpy(np.array(x)) for x in (pixels, kernels, synthesis))
    exact = torch.promote_types(dtype, torch.float32)
    return first.to(dtype), second.to(dtype), third.t().contiguous().to(exact)
