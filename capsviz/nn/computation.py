"""Which way the same numbers are computed: fast, or literally as the paper writes it.

The fast way has forward and backward passes of its own, which PyTorch's function transforms and
exporters cannot see into. The literal way is made of PyTorch's own operations alone, and is taken
by itself inside a transform of `torch.func` and in forward mode.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

PRODUCTS = {
    *(functional.linear, functional.conv1d, functional.conv2d, functional.conv3d),
    *(functional.conv_transpose2d, torch.einsum, torch.matmul, torch.mm, torch.bmm),
    *(torch.addmm, torch.baddbmm, Tensor.__matmul__, Tensor.matmul, Tensor.mm, Tensor.bmm),
}
CPU = torch.device("cpu")
_literal: ContextVar[bool] = ContextVar("literal", default=False)


@contextmanager
def literal() -> Iterator[None]:
    """Inside this context networks use `conv2d` and route on votes that they hold.

    The same numbers but for rounding, slower and in more memory. For `torch.export` with a dynamic
    batch, and ONNX; under `torch.func` and in forward mode networks compute so by themselves. It
    holds for the thread or task that enters it, and for what is exported or compiled inside.
    """
    token = _literal.set(True)
    try:
        yield
    finally:
        _literal.reset(token)


def is_literal() -> bool:
    """Return whether `literal` holds here, or a transform that the fast way has no rules for."""
    return _literal.get() or is_transformed()


def is_transformed() -> bool:
    """Return whether this runs inside a transform of `torch.func`, or in forward mode."""
    if torch.compiler.is_compiling():
        return False
    inside = torch._C._functorch.peek_interpreter_stack() is not None
    return inside or torch.autograd.forward_ad._current_level >= 0


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor has numbers, and is not a stand-in of an exporter."""
    return type(tensor) in (Tensor, nn.Parameter)


def kept(constants: Callable) -> Callable:
    """Let a function compute each result once; it may be used in training too.

    Results are tensors, or tuples with some. Those of an exporter's stand-ins are not kept, nor
    those of a transform, which are tensors of that transform alone.
    """

    @wraps(constants)
    def remembered(*key):
        if key in results:
            return results[key]
        with torch.inference_mode(False):  # which would keep them from training later
            result = constants(*key)
        tensors = [one for one in tree_leaves(result) if isinstance(one, Tensor)]
        if all(map(is_plain, tensors)) and not is_transformed():
            results[key] = result
        return result

    results: dict = {}
    remembered.results = results  # type: ignore[attr-defined]
    return remembered


def channels_last(images: Tensor) -> Tensor:
    """Images (B, C, H, W) laid out as convolutions are fastest; unchanged in `literal`."""
    return images if is_literal() else images.contiguous(memory_format=torch.channels_last)


def without_autocast(device: torch.device) -> AbstractContextManager:
    """A context without autocast, on any device: some, as "meta", know no autocast at all."""
    kind = device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()


def multiplies_bfloat16() -> bool:
    """Return whether this processor has instructions for products of bfloat16."""
    return getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)()


@contextmanager
def in_bfloat16(device: torch.device, enabled: bool = True) -> Iterator[None]:
    """Inside, if enabled, autocast to bfloat16.

    PyTorch's own products of it are some twenty times slower than those of float32 on a processor
    without instructions for them; there rounded numbers are multiplied in float32.
    """
    emulated = enabled and device.type == "cpu" and not multiplies_bfloat16()
    rounded = _Rounded() if emulated else nullcontext()
    with torch.autocast(device.type, torch.bfloat16, enabled=enabled), rounded:
        yield


class _Rounded(TorchFunctionMode):
    """Products that would be of bfloat16 are of numbers rounded to it, and are rounded to it."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func not in PRODUCTS:
            return func(*args, **kwargs)
        given = {x.dtype for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        casts = torch.is_autocast_enabled("cpu") and given <= {torch.float32, torch.bfloat16}
        if not (casts or given == {torch.bfloat16}):
            return func(*args, **kwargs)
        args, kwargs = tree_map_only(Tensor, lambda x: x.bfloat16().float(), (args, kwargs))
        with torch.autocast("cpu", enabled=False):
            return func(*args, **kwargs).bfloat16()


def normed(norm: nn.Module, values: Tensor) -> Tensor:
    """Apply a norm to values, in their type, where its own tensors may be of half precision.

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


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, the CPU draws from a seed; afterwards its state is what it was. No GPU's changes."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every GPU too
        yield


@contextmanager
def draws(seed: int, device: torch.device = CPU) -> Iterator[None]:
    """Seed torch, numpy and Python's random, and put their states back; of GPUs, the device's."""
    states = random.getstate(), np.random.get_state()
    with ExitStack() as stack:
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
            stack.enter_context(torch.random.fork_rng(devices=[torch.cuda.current_device()]))
            torch.cuda.manual_seed(seed)
        stack.enter_context(seeded(seed))
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
