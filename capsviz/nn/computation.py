"""Choose how numbers are computed: fast, or literally as the paper writes it.

The fast way has hand-written forward and backward passes, which PyTorch's function transforms and
exporters cannot trace. The literal way uses PyTorch's operations alone. It is chosen automatically
inside a transform of `torch.func` and in forward mode.
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
    """Make networks use `conv2d` and stored votes within this context.

    Results are equal up to rounding, but take more time and memory. Use it for `torch.export` with
    a dynamic batch and for ONNX; under `torch.func` and in forward mode it is automatic. It holds
    for the current thread or task, and for models exported or compiled inside.
    """
    token = _literal.set(True)
    try:
        yield
    finally:
        _literal.reset(token)


def is_literal() -> bool:
    """Return whether to compute literally: in `literal`, `torch.func` or forward mode."""
    return _literal.get() or is_transformed()


def is_transformed() -> bool:
    """Return whether this runs inside a transform of `torch.func`, or in forward mode."""
    if torch.compiler.is_compiling():
        return False
    inside = torch._C._functorch.peek_interpreter_stack() is not None
    return inside or torch.autograd.forward_ad._current_level >= 0


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor is a real one, and not the placeholder of an exporter."""
    return type(tensor) in (Tensor, nn.Parameter)


def cached(constants: Callable) -> Callable:
    """Cache the results of a function, which may be used in training too.

    Results are tensors, or tuples with tensors. They are not cached for the placeholder tensors of
    an exporter, or inside a transform of `torch.func`, whose tensors are invalid outside.
    """

    @wraps(constants)
    def remembered(*key):
        if key in results:
            return results[key]
        with torch.inference_mode(False):  # inference tensors cannot be used in training
            result = constants(*key)
        tensors = [one for one in tree_leaves(result) if isinstance(one, Tensor)]
        if all(map(is_plain, tensors)) and not is_transformed():
            results[key] = result
        return result

    results: dict = {}
    remembered.results = results  # type: ignore[attr-defined]
    return remembered


def channels_last(images: Tensor) -> Tensor:
    """Return images (B, C, H, W) in the fastest layout for convolutions; unchanged in `literal`."""
    return images if is_literal() else images.contiguous(memory_format=torch.channels_last)


def without_autocast(device: torch.device) -> AbstractContextManager:
    """Return a context without autocast, also for devices without autocast, such as "meta"."""
    kind = device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()


def multiplies_bfloat16() -> bool:
    """Return whether this CPU has instructions for bfloat16 products."""
    return getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)()


@contextmanager
def in_bfloat16(device: torch.device, enabled: bool = True) -> Iterator[None]:
    """Autocast to bfloat16 within this context, if enabled.

    On a CPU without bfloat16 instructions, numbers are rounded and multiplied in float32: PyTorch's
    own bfloat16 products are some twenty times slower there.
    """
    emulated = enabled and device.type == "cpu" and not multiplies_bfloat16()
    rounded = _Rounded() if emulated else nullcontext()
    with torch.autocast(device.type, torch.bfloat16, enabled=enabled), rounded:
        yield


class _Rounded(TorchFunctionMode):
    """Emulate bfloat16 products: round the factors, multiply in float32, round the result."""

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
    """Apply a norm to values in the values' type, even if the norm has half-precision tensors.

    PyTorch's norms refuse this mixture. Updated running statistics are copied back to the norm.
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
    """Seed torch on the CPU within this context and restore its state; GPUs are not affected."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every GPU too
        yield


@contextmanager
def draws(seed: int, device: torch.device = CPU) -> Iterator[None]:
    """Seed torch (on the CPU and `device`), numpy and random, and restore their states after."""
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
