"""Class capsules are not squashed, or not each one over its own components."""

import math

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.capsules import Capsules, squeezed
from capsviz.checks.primary import noise
from capsviz.checks.squashing import HUGE, UNSQUASHED, judge_lengths
from capsviz.checks.verdict import About, Judgement, SkippedError, fails, passes, warns
from capsviz.wrapping.outputs import values_of_scores

ABOUT = About(
    paper="§2, equation 1",
    breaks="a length depends on other classes, or exceeds 1, and is no probability",
    fix="use `squash(s, dim=-1)`, where the last axis holds the components of one capsule",
    every_layer=True,
)
SHORT, HALF = 1e-3, 0.5
MIDDLE = (0.2, 1 - math.exp(-HALF))  # by the squash of the paper, and of Efficient-CapsNet


def examine(candidate: Candidate, layer: Capsules) -> Judgement:
    """Measure lengths for large sums, which must be 1, and sums of n = 0.5: n² / (1 + n²)."""
    lengths = _poses(layer, _enlarged).norm(dim=-1)
    if not lengths.isfinite().all():
        raise SkippedError("poses are not finite for large sums of votes")
    judgement = judge_lengths(lengths, lambda size: _moved(layer, size))
    message, numbers = judgement.message, judgement.numbers
    if not layer.of_classes:  # it has no scores to compare with
        if not message.endswith(UNSQUASHED):
            return judgement
        judge = fails if candidate.capsules.by_length else warns
        return judge(f"{message}, or not each over its own components", **numbers)
    if not _lengths_are_output(candidate):
        return judgement
    if float(lengths.max()) > HUGE:
        return fails(message, **numbers)
    if judgement.status != "PASS":
        return judgement
    if float(_poses(layer, torch.zeros_like).norm(dim=-1).max()) > SHORT:  # of a bias
        return passes(message, **numbers)
    middle = float(_poses(layer, lambda total: _half(layer, total)).norm(dim=-1).mean())
    if middle > 0.9:
        return fails(
            f"{message}, but also {middle:.3f} for sums of length {HALF}: lengths carry no "
            "information", **numbers, middle=middle,
        )  # fmt: skip
    if any(abs(middle / one - 1) < 0.05 for one in MIDDLE):
        return passes(message, **numbers)
    return warns(
        f"lengths are {middle:.3f} for sums of length {HALF}, expected {MIDDLE[0]:.3f}: n² / "
        "(1 + n²)", **numbers, middle=middle,
    )  # fmt: skip


def _lengths_are_output(candidate: Candidate) -> bool:
    """Whether the output holds the lengths of the poses, in [0, 1] or not, or the poses alone."""
    form = candidate.given_scores
    if isinstance(form, str) and form != "norms":
        return False
    images = candidate.images(7)
    values = values_of_scores(candidate.call(images), len(images), candidate.classes, form)
    poses = candidate.poses(images)
    if not values:
        shapes = [squeezed(tensor).shape for tensor in candidate.caller.floats(images)]
        return shapes.count(poses.shape) == 1
    lengths = poses.norm(dim=-1)
    return any(bool(torch.allclose(lengths, one, rtol=1e-3, atol=1e-3)) for one in values)


def _moved(layer: Capsules, size: float) -> Tensor:
    """How much the components of poses (J, E) move with one number of the sums."""
    first = tuple(
        slice(1) if role in "JE" else slice(None) for role in layer.rounds[-1].total_roles
    )
    poses = []
    for factor in (1, -3):

        def change(tensor, factor=factor):
            changed = noise(size, seed=5)(tensor)
            changed[first] *= factor
            return changed

        poses.append(_poses(layer, change)[0])
    return (poses[0] - poses[1]).abs()


def _enlarged(total: Tensor) -> Tensor:
    """A million times as large, and tiny ones more than that."""
    return 1e6 * total / total.abs().max().clamp(1e-30, 1)


def _half(layer: Capsules, total: Tensor) -> Tensor:
    """Random sums of length 0.5."""
    axes = [axis for axis, role in enumerate(layer.rounds[-1].total_roles) if role == "E"]
    random = noise(seed=7)(total)
    return HALF * random / random.norm(dim=axes, keepdim=True)


def _poses(layer: Capsules, change) -> Tensor:
    return layer.with_sums(change, layer.caller.images(7), "poses")[-1]
