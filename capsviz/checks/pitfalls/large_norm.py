"""Values and gradients are finite where capsules are long."""

import torch

from capsviz.checks.candidate import Candidate
from capsviz.checks.slopes import broken, judged
from capsviz.checks.verdict import About, Judgement

ABOUT = About(
    paper="§2, equation 1, for long s",
    seen="features drawn at random, a thousand times as large as usual: the outputs, and their "
    "gradients",
    breaks="features that have grown, or one bright image, make all weights NaN",
    mend="no exponential of a norm: `1 - torch.exp(-norm)` for `1 - 1 / torch.exp(norm)`",
    after=("repeats", "finite", "zero_norm"),
)
LARGE = 1e3


def examine(candidate: Candidate) -> Judgement:
    """A pass whose features are large, and its gradient to features and weights."""
    generator = torch.Generator().manual_seed(3)

    def large(tensor):
        return LARGE * torch.randn(tensor.shape, generator=generator).to(tensor)

    return judged(broken(candidate, large, candidate.images(2)))
