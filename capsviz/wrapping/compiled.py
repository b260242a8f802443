"""What `torch.compile` made, as it was written: nothing is seen inside of compiled code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from capsviz.wrapping.shared import Shared


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
    with _eager:
        yield


def _set_eager() -> Callable[[], None]:
    """The stance is torch's own, of all threads."""
    stance = torch.compiler.set_stance("force_eager")
    return lambda: stance.__exit__(None, None, None)


_eager = Shared(_set_eager)
