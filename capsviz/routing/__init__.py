"""Routings: each file here is one way to couple child capsules to parents.

A routing offers `route(votes, *, iterations, bias, couplings) -> Routing`, and may offer
`fused(primary, weight, *, iterations, bias) -> poses`, the same result without holding the votes;
both with `detach` if `--detach-routing` shall work, and with `leaky` if that option shall.
To add one, add a file: its name is what `--routing` takes, and the law tests find it by themselves.
"""

from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from capsviz.discovery import load, names


class Routing(NamedTuple):
    """What happened in each iteration; index -1 is the result."""

    logits: Tensor  # (R, B, I, J) b_ij, before the iteration's softmax
    couplings: Tensor  # (R, B, I, J) c_ij, which sum to 1 over J; if leaky, to less
    poses: Tensor  # (R, B, J, E) v_j, after the iteration


def available() -> list[str]:
    """Names of the routings."""
    return names("capsviz.routing")


@cache
def get(name: str) -> ModuleType:
    """The module of a routing; ValueError names the known ones."""
    return load("capsviz.routing", name, what="routing")


def stack(history: Sequence[tuple[Tensor, Tensor, Tensor]]) -> Routing:
    """Stack one (logits, couplings, poses) per iteration along a new first axis."""
    return Routing(*(torch.stack(values) for values in zip(*history, strict=True)))


def check_votes(votes: Tensor, iterations: int) -> None:
    """Raise ValueError for votes that are not (B, I, J, E) or fewer than one iteration."""
    if votes.dim() != 4:
        raise ValueError(f"votes must be (B, I, J, E), got the shape {tuple(votes.shape)}")
    check_iterations(iterations)


def check_iterations(iterations: int) -> None:
    """Raise ValueError for fewer than one iteration."""
    if iterations < 1:
        raise ValueError(f"routing iterations must be at least 1, got {iterations}")
