"""Outputs and gradients of a pass whose features are others: how many numbers are not finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import Judgement, fails, passes, told
from capsviz.wrapping.leaves import tensors
from capsviz.wrapping.taps import ChangePass


class Broken(NamedTuple):
    """How many numbers are NaN or infinite."""

    outputs: int
    gradients: int = 0  # to features and weights
    of: int = 0  # numbers of the gradients; 0 where there are none


def broken(candidate: Candidate, change: Callable[[Tensor], Tensor], images: Tensor) -> Broken:
    """Of a pass whose features are `change(features)`; gradients where the outputs are finite."""
    leaves: list[Tensor] = []

    def put(tensor):
        leaves.append(change(tensor).detach().requires_grad_())
        return leaves[-1]

    mode = ChangePass(candidate.network, [], candidate.features, put)
    with torch.enable_grad():
        values = [t for t in tensors(candidate.run(mode, images)) if t.is_floating_point()]
        if wrong := _count(values):
            return Broken(wrong)
        total = sum((t * (1 + k)).sum() for k, t in enumerate(values) if t.requires_grad)
        if not isinstance(total, Tensor):
            return Broken(0)
        weights = [p for p in candidate.network.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(total, [*leaves, *weights], allow_unused=True)
    slopes = [slope for slope in gradients if slope is not None]
    return Broken(0, _count(slopes), sum(slope.numel() for slope in slopes))


def judged(count: Broken) -> Judgement:
    """Nothing may be NaN or infinite."""
    if count.outputs:
        return fails(
            f"{count.outputs:,} numbers of the output are not finite", outputs=count.outputs
        )
    if not count.of:
        return told("values are finite; gradients cannot be seen, the pass keeps none")
    if count.gradients:
        return fails(
            f"{count.gradients:,} of {count.of:,} numbers of the gradient are not finite",
            gradients=count.gradients,
        )
    return passes(f"outputs and {count.of:,} numbers of the gradient are finite", gradients=0)


def _count(values: list[Tensor]) -> int:
    return sum(int((~value.isfinite()).sum()) for value in values)
