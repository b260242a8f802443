"""Train one run on several GPUs or hosts: `torchrun --nproc-per-node=N -m capsviz train ...`.

This uses PyTorch's distributed package through Accelerate. Every process draws the same batches and
computes its share of each. Gradients are averaged, so all processes have the same weights. Only the
first process reads the state of a run, evaluates, decides and writes, so hosts need no common
folder. Each host needs the data.
"""

import copy
import os
import socket
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from capsviz import discovery


class Team:
    """The processes of a run; this base class is a single one."""

    rank, size = 0, 1  # number of this process, from 0; number of processes

    @property
    def leads(self) -> bool:
        """Return whether this process evaluates and writes."""
        return self.rank == 0

    def prepare(self, model: nn.Module) -> nn.Module:
        """Return a module to call instead of the network, which averages gradients."""
        return model

    def share(self, batch: Tensor) -> tuple[Tensor, float]:
        """Return this process's share of a batch (B,), and the weight of its mean loss."""
        return batch, 1.0

    def alone(self, prepared: nn.Module):
        """Return a context for a backward pass that does not exchange gradients."""
        return nullcontext()

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum over all processes."""
        return value

    def agree(self, value):
        """Return the first process's value, which must be picklable, in all processes."""
        return value

    def in_turn(self, load: Callable):
        """Return `load()`; one process of each host calls it first, as it may download files.

        An error in one process is raised in all.
        """
        return load()


class _Processes(Team):
    def __init__(self, accelerator):
        self.accelerator = accelerator
        self.rank, self.size = accelerator.process_index, accelerator.num_processes

    def prepare(self, model):
        from accelerate import DistributedDataParallelKwargs

        if has_unused_weights(model):  # otherwise PyTorch warns about the option
            self.accelerator.ddp_handler = DistributedDataParallelKwargs(
                find_unused_parameters=True
            )
        return self.accelerator.prepare_model(model)

    def share(self, batch):
        mine = batch[self.rank :: self.size]
        if len(mine) == 0:  # every process must take part in each step: weight 0
            return batch[:1], 0.0
        return mine, self.size * len(mine) / len(batch)

    def alone(self, prepared):
        return self.accelerator.no_sync(prepared)

    def sum(self, value):
        return self.accelerator.reduce(value, "sum")

    def agree(self, value):
        from accelerate.utils import broadcast_object_list

        return broadcast_object_list([value])[0]

    def in_turn(self, load):
        from accelerate.utils import gather_object

        loaded, host = None, socket.gethostname()
        for first in (True, False):
            error = None
            if self.accelerator.is_local_main_process == first:
                try:
                    loaded = load()
                except Exception as raised:
                    error = raised
            errors = gather_object([None if error is None else (host, error)])
            for where, error in filter(None, errors):
                if where != host and len(error.args) == 1:
                    error.args = (f"on {where}: {error}",)
                raise error
        return loaded


@contextmanager
def team(device: torch.device):
    """Yield the team of this run and the device of this process.

    With several GPUs, each process gets its own. ValueError for a WORLD_SIZE that is not a number,
    ConnectionError if another process of the run ends early.
    """
    count = os.environ.get("WORLD_SIZE", "1")
    if not count.isdecimal():
        raise ValueError(f"$WORLD_SIZE must be the number of processes, got '{count}'")
    if int(count) < 2:
        yield Team(), device
        return
    try:
        from accelerate import Accelerator
    except ImportError as error:
        raise ImportError(discovery.needs("a run of several processes", "accelerate")) from error
    accelerator = Accelerator(cpu=device.type == "cpu", mixed_precision="no")
    try:
        yield _Processes(accelerator), accelerator.device
        accelerator.wait_for_everyone()
    except (RuntimeError, torch.distributed.DistError) as error:
        if not _lost_connection(error):
            raise
        raise ConnectionError(
            "another process of this run ended: finished epochs are kept, go on with --resume"
        ) from error
    accelerator.end_training()


def has_unused_weights(model: nn.Module) -> bool:
    """Return whether some weights get no gradient, e.g. weights of unused poses."""
    network: Any = copy.deepcopy(model).cpu().eval()  # eval: dropout would use random numbers
    images = torch.zeros(2, *network.config["image_shape"])
    labels = torch.zeros(2, dtype=torch.long)
    network.objective(network(images), images, labels).loss.backward()
    return any(weight.grad is None for weight in network.parameters() if weight.requires_grad)


def _lost_connection(error: Exception) -> bool:
    """Return whether an error of PyTorch's distributed package means that another one ended."""
    text = str(error).lower()
    return isinstance(error, torch.distributed.DistError) or any(
        words in text for words in ("connection closed", "connection reset", "broken pipe")
    )
