"""Primary capsules are squashed one by one, each over its own numbers."""

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.pitfalls.primary_squash import large_children, lengths
from capsviz.checks.squashing import judged
from capsviz.checks.verdict import About, Judgement, UnseenError

ABOUT = About(
    paper="§2, equation 1",
    seen="lengths of children when the features are large: 1.000 each",
    breaks="a capsule's length depends on other capsules, and is no probability",
    mend="`squash(s, dim=-1)` where the last axis holds the numbers of one capsule",
    pitfalls=(4,),
    after=("repeats", "primary_squash"),
)
USUAL, SAME = 0.1, 1e-3


def examine(candidate: Candidate) -> Judgement:
    """By features that are 10,000 times as large."""
    candidate = candidate.primary
    large = large_children(candidate)[0]
    off = float((large - lengths(candidate, USUAL)).abs().max())
    if off < SAME:
        raise UnseenError("features are normalised before the squash: their size makes no length")
    return judged(large, lambda size: _moved(candidate, size))


def _moved(candidate: Candidate, size: float) -> Tensor:
    """How much the numbers of children (I, D) move with one number of the features."""

    generator = torch.Generator().manual_seed(4)
    bases = []

    def change(tensor):
        bases.append(size * torch.randn(tensor[:1].shape, generator=generator).to(tensor))
        changed = bases[-1].repeat(2, *[1] * (tensor.dim() - 1))
        if len(bases) == 1:  # of several convolutions the first
            changed[1].view(-1)[0] *= -3
        return changed

    first, second = candidate.children(change, candidate.images(2))
    return (first - second).abs()
