"""A batch of one image fails, or gives another result than the same image among others."""

import torch

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, SkippedError, fails, passes
from capsviz.wrapping.environment import in_words

ABOUT = About(
    paper="none",
    breaks="the last batch of an epoch, a demonstration, any figure of one image",
    fix="name the axis in `squeeze(dim)`; never call `squeeze()`",
    after=("not_repeatable", "mixed_batch"),
)
CLOSE = 1e-4


def examine(candidate: Candidate) -> Judgement:
    """Compare the results of one image alone and among three."""
    images, floats = candidate.images(3), candidate.caller.floats
    few = floats(images)
    if not few:
        raise SkippedError("the output holds no tensors")
    try:
        one = floats(images[:1])
    except Exception as error:  # a user's code may raise anything
        return fails(f"one image raises {in_words(error)}", images=1)
    if len(one) != len(few):
        return fails(f"one image gives {len(one)} tensors, three give {len(few)}", images=1)
    for a, b in zip(one, few, strict=True):
        if a.dim() != b.dim():
            shapes = f"{tuple(a.shape)}, three images give {tuple(b.shape)}"
            return fails(f"one image gives a tensor of shape {shapes}", images=1)

    def change(network, dtype) -> float:  # in float64, rounding lets no other class win
        alone, among = (floats(x.to(dtype), network) for x in (images[:1], images))
        pairs = [
            (a, b)
            for a, b in zip(alone, among, strict=True)
            if b.dim() and (len(a), len(b)) == (1, 3)
        ]
        offs = [(a - b[:1]).abs().max() for a, b in pairs]
        return float(torch.stack(offs).max()) if offs else 0.0

    off, _ = candidate.caller.in_double(change)
    if off <= CLOSE:
        return passes(f"an image alone differs by {off:.1g} from itself among three", change=off)
    return fails(
        f"an image alone differs by {off:.2g} from itself among three, expected 0", change=off
    )
