"""Two calls in evaluation mode agree."""

import torch

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, fails, passes
from capsviz.foreign.leaves import tensors
from capsviz.nn.random_state import seeded

ABOUT = About(
    paper="§5: one accuracy for one network",
    seen="the same images twice in evaluation mode, from two random states",
    breaks="no number that is measured of it can be measured again; all other checks are upset",
    mend="leave dropout, noise and random masks to `self.training`, and call `eval()` at test",
    after=("finite",),
)
CLOSE = 1e-5


def examine(candidate: Candidate) -> Judgement:
    """Compare all tensors of two outputs."""
    images = candidate.images(5)
    with seeded(0):
        first = tensors(candidate.call(images))
    with seeded(1):
        second = tensors(candidate.call(images))
    if [t.shape for t in first] != [t.shape for t in second]:
        return fails("two calls return tensors of different shapes", difference=float("inf"))
    changes = [
        (a.double() - b.double()).abs().max()
        for a, b in zip(first, second, strict=True)
        if a.numel()
    ]
    off = float(torch.stack(changes).max()) if changes else 0.0
    if not off <= CLOSE:  # NaN too
        return fails(f"two calls with the same images differ by {off:.2g}", difference=off)
    return passes(f"two calls differ by {off:.1g}", difference=off)
