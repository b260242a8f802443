"""Class capsules are squashed one by one, each over its own numbers."""

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.squashing import judged
from capsviz.checks.verdict import About, Judgement, UnseenError

ABOUT = About(
    paper="§2, equation 1",
    seen="lengths of classes when the sums of votes are large: 1.000 each",
    breaks="a length depends on the other classes, or passes 1, and is no probability",
    mend="`squash(s, dim=-1)` where the last axis holds the numbers of one capsule",
    pitfalls=(4,),
)


def examine(candidate: Candidate) -> Judgement:
    """By sums that are a million times as large."""
    lengths = _large(candidate).norm(dim=-1)
    if not lengths.isfinite().all():
        raise UnseenError("poses of large sums are not finite")
    return judged(lengths, lambda: _moved(candidate))


def _moved(candidate: Candidate) -> Tensor:
    """How much the numbers of poses (J, E) move with one number of the sums."""
    axes = [axis for axis, role in enumerate(candidate.last.total_roles) if role in "JE"]
    poses = []
    for factor in (1, -3):

        def change(tensor, factor=factor):
            generator = torch.Generator().manual_seed(5)
            changed = 1e4 * torch.randn(tensor.shape, generator=generator).to(tensor)
            one = changed
            for axis in axes:
                one = one.narrow(axis, 0, 1)
            one.mul_(factor)
            return changed

        poses.append(_large(candidate, change)[0])
    return (poses[0] - poses[1]).abs()


def _large(candidate: Candidate, change=lambda total: 1e6 * total) -> Tensor:
    totals = [one.total for one in candidate.layer.rounds]
    return candidate.alteration(totals, change, candidate.images(7), "poses")[-1]
