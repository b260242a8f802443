"""Convolutions without padding: PyTorch's own, or what is faster (benchmarks/notes.md).

On a CPU one of many images with large kernels on small maps, as CapsNet's second, goes by the
Fourier transform (`capsviz.nn.fourier`): in training, in bfloat16 or if freed memory is kept
(`capsviz.nn.allocator`), for it takes more. As to the others, oneDNN multiplies matrices faster
than it convolves, but the patches take memory. If freed memory is kept, and only then, one is a
product of all patches if it has few channels, so that they take no more than the result, or few
images of `WIDE` channels and more. On a GPU, in bfloat16, that of few channels is faster, too.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear, pad

from capsviz.nn import allocator, fourier
from capsviz.nn.computation import is_literal, is_plain, multiplies_bfloat16, without_autocast

ROWS_KEPT = 1152  # patches of many channels, at most: 96 MB in float32
WIDE = 128


class Convolution(nn.Conv2d):
    """A convolution without padding by `convolve`, its weight channels-last; hooks of it fire.

    scale  factor on the weight.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, scale: float = 1.0):
        super().__init__(inputs, outputs, kernel, stride)
        self.scale = scale
        self.to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, C, H, W) -> features (B, O, rows, columns)."""
        weight = self.weight if self.scale == 1 else self.weight * self.scale
        return convolve(images, weight, self.bias, self.stride[0])

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """As any module; what `torch.nn.utils.prune` masks is contiguous, as it expects."""
        if name == "weight_orig" and param is not None:
            param.data = param.data.contiguous()
        super().register_parameter(name, param)


def convolve(images: Tensor, weight: Tensor, bias: Tensor | None, stride: int = 1) -> Tensor:
    """`conv2d(images, weight, bias, stride)`; its result is channels-last if memory is kept
    or the Fourier transform is taken.

    Images (B, C, H, W), weight (O, C, k, k), best channels-last in memory, bias (O,) or None.
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
    few = min(weight.shape[:2]) >= WIDE and len(images) * rows * columns <= ROWS_KEPT
    if weight[0].numel() <= len(weight) or (few and images.dtype != torch.float16):
        return _all_patches(images, weight, bias, stride)
    out = conv2d(images, weight, bias, stride)
    return out.contiguous(memory_format=torch.channels_last)


def workspace_bytes(images: Tensor, weight: Tensor, stride: int) -> int:
    """Memory of what `convolve` holds in a training step and of its gradients, at most about.

    On a CPU: transforms under autocast, or where freed memory is kept, and then patches too.
    """
    kept, half = allocator.kept(), torch.is_autocast_enabled("cpu")
    if weight.is_cuda or not (kept or half):
        return 0
    transforms = fourier.workspace_bytes(images, weight, stride)
    if half and multiplies_bfloat16():
        transforms //= 2
    return transforms + kept * 2 * 4 * ROWS_KEPT * weight[0].numel()


def _all_patches(images: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    O, _, k, _ = weight.shape
    patches = images.unfold(2, k, stride).unfold(3, k, stride).permute(0, 2, 3, 4, 5, 1)
    B, rows, columns = patches.shape[:3]
    patches = patches.reshape(B * rows * columns, weight[0].numel())
    kernels = weight.permute(0, 2, 3, 1).reshape(O, -1)  # no copy of channels-last ones
    if images.is_cuda:  # whose rows are read in eights
        more = -patches.shape[1] % 8
        out = linear(pad(patches, (0, more)), pad(kernels, (0, more)), bias)
    elif images.dtype == torch.bfloat16:  # for which PyTorch takes oneDNN
        out = linear(patches, kernels, bias)
    else:  # a convolution of 1 x 1, by oneDNN: MKL, which PyTorch multiplies by, is slower
        out = conv2d(patches[None, :, None].permute(0, 3, 1, 2), kernels[:, :, None, None], bias)
        out = out.permute(0, 2, 3, 1)
    return out.reshape(B, rows, columns, O).permute(0, 3, 1, 2)
