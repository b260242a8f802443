"""Convolutions without padding, their result channels-last, each by the fastest way there is.

On a CPU oneDNN multiplies matrices faster than it convolves, so a convolution is done as a product
of kernels and patches: at once where the patches take no more memory than the result, else some
images at a time, which pays where freed memory is kept (`capsviz.allocator`).
benchmarks/notes.md has what was measured.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import conv2d

from capsviz import allocator

ROWS = 1152  # patches at a time, of 32 images of MNIST: 96 MB in float32


def convolve(images: Tensor, weight: Tensor, bias: Tensor, stride: int = 1) -> Tensor:
    """`conv2d(images, weight, bias, stride)`, its result channels-last in memory.

    Parameters
    ----------
    images  (B, C, H, W).
    weight  (O, C, k, k), best channels-last in memory.
    bias    (O,).
    stride  pixels.

    Returns
    -------
    (B, O, rows, columns). On the CPU some ways allow no second derivative.
    """
    on_cpu = images.device.type == "cpu" and not torch.compiler.is_compiling()
    if on_cpu and weight[0].numel() <= len(weight):
        return _all_patches(images, weight, bias, stride)
    images = images.contiguous(memory_format=torch.channels_last)
    if on_cpu and allocator.kept():
        if torch.is_autocast_enabled("cpu"):
            dtype = torch.get_autocast_dtype("cpu")
            images, weight, bias = (x.to(dtype) for x in (images, weight, bias))
        return _Product.apply(images, weight, bias, stride)
    made = conv2d(images, weight, bias, stride)
    return made.contiguous(memory_format=torch.channels_last)


def _all_patches(images: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    O, _, k, _ = weight.shape
    patches = images.unfold(2, k, stride).unfold(3, k, stride).permute(0, 2, 3, 4, 5, 1)
    B, rows, columns = patches.shape[:3]
    made = _times(patches.reshape(B * rows * columns, -1), _flat(weight), bias)
    return made.view(B, rows, columns, O).permute(0, 3, 1, 2)


class _Product(torch.autograd.Function):
    """Inside, images are (n, H, W, C) and patches (n * rows * columns, k * k * C)."""

    @staticmethod
    def forward(ctx, images, weight, bias, stride):
        O, _, k, _ = weight.shape
        rows, columns = ((side - k) // stride + 1 for side in images.shape[2:])
        ctx.save_for_backward(images, weight)
        ctx.stride, ctx.chunk = stride, max(1, ROWS // (rows * columns))
        parts = images.permute(0, 2, 3, 1).split(ctx.chunk)
        made = [_times(_patches(part, k, stride), _flat(weight), bias) for part in parts]
        made = made[0] if len(made) == 1 else torch.cat(made)
        return made.view(-1, rows, columns, O).permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        images, weight = ctx.saved_tensors
        O, C, k, _ = weight.shape
        kernels, stride = _flat(weight), ctx.stride
        backward = kernels.t().contiguous()
        dweight = torch.zeros_like(kernels, dtype=torch.promote_types(kernels.dtype, torch.float32))
        dimages = torch.empty_like(images.permute(0, 2, 3, 1))
        whole = images.permute(0, 2, 3, 1), grad.permute(0, 2, 3, 1), dimages
        for part, dmade, dpart in zip(*(x.split(ctx.chunk) for x in whole), strict=True):
            n, rows, columns, _ = dmade.shape
            flat = dmade.reshape(-1, O)
            patches = _patches(part, k, stride)
            # flat.T @ patches: they are the channels-first image of a 1x1 convolution
            dkernels = conv2d(patches[None, :, :, None], flat.t()[:, :, None, None].contiguous())
            dweight += dkernels.view(O, -1)
            dpatches = _times(flat, backward).view(n, rows, columns, k, k, C)
            total = dweight.new_zeros(dpart.shape)
            height, width = stride * (rows - 1) + 1, stride * (columns - 1) + 1
            for r in range(k):
                for c in range(k):
                    place = total[:, r : r + height : stride, c : c + width : stride]
                    place += dpatches[:, :, :, r, c]
            dpart.copy_(total)
        dweight = dweight.view(O, k, k, C).permute(0, 3, 1, 2).to(weight.dtype)
        return dimages.permute(0, 3, 1, 2), dweight, grad.sum((0, 2, 3)), None


def _patches(images: Tensor, k: int, stride: int) -> Tensor:
    """(n, H, W, C), contiguous, -> (n * rows * columns, k * k * C)."""
    patches = images.unfold(1, k, stride).unfold(2, k, stride).permute(0, 1, 2, 4, 5, 3)
    return patches.reshape(patches.shape[:3].numel(), -1)


def _flat(weight: Tensor) -> Tensor:
    """(O, C, k, k) -> (O, k * k * C), without a copy if it is channels-last in memory."""
    return weight.permute(0, 2, 3, 1).reshape(len(weight), -1)


def _times(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """a (M, K) times b (N, K) transposed, by a 1x1 convolution: oneDNN's product, not MKL's."""
    made = conv2d(a.view(1, len(a), 1, -1).permute(0, 3, 1, 2), b[:, :, None, None], bias)
    return made.permute(0, 2, 3, 1).reshape(len(a), -1)
