"""Class capsules are not squashed, or not each one over its own components."""

import math

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.capsules import Capsules
from capsviz.checks.primary import noise
from capsviz.checks.squashing import HUGE, UNSQUASHED, judge_lengths
from capsviz.checks.verdict import About, Judgement, SkippedError, fails, passes, warns
from capsviz.wrapping.outputs import values_of_scores

ABOUT = About(
    paper="§2, equation 1",
    method="lengths of class capsules: 1.000 if the sums of votes are large, near 0 if they are "
    "short, and n² / (1 + n²), or 1 - exp(-n), for sums of length n = 0.5",
    breaks="a length depends on other classes, or exceeds 1, and is no probability",
    fix="use `squash(s, dim=-1)`, where the last axis holds the components of one capsule",
    every_layer=True,
)
SHORT, HALF = 1e-3, 0.5
MIDDLE = (0.2, 1 - math.exp(-HALF))  # by the squash of the paper, and of Efficient-CapsNet


def examine(candidate: Candidate, layer: Capsules) -> Judgement:
    """Measure lengths for sums of votes that are a million times as large."""
    lengths = _poses(layer, _enlarged).norm(dim=-1)
    if not lengths.isfinite().all():
        raise SkippedError("poses are not finite for large sums of votes")
    judgement = judge_lengths(lengths, lambda size: _moved(layer, size))
    message, numbers = judgement.message, judgement.numbers
    if not layer.of_classes:  # it has no scores to compare with
        unsquashed = message.endswith(UNSQUASHED)
        if unsquashed:
            message += ", or not each over its own components"
        if unsquashed and candidate.capsules.by_length:
            return fails(message, **numbers)
        return judgement._replace(message=message)
    if float(lengths.max()) > HUGE and _lengths_are_output(candidate):
        return fails(message, **numbers)
    if judgement.status != "PASS" or not _scores_are_lengths(candidate):
        return judgement
    short = _short(layer)
    numbers["short"] = short
    if short > 0.5:
        return fails(
            f"{message}, but also {short:.3f} for sums of length {SHORT:g}, expected 0: lengths "
            "carry no information", **numbers,
        )  # fmt: skip
    middle = _middle(layer)
    if middle is None or any(abs(middle / one - 1) < 0.05 for one in MIDDLE):
        return passes(message, **numbers)
    return warns(
        f"lengths are {middle:.3f} for sums of length {HALF}, expected {MIDDLE[0]:.3f}: n² / "
        "(1 + n²)", **numbers, middle=middle,
    )  # fmt: skip


def _middle(layer: Capsules) -> float | None:
    """The mean length for sums of length 0.5; None if a bias makes poses of sums of zero."""
    axes = [axis for axis, role in enumerate(layer.rounds[-1].total_roles) if role == "E"]

    def change(total):
        random = noise(seed=7)(total)
        return HALF * random / random.norm(dim=axes, keepdim=True)

    if float(_poses(layer, torch.zeros_like).norm(dim=-1).max()) > SHORT:
        return None
    return float(_poses(layer, change).norm(dim=-1).mean())


def _short(layer: Capsules) -> float:
    """The longest pose for sums of length `SHORT`, as far as it changes sign with them.

    A bias that is added before the squash does not.
    """
    along, against = (
        _poses(layer, lambda total, size=size: total / total.norm() * size)
        for size in (SHORT, -SHORT)
    )
    return float(((along - against) / 2).norm(dim=-1).max())


def _scores_are_lengths(candidate: Candidate) -> bool:
    images = candidate.images(3)
    off = candidate.scores(images) - candidate.poses(images).norm(dim=-1)
    return bool((off.abs() < 1e-3).all())


def _lengths_are_output(candidate: Candidate) -> bool:
    """Whether the output holds the lengths of the poses, in [0, 1] or not, or the poses alone."""
    form = candidate.given_scores
    if isinstance(form, str) and form != "norms":
        return False
    images = candidate.images(7)
    values = values_of_scores(candidate.call(images), len(images), candidate.classes, form)
    if not values:
        return candidate.capsules.pose_output is not None
    lengths = candidate.poses(images).norm(dim=-1)
    return any(bool(torch.allclose(lengths, one, rtol=1e-3, atol=1e-3)) for one in values)


def _moved(layer: Capsules, size: float) -> Tensor:
    """How much the components of poses (J, E) move with one number of the sums."""
    axes = [axis for axis, role in enumerate(layer.rounds[-1].total_roles) if role in "JE"]
    poses = []
    for factor in (1, -3):

        def change(tensor, factor=factor):
            generator = torch.Generator().manual_seed(5)
            changed = size * torch.randn(tensor.shape, generator=generator).to(tensor)
            one = changed
            for axis in axes:
                one = one.narrow(axis, 0, 1)
            one.mul_(factor)
            return changed

        poses.append(_poses(layer, change)[0])
    return (poses[0] - poses[1]).abs()


def _enlarged(total: Tensor) -> Tensor:
    """A million times as large, and tiny ones more than that."""
    return 1e6 * total / total.abs().max().clamp(1e-30, 1)


def _poses(layer: Capsules, change) -> Tensor:
    return layer.with_sums(change, layer.caller.images(7), "poses")[-1]
