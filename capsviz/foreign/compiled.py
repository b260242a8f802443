"""What `torch.compile` made, as it was written: nothing is seen inside of compiled code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


def as_written(network):
    """The module that was compiled; any other as it is."""
    while "_orig_mod" in getattr(network, "_modules", {}):
        network = network._modules["_orig_mod"]
    return network


@contextmanager
def uncompiled(network: nn.Module) -> Iterator[None]:
    """Inside, all modules of a network run as they were written; then they are put back."""
    parts, calls = [], []
    for parent in list(network.modules()):
        for name, child in parent._modules.items():
            if child is not None and as_written(child) is not child:
                parts.append((parent, name, child))
        if vars(parent).get("_compiled_call_impl") is not None:  # by `module.compile()`
            calls.append((parent, parent._compiled_call_impl))
    try:
        for parent, name, child in parts:
            parent._modules[name] = as_written(child)
        for module, _ in calls:
            module._compiled_call_impl = None
        yield
    finally:
        for parent, name, child in parts:
            parent._modules[name] = child
        for module, call in calls:
            module._compiled_call_impl = call
