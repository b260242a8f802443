"""A random state of one's own: what is drawn inside follows from a seed, and nothing outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, the CPU draws from a seed; afterwards its state is what it was. No GPU's changes.

    `torch.manual_seed` would seed every GPU too, which `fork_rng` does not undo.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
