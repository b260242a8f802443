"""Networks that say `.cuda()` in their code, on a machine or a network that is not on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from capsviz.wrapping.leaves import mapped
from capsviz.wrapping.shared import Shared

KINDS = {
    "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16,
    "LongTensor": torch.int64, "IntTensor": torch.int32, "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}  # fmt: skip


def follow(device: torch.device, function, args: tuple, kwargs: dict):
    """The same call with every GPU that its arguments name replaced by the network's device."""
    if device.type == "cuda":
        return function, args, kwargs
    if function is Tensor.cuda:
        return Tensor.to, (args[0], device), {}

    if function is Tensor.type and len(args) > 1:
        kind = getattr(args[1], "dtype", None) or KINDS.get(str(args[1]).rpartition("cuda.")[2])
        return (Tensor.to, (args[0], kind), {}) if kind else (function, args, kwargs)

    def here(leaf):
        if isinstance(leaf, torch.device) and leaf.type == "cuda":
            return device
        if isinstance(leaf, str) and leaf.partition(":")[0] == "cuda":
            return device
        if function is Tensor.to and type(leaf) is int:  # a GPU by its number
            return device
        return leaf

    if function is Tensor.to or "device" in kwargs:
        return function, mapped(args, here), mapped(kwargs, here)
    return function, args, kwargs


@contextmanager
def without_cuda():
    """Inside, code that builds or runs a network on a GPU does so on the CPU, if there is no GPU.

    `.cuda()` of modules and tensors, `torch.cuda.FloatTensor` and its like, devices that are named
    or handed on (`.to("cuda")`, `torch.zeros(2, device="cuda")`), files of tensors that lay on a
    GPU, and waiting for one; all are put back.
    """
    if torch.cuda.is_available():
        yield
        return
    with _on_the_cpu, _Following():
        yield


def followed(function: Callable) -> Callable:
    """A function of somebody's that runs as `without_cuda` has it."""

    def run(*args):
        with without_cuda():
            return function(*args)

    return run


class _Following(TorchFunctionMode):
    """Every call on the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        function, args, kwargs = follow(torch.device("cpu"), function, args, kwargs or {})
        return function(*args, **kwargs)


def _replace() -> Callable[[], None]:
    """The CPU in the GPU's place; what puts back what was there before."""

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

    changed = [(torch.cuda, name, make(dtype)) for name, dtype in KINDS.items()]
    changed += [(torch.cuda, name, lambda *_, **__: None) for name in ("synchronize", "set_device")]
    changed += [(torch, "load", load)]
    changed += [(nn.Module, "cuda", lambda module, *_: module)]
    changed += [(Tensor, "cuda", lambda tensor, *_, **__: tensor)]
    before = [(where, name, vars(where).get(name)) for where, name, _ in changed]
    for where, name, new in changed:
        setattr(where, name, new)

    def restore() -> None:
        for where, name, old in before:
            if old is None:  # it was inherited
                delattr(where, name)
            else:
                setattr(where, name, old)

    return restore


_on_the_cpu = Shared(_replace)
