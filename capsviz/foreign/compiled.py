"""What `torch.compile` made, as it was written: nothing is seen inside of compiled code."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock, _users = threading.Lock(), 0
_stance: list = []


def as_written(network):
    """The module or function that was compiled; any other as it is."""
    while "_orig_mod" in getattr(network, "_modules", {}):
        network = network._modules["_orig_mod"]
    return getattr(network, "_torchdynamo_orig_callable", network)


@contextmanager
def uncompiled() -> Iterator[None]:
    """Inside, whatever was compiled runs as it was written, in all threads."""
    if "torch._dynamo" not in sys.modules:  # nothing can be compiled yet, and it is slow to import
        yield
        return
    global _users
    with _lock:  # the stance is torch's own: the first thread sets it, the last sets it back
        _users += 1
        if _users == 1:
            _stance[:] = [torch.compiler.set_stance("force_eager")]
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _stance.pop().__exit__(None, None, None)
