"""A batch of one image works, and says what the image says among others."""

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, UnseenError, fails, passes
from capsviz.wrapping.leaves import tensors

ABOUT = About(
    paper="none: a matter of code",
    seen="one image alone, and the same image among three",
    breaks="the last batch of an epoch, a demonstration, any picture of one image",
    mend="`squeeze(dim)` with the axis that is meant, never `squeeze()`",
    pitfalls=(18,),
    after=("repeats", "batch"),
)
CLOSE = 1e-4


def examine(candidate: Candidate) -> Judgement:
    """Shapes and values."""
    images = candidate.images(3)
    few = [t for t in tensors(candidate.call(images)) if t.is_floating_point()]
    try:
        one = [t for t in tensors(candidate.call(images[:1])) if t.is_floating_point()]
    except Exception as error:  # whatever somebody's code says
        reason = " ".join(str(error).split())[:120]
        return fails(f"one image ends in {type(error).__name__}: {reason}", images=1)
    if len(one) != len(few):
        return fails(f"one image gives {len(one)} tensors, three give {len(few)}", images=1)
    changes = []
    for a, b in zip(one, few, strict=True):
        if a.dim() != b.dim():
            return fails(
                f"one image gives a tensor of {tuple(a.shape)} where three give {tuple(b.shape)}",
                images=1,
            )
        if b.dim() and len(a) == 1 and len(b) == 3:
            changes.append((a - b[:1]).abs().max().cpu())
    if not few:
        raise UnseenError("the output holds no tensors")
    off = float(torch.stack(changes).max()) if changes else 0.0
    if not off <= CLOSE:  # NaN too
        tie = _tie(candidate, images)
        if tie is None:
            return fails(f"an image alone differs by {off:.2g} from itself among three", change=off)
        return passes(
            f"scores of an image alone differ by {tie:.1g} from itself among three; two are equal, "
            "so that the winner is another", change=tie,
        )  # fmt: skip
    return passes(f"an image alone differs by {off:.1g} from itself among three", change=off)


def _tie(candidate: Candidate, images: Tensor) -> float | None:
    """How much its scores differ, where they agree and yet another class wins; else None."""
    try:
        alone, among = candidate.scores(images[:1]), candidate.scores(images)[:1]
    except Exception:  # it has none, or whatever somebody's code says
        return None
    off = float((alone - among).abs().max())
    return off if off <= CLOSE and int(alone.argmax()) != int(among.argmax()) else None
