"""Training steps as one CUDA graph: a GPU then does in one launch what took some two hundred.

What is recorded is what `epoch` does to a whole batch: forward pass, loss, gradients. The numbers
are those of the steps one by one.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

WARM = 3  # calls before what is recorded, in which libraries choose their ways and take memory


class Graph:
    """A function that adds gradients to parameters, recorded on a GPU with given inputs.

    Nothing remains of the calls that this takes: no gradients, no statistics of batch norm, no
    random numbers.

    Parameters
    ----------
    function    of tensors on one GPU, which gives some; it may not wait for the GPU. What it does
                besides is not done again: it must do the same for all numbers of these shapes.
    model       whose parameters get gradients.
    inputs      some that the function takes.

    Raises
    ------
    RuntimeError  if the function waits for the GPU, in the driver's words.
    """

    def __init__(self, function: Callable, model: nn.Module, inputs: Sequence[Tensor]):
        self.inputs = [tensor.clone() for tensor in inputs]
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        try:
            self._record(function)
            self.gradients = [p.grad for p in self.parameters]
        finally:
            self._forget()
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])

    def _record(self, function: Callable) -> None:
        device = self.inputs[0].device
        with torch.random.fork_rng(devices=[device]), torch.cuda.device(device):
            apart = torch.cuda.Stream()
            apart.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(apart):
                for call in range(WARM):
                    self._forget()
                    with contextlib.nullcontext() if call == 0 else _without_waiting():
                        function(*self.inputs)
            torch.cuda.current_stream().wait_stream(apart)
            self._forget()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.outputs = function(*self.inputs)

    def _forget(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def __call__(self, *inputs: Tensor):
        """What the function gives, until the next call; the parameters have its gradients alone."""
        for kept, new in zip(self.inputs, inputs, strict=True):
            kept.copy_(new)
        self.graph.replay()
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = gradient
        return self.outputs


@contextlib.contextmanager
def _without_waiting() -> Iterator[None]:
    """RuntimeError for what waits for the GPU: recorded, it would leave random numbers unusable."""
    earlier = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is a prototype
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(earlier)
