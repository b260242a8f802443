"""Outputs or gradients are NaN or infinite if capsules are zero."""

import torch

from capsviz.checks.candidate import Candidate
from capsviz.checks.squashing import judge_finite
from capsviz.checks.verdict import About, Judgement, SkippedError, fails

ABOUT = About(
    paper="§2, equation 1, at s = 0",
    breaks="one black image, or one dead capsule, makes all weights NaN",
    fix="put the epsilon inside the root: `scale = n2 / (1 + n2) / (n2 + eps).sqrt()`",
)


def examine(candidate: Candidate) -> Judgement:
    """Take outputs and gradients for features of zero."""
    capsules = candidate.lower.of(torch.zeros_like, candidate.images(2))
    judgement = judge_finite(candidate, torch.zeros_like)
    if "outputs" in judgement.numbers:
        return judgement
    if not capsules.isfinite().all():
        return fails("primary capsules are not finite for features of zero", outputs=0)
    if float(capsules.abs().max()) > 0:
        raise SkippedError("features of zero do not make primary capsules of zero")
    return judgement
