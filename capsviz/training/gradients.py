"""Compute the gradients of a training step, in parts that fit into memory or as one CUDA graph.

A CUDA graph launches forward pass, loss and backward pass at once instead of some two hundred
kernels. The results are the same.
"""

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from capsviz.nn import models
from capsviz.nn.computation import in_bfloat16
from capsviz.nn.functional import margin_loss, multi_hot
from capsviz.training.distributed import Team
from capsviz.training.evaluate import all_right

WARM_UP = 3  # calls before the recording, in which libraries choose kernels and allocate memory


class Gradients:
    """Accumulate the gradients of a process's share of a step, `part` images at a time.

    Parameters
    ----------
    shared  the module to call instead of the network, which averages gradients over processes.
    batch   images in a full batch. Steps of this size run as a CUDA graph if there is one process
            on a GPU, the batch fits in one part, and the network has no custom parts (these may
            vary between steps). None: no graph.
    bf16    whether to autocast to bfloat16.
    report  called with a line if no graph can be recorded.
    """

    def __init__(
        self, model: nn.Module, shared: nn.Module, team: Team, *, part: int, batch: int | None,
        bf16: bool, report: Callable[[str], None] = lambda line: None,
    ):  # fmt: skip
        self.model: Any = model
        self.shared, self.team = shared, team
        self.part, self.bf16, self.report = part, bf16, report
        whole = batch is not None and team.size == 1 and part >= batch
        recordable = whole and next(model.parameters()).is_cuda and models.of_capsviz(model)
        self.recorded = batch if recordable else None
        self.graph: Graph | None = None

    def __call__(
        self, images: Tensor, targets: Tensor, labels: Tensor, weight: float, terms: dict
    ) -> tuple[Tensor, Tensor]:
        """Add the gradients for images (B, C, H, W), reconstruction `targets` and labels.

        `weight` is the weight of this process's mean loss in the sum over processes. `terms` are
        passed to the network's `objective`.

        Returns
        -------
        Mean loss, margin loss and reconstruction loss (3,), times the weight, NaN for a loss that
        the network lacks; and the number of correct predictions.
        """
        if len(images) == self.recorded:
            values = [images.new_full((), value) for value in terms.values()]
            inputs = [images, targets, labels, *values]
            if self.graph is None:
                self._record(inputs, weight, list(terms))
            if self.graph is not None:
                return self.graph(*inputs)
        parts = zip(*(x.split(self.part) for x in (images, targets, labels)), strict=True)
        return self._accumulate(list(parts), weight, terms)

    def _record(self, inputs: list[Tensor], weight: float, names: list[str]) -> None:
        def whole(images, targets, labels, *values):
            terms = dict(zip(names, values, strict=True))
            return self._accumulate([(images, targets, labels)], weight, terms)

        try:
            self.graph = Graph(whole, self.model, inputs)
        except RuntimeError as error:  # e.g. from the driver, for an operation that synchronises
            self.recorded = None
            why = str(error).partition("\n")[0]
            self.report(f"training steps cannot be one CUDA graph, so they are slower: {why}")

    def _accumulate(self, parts: list, weight: float, terms: dict) -> tuple[Tensor, Tensor]:
        count = sum(len(images) for images, _, _ in parts)
        taken = signature(self.model.objective).parameters
        known = {name: value for name, value in terms.items() if name in taken}
        means: Any = 0
        right: Any = 0
        for number, (images, target, truth) in enumerate(parts, 1):
            share = weight * len(images) / count
            last = number == len(parts)
            with contextlib.nullcontext() if last else self.team.alone(self.shared):
                with in_bfloat16(images.device, self.bf16):
                    output = self.shared(images)
                    objective = self.model.objective(output, target, truth, **known)
                (objective.loss * share).backward()
            lengths = output.lengths.detach()  # for the paper's margin loss, as in `evaluate`
            margin = margin_loss(lengths, multi_hot(truth, lengths.shape[1]))
            each = (objective.loss, margin, objective.reconstruction)
            none = objective.loss.new_full((), math.nan)
            own = [none if one is None else one.detach().mean() for one in each]
            means = means + torch.stack(own) * share
            right = right + all_right(output.lengths, truth).sum()
        return means, right


class Graph:
    """A CUDA graph of a function that adds gradients to parameters.

    Recording changes no gradients, batch norm statistics or random state. The function takes and
    returns tensors on one GPU, like the example `inputs`. It must not synchronise with the CPU:
    otherwise the driver raises RuntimeError.
    """

    def __init__(self, function: Callable, model: nn.Module, inputs: Sequence[Tensor]):
        self.inputs = [tensor.clone() for tensor in inputs]
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        try:
            self._record(function)
            self.gradients = [p.grad for p in self.parameters]
        finally:
            self._clear_gradients()
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])

    def _record(self, function: Callable) -> None:
        device = self.inputs[0].device
        with torch.random.fork_rng(devices=[device]), torch.cuda.device(device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for call in range(WARM_UP):
                    self._clear_gradients()
                    with contextlib.nullcontext() if call == 0 else _no_synchronisation():
                        function(*self.inputs)
            torch.cuda.current_stream().wait_stream(stream)
            self._clear_gradients()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.outputs = function(*self.inputs)

    def _clear_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def __call__(self, *inputs: Tensor):
        """Set the parameters' gradients; return the output, which the next call will overwrite."""
        for recorded, new in zip(self.inputs, inputs, strict=True):
            recorded.copy_(new)
        self.graph.replay()
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = gradient
        return self.outputs


@contextlib.contextmanager
def _no_synchronisation() -> Iterator[None]:
    """Raise RuntimeError for operations that wait for the GPU, which would break a recording."""
    earlier = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "this is a prototype feature"
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(earlier)
