"""Shared measurements: the axis of a squash, and outputs or gradients that are not finite."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import Judgement, SkippedError, fails, passes, warns
from capsviz.wrapping.leaves import tensors
from capsviz.wrapping.taps import ChangePass

ONE, MOVED, HUGE = 2e-2, 1e-4, 1e3
SIZES = (1e4, 1.0)  # a saturated tanh only changes its sign
UNSQUASHED, OTHER_AXIS = "not squashed", "squashed over another axis"
BY_COMPONENT = "each component is squashed by itself"
BEFORE = "components are squashed before the capsule is"


def judge_lengths(lengths: Tensor, moved: Callable[[float], Tensor]) -> Judgement:
    """Judge the lengths of capsules with large inputs, which must be 1.000.

    `moved(size)` returns how much the components of capsules (capsules, components) move with one
    of their inputs, if inputs have that size.
    """
    lengths = lengths[lengths > 0]  # a ReLU may leave nothing of a capsule
    if not lengths.numel():
        raise SkippedError("all capsules are zero for large inputs")
    low, high = float(lengths.min()), float(lengths.max())
    mistake = _mistake(low, high, moved)
    form = ".3f" if high < HUGE else ".2g"
    message = f"lengths are {low:{form}} to {high:{form}} for large inputs"
    numbers = {"lowest": low, "highest": high}
    if mistake is None:
        return passes(message, **numbers)
    message += f", expected 1: {mistake}"
    wrong = mistake in (OTHER_AXIS, BY_COMPONENT)
    return fails(message, **numbers) if wrong else warns(message, **numbers)


def _mistake(low: float, high: float, moved: Callable[[float], Tensor]) -> str | None:
    if abs(low - 1) < ONE and abs(high - 1) < ONE:
        return None
    if high > HUGE:
        return UNSQUASHED
    if high < ONE:
        return "they vanish"
    for size in SIZES:
        change = moved(size)
        change = change > MOVED * change.max()
        if int(change.any(1).sum()) > 1:
            return OTHER_AXIS
        if change.shape[1] == 1:  # a capsule is one number
            return None
        if int(change.sum()) > 1:
            return BEFORE
    return BY_COMPONENT


def judge_finite(candidate: Candidate, change: Callable[[Tensor], Tensor]) -> Judgement:
    """Judge the outputs and gradients of a pass with features `change(features)`: all finite."""
    leaves: list[Tensor] = []

    def put(tensor):
        leaves.append(change(tensor).detach().requires_grad_())
        return leaves[-1]

    mode = ChangePass(candidate.network, [], candidate.lower.features, put)
    with torch.enable_grad():
        output = candidate.caller.run(mode, candidate.images(2))
        values = [t for t in tensors(output) if t.is_floating_point()]
        if wrong := _infinite(values):
            return fails(f"{wrong:,} numbers of the output are NaN or infinite", outputs=wrong)
        total = sum((t * (1 + k)).sum() for k, t in enumerate(values) if t.requires_grad)
        weights = [p for p in candidate.network.parameters() if p.requires_grad]
        gradients: tuple[Tensor | None, ...] = ()
        if isinstance(total, Tensor):
            gradients = torch.autograd.grad(total, [*leaves, *weights], allow_unused=True)
    slopes = [slope for slope in gradients if slope is not None]
    wrong, count = _infinite(slopes), sum(slope.numel() for slope in slopes)
    if not count:
        return warns("outputs are finite; gradients are unknown, as the pass keeps none")
    if wrong:
        return fails(f"{wrong:,} of {count:,} gradients are NaN or infinite", gradients=wrong)
    return passes(f"outputs and {count:,} gradients are finite", gradients=0)


def _infinite(values: list[Tensor]) -> int:
    return sum(int((~value.isfinite()).sum()) for value in values)
