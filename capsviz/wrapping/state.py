"""What a network's modules keep between calls: held apart from what is drawn, and put back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import nn

from capsviz.nn.random_state import seeded


@contextmanager
def restored(network: nn.Module) -> Iterator[None]:
    """Inside, calls may change buffers and attributes of modules; all are put back, but `training`.

    What an attribute holds is not copied, if it is no buffer. Compiled by TorchScript, a module has
    its buffers put back alone.
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


@contextmanager
def draws(seed: int, device: torch.device) -> Iterator[None]:
    """Inside, whatever torch, numpy and Python draw follows from a seed; afterwards, nothing does.

    Of GPUs, that of the device alone.
    """
    states = random.getstate(), np.random.get_state()
    with ExitStack() as stack:
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
            stack.enter_context(torch.random.fork_rng(devices=[torch.cuda.current_device()]))
            torch.cuda.manual_seed(seed)
        stack.enter_context(seeded(seed))
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
