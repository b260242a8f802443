"""Values and gradients are finite where capsules are zero."""

import torch

from capsviz.checks.candidate import Candidate
from capsviz.checks.slopes import broken, judged
from capsviz.checks.verdict import About, Judgement, UnseenError, fails

ABOUT = About(
    paper="§2, equation 1, at s = 0",
    seen="features of zero: the outputs, and their gradients",
    breaks="one black image, or one dead capsule, makes all weights NaN",
    mend="put the epsilon inside the root: `scale = n2 / (1 + n2) / (n2 + eps).sqrt()`",
    pitfalls=(5,),
)


def examine(candidate: Candidate) -> Judgement:
    """A pass whose features are zero, and its gradient to features and weights."""
    images = candidate.images(2)
    with torch.no_grad():
        children = candidate.children(torch.zeros_like, images)
    count = broken(candidate, torch.zeros_like, images)
    if not (count.outputs or children.isfinite().all()):
        return fails("children of features of zero are not finite", outputs=0)
    if not count.outputs and float(children.abs().max()) > 0:
        raise UnseenError("features of zero do not make children of zero")
    return judged(count)
