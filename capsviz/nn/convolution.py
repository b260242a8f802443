"""Convolutions without padding: PyTorch's own, or what is faster (benchmarks/notes.md).

On a CPU one of many images with large kernels on small maps, as CapsNet's second, goes by the
Fourier transform (`capsviz.nn.fourier`): in training, in bfloat16 or if freed memory is kept
(`capsviz.nn.allocator`), for it takes more. As to the others, oneDNN multiplies matrices faster
than it convolves, but the patches take memory; if freed memory is kept, and only then, one is

few channels   the product of all patches at once, which take no more memory than the result;
many channels  that of some images at a time, from `WIDE` channels to as many: below, oneDNN's
               convolution is faster.

On a GPU, in bfloat16, the first of these is faster, too (measured of 81 numbers a patch).
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear, pad

from capsviz.nn import allocator, fourier
from capsviz.nn.computation import is_literal, is_plain, without_autocast

ROWS_KEPT = 1152  # patches at a time: of 32 images of MNIST, 96 MB in float32
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
    if weight[0].numel() <= len(weight):
        return _all_patches(images, weight, bias, stride)
    images = images.contiguous(memory_format=torch.channels_last)
    if min(weight.shape[:2]) >= WIDE and images.dtype != torch.float16:
        return _Products.apply(images, weight, bias, stride)
    out = conv2d(images, weight, bias, stride)
    return out.contiguous(memory_format=torch.channels_last)


def workspace_bytes(images: Tensor, weight: Tensor, stride: int) -> int:
    """Memory of what `convolve` holds in a training step and of its gradients, at most about.

    On a CPU: transforms, if only in bfloat16, and where freed memory is kept patches in float32.
    """
    if weight.is_cuda:
        return 0
    transforms = fourier.workspace_bytes(images, weight, stride)
    if not allocator.kept():
        return transforms // 2
    shape = fourier.shape_of(images, weight, stride)
    patches = max(ROWS_KEPT, shape.rows * shape.columns) * weight[0].numel()
    return transforms + 2 * 4 * patches


def _all_patches(images: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    O, _, k, _ = weight.shape
    patches = images.unfold(2, k, stride).unfold(3, k, stride).permute(0, 2, 3, 4, 5, 1)
    B, rows, columns = patches.shape[:3]
    patches = patches.reshape(B * rows * columns, weight[0].numel())
    if images.is_cuda:  # whose rows are read in eights
        more = -patches.shape[1] % 8
        out = linear(pad(patches, (0, more)), pad(_flat(weight), (0, more)), bias)
    else:
        out = _times(patches, _flat(weight), bias)
    return out.view(B, rows, columns, O).permute(0, 3, 1, 2)


class _Products(torch.autograd.Function):
    """Inside, images are (n, H, W, C) and patches (n * rows * columns, k * k * C)."""

    @staticmethod
    def forward(ctx, images, weight, bias, stride):
        O, _, k, _ = weight.shape
        rows, columns = ((side - k) // stride + 1 for side in images.shape[2:])
        ctx.save_for_backward(images, weight)
        ctx.stride = stride
        ctx.chunk = max(1, ROWS_KEPT // (rows * columns))
        parts = images.permute(0, 2, 3, 1).split(ctx.chunk)
        out = [_times(_patches(part, k, stride), _flat(weight), bias) for part in parts]
        return torch.cat(out).view(-1, rows, columns, O).permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx, grad):
        images, weight = ctx.saved_tensors
        with without_autocast(grad.device):
            if torch.is_grad_enabled():  # to be differentiated again
                return (*_plain_gradients(grad, images, weight, ctx.stride), None)
            return (*_Products._gradients(ctx, grad, images, weight), None)

    @staticmethod
    def _gradients(ctx, grad, images, weight):
        O, C, k, _ = weight.shape
        dtype = torch.promote_types(images.dtype, torch.float32)  # in which chunks are added
        grad = grad.contiguous(memory_format=torch.channels_last)
        kernels = _flat(weight).t().contiguous()
        dimages = torch.zeros_like(images, dtype=dtype)
        dweight = weight.new_zeros(O, k * k * C, dtype=dtype)
        whole = (x.permute(0, 2, 3, 1).split(ctx.chunk) for x in (images, grad, dimages))
        for part, dmade, dpart in zip(*whole, strict=True):
            flat = dmade.reshape(-1, O)
            if ctx.needs_input_grad[1]:  # not where the network is attacked
                dweight += _transposed_times(flat, _patches(part, k, ctx.stride))
            dpatches = _times(flat, kernels).view(*dmade.shape[:3], k, k, C)
            _add_patches(dpart, dpatches, ctx.stride)
        dweight = dweight.view(O, k, k, C).permute(0, 3, 1, 2).to(weight.dtype)
        return dimages.to(images.dtype), dweight, grad.sum((0, 2, 3))


def _plain_gradients(grad: Tensor, images: Tensor, weight: Tensor, stride: int) -> tuple:
    """Return the gradients by PyTorch's own convolution, which can be differentiated again."""
    return torch.ops.aten.convolution_backward(
        grad, images, weight, [len(weight)], [stride] * 2, [0, 0], [1, 1], False, [0, 0], 1,
        [True, True, True],
    )  # fmt: skip


def _add_patches(images: Tensor, patches: Tensor, stride: int) -> None:
    """Add patches (n, rows, columns, k, k, C) to where in (n, H, W, C) they were taken from."""
    rows, columns, k = patches.shape[1:4]
    height, width = stride * (rows - 1) + 1, stride * (columns - 1) + 1
    for r in range(k):
        for c in range(k):
            place = images[:, r : r + height : stride, c : c + width : stride]
            place += patches[:, :, :, r, c]


def _patches(images: Tensor, k: int, stride: int) -> Tensor:
    """(n, H, W, C) -> (n * rows * columns, k * k * C)."""
    patches = images.unfold(1, k, stride).unfold(2, k, stride).permute(0, 1, 2, 4, 5, 3)
    return patches.reshape(patches.shape[:3].numel(), -1)


def _flat(weight: Tensor) -> Tensor:
    """(O, C, k, k) -> (O, k * k * C), without a copy if it is channels-last in memory."""
    return weight.permute(0, 2, 3, 1).reshape(len(weight), -1)


def _times(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """a (M, K) times b (N, K) transposed, as oneDNN multiplies: MKL, PyTorch's own, is slower."""
    if a.dtype == torch.bfloat16:  # for which PyTorch takes oneDNN
        return linear(a, b, bias)
    out = conv2d(a.view(1, len(a), 1, a.shape[1]).permute(0, 3, 1, 2), b[:, :, None, None], bias)
    return out.permute(0, 2, 3, 1).reshape(len(a), len(b))


def _transposed_times(a: Tensor, b: Tensor) -> Tensor:
    """a (M, K) transposed times b (M, N), likewise."""
    if a.dtype == torch.bfloat16:
        return a.t() @ b
    out = conv2d(b[None, :, :, None], a.t()[:, :, None, None].contiguous())  # b as an image of M
    return out.view(a.shape[1], -1)
