"""Which way the same numbers are computed: fast, or literally as the paper writes it.

The fast way has forward and backward passes of its own, which PyTorch's function transforms and
exporters cannot see into. The literal way is made of PyTorch's own operations alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps

import torch
from torch import Tensor, nn

_literal: ContextVar[bool] = ContextVar("literal", default=False)


@contextmanager
def literal() -> Iterator[None]:
    """Inside this context networks use `conv2d` and route on votes that they hold.

    The same numbers but for rounding, slower and in more memory. For `torch.func` (grad, vmap,
    jacrev, jvp), forward-mode derivatives, `torch.export` with a dynamic batch, and ONNX. It holds
    for the thread or task that enters it, and for what is exported or compiled inside.
    """
    token = _literal.set(True)
    try:
        yield
    finally:
        _literal.reset(token)


def is_literal() -> bool:
    """Whether `literal` holds here."""
    return _literal.get()


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor has numbers, and is no stand-in of an exporter's: those must not be kept."""
    return type(tensor) in (Tensor, nn.Parameter)


def kept(constants: Callable) -> Callable:
    """A function of which each result is made once, to be used in training, too.

    Results are tensors, or tuples with some. Those of an exporter's stand-ins are not kept.
    """

    @wraps(constants)
    def remembered(*key):
        if key in results:
            return results[key]
        with torch.inference_mode(False):  # which would keep them from training later
            result = constants(*key)
        if all(map(is_plain, _tensors(result))):
            results[key] = result
        return result

    results: dict = {}
    remembered.results = results  # type: ignore[attr-defined]
    return remembered


def _tensors(value) -> list[Tensor]:
    if isinstance(value, tuple):
        return [tensor for part in value for tensor in _tensors(part)]
    return [value] if isinstance(value, Tensor) else []


def channels_last(images: Tensor) -> Tensor:
    """Images (B, C, H, W) laid out as convolutions are fastest; literally as they are."""
    return images if is_literal() else images.contiguous(memory_format=torch.channels_last)


def without_autocast(device: torch.device) -> AbstractContextManager:
    """A context without autocast, on any device: some, as "meta", know no autocast at all."""
    kind = device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()


def manner(device: torch.device) -> tuple:
    """What the numbers that are computed here depend on, beside network and images."""
    kind = device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return (is_literal(),)
    return is_literal(), torch.get_autocast_dtype(kind)


def normed(norm: nn.Module, values: Tensor) -> Tensor:
    """What a norm makes of values, in their type, where its own tensors may be of half precision.

    PyTorch's norms refuse float32 values beside them. What they learn of a batch is theirs again.
    """
    tensors = dict(norm.named_parameters()) | dict(norm.named_buffers())
    raised = {
        name: own.to(values.dtype)
        for name, own in tensors.items()
        if own.is_floating_point() and own.dtype != values.dtype
    }
    if not raised:
        return norm(values)
    result = torch.func.functional_call(norm, raised, (values,))
    for name, own in norm.named_buffers():
        if name in raised:
            own.copy_(raised[name])
    return result
