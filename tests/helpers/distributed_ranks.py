"""Processes of one run as torchrun starts them, forked from one that has imported everything."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import torch

from capsviz.cli import main
from capsviz.explorer.serve import free_port

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "accelerate",
        "capsviz.inputs.opening",
        "capsviz.commands.train",
        "capsviz.data.digits",
        "capsviz.training.run",
        "torch._dynamo",
        "torch.utils.tensorboard",
    ]
)


def capsviz(*words) -> None:
    """The command `capsviz WORDS`."""
    main([str(word) for word in words])


@contextmanager
def interruptible():
    """Processes begun here can be interrupted, also where the tests run in a shell's background.

    There interrupts are ignored, and what is ignored is ignored by what is started, too.
    """
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, ours)


def environment(rank: int, size: int, hosts: int, port: int) -> dict[str, str]:
    """What torchrun tells one of `size` processes on `hosts` hosts."""
    each = size // hosts
    values = {
        "RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank % each, "LOCAL_WORLD_SIZE": each,
        "GROUP_RANK": rank // each, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
    }  # fmt: skip
    return {name: str(value) for name, value in values.items()}


def act(action, variables: dict[str, str], log: Path) -> None:
    """Run an action with these variables; what it prints goes to LOG.out and LOG.err."""
    os.environ.update(variables)
    torch.set_num_threads(1)
    for stream, ending in ((sys.stdout, "out"), (sys.stderr, "err")):
        os.dup2(
            os.open(log.with_suffix(f".{ending}"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
            stream.fileno(),
        )
    action()


class Ranks:
    """An action (it can be pickled) in each of `size` processes; `logs` is a folder."""

    def __init__(self, action, logs: Path, size: int = 2, hosts: int = 1):
        port = free_port(0)
        self.logs = [logs / f"rank-{rank}" for rank in range(size)]
        self.processes = [
            FORKS.Process(target=act, args=(action, environment(rank, size, hosts, port), log))
            for rank, log in enumerate(self.logs)
        ]
        for process in self.processes:
            process.start()

    def wait(self, seconds: float = 300) -> list[int]:
        """Exit codes, when all have ended; those that have not by then are killed."""
        for process in self.processes:
            process.join(seconds)
            process.kill()
            process.join()
        return [process.exitcode for process in self.processes]

    def printed(self, ending: str) -> list[str]:
        """What each wrote to "out" or "err"."""
        return [log.with_suffix(f".{ending}").read_text() for log in self.logs]
