"""One run on several GPUs or hosts: `torchrun --nproc-per-node=N -m capsviz train ...`.

PyTorch's distributed engine through Accelerate. Every process draws the same batches and takes its
share of each; gradients are averaged, so all hold the same weights. The first process alone reads
what a run left, evaluates, decides and writes, and tells the others: they need no common folder.
The data are to lie on each host.
"""

from __future__ import annotations

import copy
import os
import socket
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn


class Team:
    """The processes of a run; by itself, the only one.

    Attributes
    ----------
    rank  of this process, from 0.
    size  number of processes.
    """

    rank, size = 0, 1

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0

    def prepare(self, model: nn.Module) -> nn.Module:
        """A module to call in the network's place, whose gradients are those of all processes."""
        return model

    def smallest(self, images: int) -> int:
        """How many images of a batch the process with the fewest takes."""
        return images

    def share(self, batch: Tensor) -> tuple[Tensor, float]:
        """This process's part of a batch (B,), and what its mean loss weighs in the sum of all."""
        return batch, 1.0

    def alone(self, prepared: nn.Module):
        """A context for a backward pass whose gradients are not exchanged yet."""
        return nullcontext()

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all processes."""
        return value

    def agree(self, value):
        """What the first process says, in all of them; anything that can be pickled."""
        return value

    def wait(self) -> None:
        """Until every process is here."""

    def in_turn(self, load: Callable):
        """What `load` gives; on each host one process before the others: it may download something.

        Whatever it raises in one is raised in all.
        """
        return load()


class _Several(Team):
    def __init__(self, accelerator):
        self.accelerator = accelerator
        self.rank, self.size = accelerator.process_index, accelerator.num_processes

    def prepare(self, model):
        from accelerate import DistributedDataParallelKwargs

        if leaves_some(model):  # else PyTorch would warn of each run that none is left
            self.accelerator.ddp_handler = DistributedDataParallelKwargs(
                find_unused_parameters=True
            )
        return self.accelerator.prepare_model(model)

    def smallest(self, images):
        return max(1, images // self.size)

    def share(self, batch):
        mine = batch[self.rank :: self.size]
        if len(mine) == 0:  # all must take part in each step
            return batch[:1], 0.0
        return mine, self.size * len(mine) / len(batch)

    def alone(self, prepared):
        return self.accelerator.no_sync(prepared)

    def sum(self, value):
        return self.accelerator.reduce(value, "sum")

    def agree(self, value):
        from accelerate.utils import broadcast_object_list

        return broadcast_object_list([value])[0]

    def wait(self):
        self.accelerator.wait_for_everyone()

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
    """The team of this run, and the device of this process, for as long as the run lasts.

    Parameters
    ----------
    device  that was asked for; where there are several GPUs, each process gets its own.

    Raises
    ------
    ValueError       for a WORLD_SIZE that is no number.
    ImportError      if there are several processes, but no Accelerate.
    ConnectionError  if another process of the run ended before its time.
    """
    count = os.environ.get("WORLD_SIZE", "1")
    if not count.isdecimal():
        raise ValueError(f"WORLD_SIZE is the number of processes, got '{count}'")
    if int(count) < 2:
        yield Team(), device
        return
    try:
        from accelerate import Accelerator
    except ImportError as error:
        raise ImportError(
            "a run of several processes needs Accelerate: pip install 'capsviz[distributed]'"
        ) from error
    several = _Several(Accelerator(cpu=device.type == "cpu", mixed_precision="no"))
    try:
        yield several, several.accelerator.device
        several.wait()
    except (RuntimeError, torch.distributed.DistError) as error:
        if not _lost(error):
            raise
        raise ConnectionError(
            "another process of this run ended: finished epochs are kept, go on with --resume"
        ) from error
    several.accelerator.end_training()


def leaves_some(model: nn.Module) -> bool:
    """Whether some weights have no say in the loss: of poses, by self-routing without a decoder."""
    network: Any = copy.deepcopy(model).cpu().eval()  # dropout would draw
    images = torch.zeros(2, *network.config["image_shape"])
    labels = torch.zeros(2, dtype=torch.long)
    network.objective(network(images), images, labels).loss.backward()
    return any(weight.grad is None for weight in network.parameters() if weight.requires_grad)


def _lost(error: Exception) -> bool:
    """Whether an error of PyTorch's engine says that another process is gone."""
    text = str(error).lower()
    return isinstance(error, torch.distributed.DistError) or any(
        words in text for words in ("connection closed", "connection reset", "broken pipe")
    )
