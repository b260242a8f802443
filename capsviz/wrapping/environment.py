"""Run a user's code uncompiled, on the CPU if there is no GPU, and restore its state afterwards.

Some of these functions change the whole process, so its threads take turns (`ALONE`).
"""

import inspect
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import (
    contextmanager,
    nullcontext,
    redirect_stdout,
    suppress,
)
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from capsviz.wrapping.leaves import mapped

TORCH = str(Path(torch.__file__).parent)
OURS = str(Path(__file__).parents[1])


ALONE = threading.RLock()  # held while the process, or a network's attributes, are changed


@contextmanager
def on_stderr() -> Iterator[None]:
    """Redirect prints to stderr, so that they do not mix with a command's output."""
    with ALONE, redirect_stdout(sys.stderr):
        yield


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run compiled code eagerly, because nothing inside compiled code is visible."""
    # without dynamo nothing can be compiled yet, and it is slow to import
    compiled = "torch._dynamo" in sys.modules
    with ALONE, torch.compiler.set_stance("force_eager") if compiled else nullcontext():
        yield


ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)  # *args, **kwargs
HOLDERS = (
    nn.DataParallel,
    nn.parallel.DistributedDataParallel,
    torch.optim.swa_utils.AveragedModel,
)


def as_written(network) -> Any:
    """Return the user's module or function from inside `torch.compile` and torch's wrappers.

    Anything else is returned unchanged.
    """
    while isinstance(network, nn.Module):
        name = "module" if isinstance(network, HOLDERS) else "_orig_mod"
        if name not in network._modules:
            break
        network = network._modules[name]
    return getattr(network, "_torchdynamo_orig_callable", network)


KINDS = {
    "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16,
    "LongTensor": torch.int64, "IntTensor": torch.int32, "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}  # fmt: skip


def names_gpu(leaf) -> bool:
    """Return whether an argument is a CUDA device or the name of one."""
    if isinstance(leaf, torch.device):
        return leaf.type == "cuda"
    return isinstance(leaf, str) and leaf.partition(":")[0] == "cuda"


def follow(device: torch.device, function, args: tuple, kwargs: dict):
    """Return the same call with every GPU among its arguments replaced by the network's device."""
    if device.type == "cuda":
        return function, args, kwargs
    if function is Tensor.cuda:
        return Tensor.to, (args[0], device), {}
    if function is Tensor.type and len(args) > 1:
        kind = getattr(args[1], "dtype", None) or KINDS.get(str(args[1]).rpartition("cuda.")[2])
        return (Tensor.to, (args[0], kind), {}) if kind else (function, args, kwargs)

    def here(leaf):
        by_number = function is Tensor.to and type(leaf) is int
        return device if by_number or names_gpu(leaf) else leaf

    if function is Tensor.to or "device" in kwargs:
        return function, mapped(args, here), mapped(kwargs, here)
    return function, args, kwargs


@contextmanager
def without_cuda() -> Iterator[None]:
    """Build and run code written for a GPU on the CPU, if there is no GPU.

    Covers `.cuda()` of modules and tensors, `torch.cuda.FloatTensor` and the like, devices by name
    or number (`.to("cuda")`, `torch.zeros(2, device="cuda")`), files of tensors that were on a GPU,
    and waiting for one.
    """
    if torch.cuda.is_available():
        yield
    else:
        with ALONE, _replaced(), _OnCPU():
            yield


class _OnCPU(TorchFunctionMode):
    """Send every call to the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        function, args, kwargs = follow(torch.device("cpu"), function, args, kwargs or {})
        return function(*args, **kwargs)


@contextmanager
def _replaced() -> Iterator[None]:
    """Replace functions that need a GPU and that a TorchFunctionMode does not intercept."""

    def make(dtype):
        def tensor(*args):
            if len(args) == 1 and not isinstance(args[0], int):
                return torch.tensor(args[0], dtype=dtype)
            return torch.empty(args, dtype=dtype)

        tensor.dtype = dtype
        return tensor

    read = torch.load

    def load(file, map_location=None, *args, **kwargs):
        return read(file, "cpu", *args, **kwargs)

    new: list[tuple[Any, str, Any]] = [
        *((torch.cuda, name, make(dtype)) for name, dtype in KINDS.items()),
        *((torch.cuda, name, lambda *_, **__: None) for name in ("synchronize", "set_device")),
        (torch, "load", load),
    ]
    old = [(where, name, getattr(where, name)) for where, name, _ in new]
    try:
        for where, name, value in new:
            setattr(where, name, value)
        yield
    finally:
        for where, name, value in old:
            setattr(where, name, value)


@contextmanager
def restored(network: nn.Module) -> Iterator[None]:
    """Restore buffers and attributes of modules, except `training`, on exit.

    An attribute that is not a buffer is restored by reference, not copied. TorchScript modules
    have only their buffers restored.
    """
    values = [(buffer, buffer.clone()) for buffer in network.buffers()]
    modules = [one for one in network.modules() if not isinstance(one, torch.jit.ScriptModule)]
    before = [(one, dict(vars(one)), dict(one._buffers)) for one in modules]
    try:
        yield
    finally:
        for module, attributes, buffers in before:
            for name in vars(module).keys() - attributes.keys():
                del vars(module)[name]
            vars(module).update({k: v for k, v in attributes.items() if k != "training"})
            module._buffers.clear()
            module._buffers.update(buffers)
        for buffer, value in values:
            if not torch.equal(buffer, value):
                buffer.copy_(value)


def in_words(error: BaseException) -> str:
    """Return the type and message of an error in one line of at most 300 characters."""
    return f"{type(error).__name__}: {one_line(error)}"[:300]


def one_line(error: BaseException) -> str:
    """Return the message of an error in one line."""
    return " ".join(str(error).split())


def raised_at(error: BaseException) -> str:
    """Return where the user's code raised, as " (layers.py:67)"; "" if it did not."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((TORCH, OURS))]
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""


def beside_images(network: nn.Module) -> list[inspect.Parameter]:
    """Return the arguments of `forward` after the images."""
    with suppress(TypeError, ValueError):
        own = list(inspect.signature(network.forward).parameters.values())
        return own if own and own[0].kind in ANY else own[1:]
    return []
