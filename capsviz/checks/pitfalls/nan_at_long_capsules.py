"""Outputs or gradients are NaN or infinite if capsules are long."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.primary import noise
from capsviz.checks.squashing import judge_finite
from capsviz.checks.verdict import About, Judgement

ABOUT = About(
    paper="§2, equation 1, for long s",
    breaks="features that have grown, or one bright image, make all weights NaN",
    fix="take no exponential of a norm: `1 - torch.exp(-norm)` for `1 - 1 / torch.exp(norm)`",
    after=("not_repeatable", "nan_output", "nan_at_zero"),
)


def examine(candidate: Candidate) -> Judgement:
    """Take outputs and gradients for random features a thousand times as large as usual."""
    return judge_finite(candidate, noise(1e3, seed=3))
