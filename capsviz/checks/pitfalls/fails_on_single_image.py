"""A batch of one image fails, or gives another result than the same image among others."""

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, SkippedError, fails, passes
from capsviz.wrapping.leaves import tensors

ABOUT = About(
    paper="none: a matter of code",
    method="one image alone, and the same image among three",
    breaks="the last batch of an epoch, a demonstration, any figure of one image",
    fix="name the axis in `squeeze(dim)`; never call `squeeze()`",
    after=("not_repeatable", "mixed_batch"),
)
CLOSE = 1e-4


def examine(candidate: Candidate) -> Judgement:
    """Compare shapes and values."""
    images = candidate.images(3)
    few = [t for t in tensors(candidate.call(images)) if t.is_floating_point()]
    try:
        one = [t for t in tensors(candidate.call(images[:1])) if t.is_floating_point()]
    except Exception as error:  # a user's code may raise anything
        reason = " ".join(str(error).split())[:120]
        return fails(f"one image raises {type(error).__name__}: {reason}", images=1)
    if len(one) != len(few):
        return fails(f"one image gives {len(one)} tensors, three give {len(few)}", images=1)
    changes = []
    for a, b in zip(one, few, strict=True):
        if a.dim() != b.dim():
            shapes = f"{tuple(a.shape)}, three images give {tuple(b.shape)}"
            return fails(f"one image gives a tensor of shape {shapes}", images=1)
        if b.dim() and len(a) == 1 and len(b) == 3:
            changes.append((a - b[:1]).abs().max().cpu())
    if not few:
        raise SkippedError("the output holds no tensors")
    off = float(torch.stack(changes).max()) if changes else 0.0
    if off <= CLOSE:
        return passes(f"an image alone differs by {off:.1g} from itself among three", change=off)
    tie = _tie(candidate, images)
    if tie is None:  # NaN too
        return fails(
            f"an image alone differs by {off:.2g} from itself among three, expected 0", change=off
        )
    return passes(
        f"scores of an image alone differ by {tie:.1g} from itself among three; two classes tie, "
        "so that another one is predicted", change=tie,
    )  # fmt: skip


def _tie(candidate: Candidate, images: Tensor) -> float | None:
    """By how much its scores differ if they agree and yet another class wins; else None."""
    try:
        alone, among = candidate.scores(images[:1]), candidate.scores(images)[:1]
    except Exception:  # it has none, or a user's code raises
        return None
    off = float((alone - among).abs().max())
    return off if off <= CLOSE and int(alone.argmax()) != int(among.argmax()) else None
