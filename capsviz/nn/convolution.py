"""Convolve without padding, by PyTorch or by a faster method (benchmarks/notes.md).

On a CPU there are two faster methods:
    Fourier transform   for many images, large kernels and small maps, as in CapsNet's second
                        convolution (`capsviz.nn.fourier`). It takes more memory, so training uses
                        it only in bfloat16 or if freed memory is kept (`capsviz.nn.allocator`).
    product of patches  if freed memory is kept: for few input channels, where the patches are no
                        larger than the result, or for few images of at least `WIDE` channels.
On a GPU, the product of patches is faster for few input channels in bfloat16.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear, pad

from capsviz.nn import allocator, fourier
from capsviz.nn.computation import is_literal, is_plain, multiplies_bfloat16, without_autocast

MOST_PATCHES = 1152  # largest number of patches of many channels: 96 MB in float32
WIDE = 128


class Convolution(nn.Conv2d):
    """A convolution without padding by `convolve`; its weight is channels-last.

    `scale` is a factor on the weight.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, scale: float = 1.0):
        super().__init__(inputs, outputs, kernel, stride)
        self.scale = scale
        self.to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        """Return features (B, O, rows, columns) of images (B, C, H, W)."""
        weight = self.weight if self.scale == 1 else self.weight * self.scale
        return convolve(images, weight, self.bias, self.stride[0])

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """Register a parameter; one that `torch.nn.utils.prune` masks is made contiguous."""
        if name == "weight_orig" and param is not None:
            param.data = param.data.contiguous()
        super().register_parameter(name, param)


def convolve(images: Tensor, weight: Tensor, bias: Tensor | None, stride: int = 1) -> Tensor:
    """Return `conv2d(images, weight, bias, stride)`.

    Images (B, C, H, W), weight (O, C, k, k), best channels-last in memory, bias (O,) or None. The
    result is channels-last if memory is kept or the Fourier transform is used.
    """
    kind = images.device.type
    plain = is_plain(images) and not is_literal() and not torch.compiler.is_compiling()
    if not plain or bias is None or kind not in ("cpu", "cuda") or len(images) == 0:
        return conv2d(images, weight, bias, stride)
    if torch.is_autocast_enabled(kind) and images.dtype != torch.float64:
        dtype = torch.get_autocast_dtype(kind)
        images, weight, bias = images.to(dtype), weight.to(dtype), bias.to(dtype)
    if kind == "cuda":
        few = weight[0].numel() <= len(weight) and images.dtype == torch.bfloat16
        return (_all_patches if few else conv2d)(images, weight, bias, stride)
    learning = torch.is_grad_enabled() and weight.requires_grad
    roomy = allocator.kept() or not learning or images.dtype == torch.bfloat16
    if roomy and fourier.pays(images, weight, stride):
        with without_autocast(images.device):
            return fourier.convolve(images, weight, bias, stride)
    if not allocator.kept():
        return conv2d(images, weight, bias, stride)
    images = images.contiguous(memory_format=torch.channels_last)
    rows, columns = ((side - weight.shape[2]) // stride + 1 for side in images.shape[2:])
    few = min(weight.shape[:2]) >= WIDE and len(images) * rows * columns <= MOST_PATCHES
    if weight[0].numel() <= len(weight) or (few and images.dtype != torch.float16):
        return _all_patches(images, weight, bias, stride)
    out = conv2d(images, weight, bias, stride)
    return out.contiguous(memory_format=torch.channels_last)


def workspace_bytes(images: Tensor, weight: Tensor, stride: int) -> int:
    """Estimate the peak memory of `convolve` and its gradients in a training step, in bytes.

    It includes transforms (under autocast or if freed memory is kept) and patches (if freed memory
    is kept). On a GPU it is 0.
    """
    kept, half = allocator.kept(), torch.is_autocast_enabled("cpu")
    if weight.is_cuda or not (kept or half):
        return 0
    transforms = fourier.workspace_bytes(images, weight, stride)
    if half and multiplies_bfloat16():
        transforms //= 2
    return transforms + kept * 2 * 4 * MOST_PATCHES * weight[0].numel()


def _all_patches(images: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    """Convolve by one product of all patches with the kernels."""
    O, _, k, _ = weight.shape
    patches = images.unfold(2, k, stride).unfold(3, k, stride).permute(0, 2, 3, 4, 5, 1)
    B, rows, columns = patches.shape[:3]
    patches = patches.reshape(B * rows * columns, weight[0].numel())
    kernels = weight.permute(0, 2, 3, 1).reshape(O, -1)  # a view if channels-last
    if images.is_cuda:  # tensor cores need rows of a multiple of 8
        more = -patches.shape[1] % 8
        out = linear(pad(patches, (0, more)), pad(kernels, (0, more)), bias)
    elif images.dtype == torch.bfloat16:  # here `linear` uses oneDNN
        out = linear(patches, kernels, bias)
    else:  # a 1 x 1 convolution uses oneDNN, which is faster here than MKL, used by `linear`
        out = conv2d(patches[None, :, None].permute(0, 3, 1, 2), kernels[:, :, None, None], bias)
        out = out.permute(0, 2, 3, 1)
    return out.reshape(B, rows, columns, O).permute(0, 3, 1, 2)
