"""Values and gradients are finite where capsules are zero."""

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, UnseenError, fails, passes, told
from capsviz.foreign.change import ChangePass
from capsviz.foreign.leaves import tensors

ABOUT = About(
    paper="§2, equation 1, at s = 0",
    seen="features of zero: the outputs, and their gradients",
    breaks="one black image, or one dead capsule, makes all weights NaN",
    mend="put the epsilon inside the root: `scale = n2 / (1 + n2) / (n2 + eps).sqrt()`",
    pitfalls=(5,),
)


def examine(candidate: Candidate) -> Judgement:
    """A pass whose features are zero, and its gradient to features and weights."""
    leaves: list[Tensor] = []

    def zero(tensor):
        leaves.append(torch.zeros_like(tensor).requires_grad_())
        return leaves[-1]

    images = candidate.images(2)
    with torch.no_grad():
        children = candidate.children(torch.zeros_like, images)
    mode = ChangePass(candidate.network, [], candidate.features, zero)
    with torch.enable_grad():
        output = candidate.run(mode, images)
        values = [t for t in tensors(output) if t.is_floating_point()]
        wrong = sum(int((~t.isfinite()).sum()) for t in values)
        if wrong or not children.isfinite().all():
            return fails(f"{wrong} numbers of the output are not finite", outputs=wrong)
        if float(children.abs().max()) > 0:
            raise UnseenError("features of zero do not make children of zero")
        total = sum((t * (1 + k)).sum() for k, t in enumerate(values) if t.requires_grad)
        if not isinstance(total, Tensor):
            return told("values are finite; gradients cannot be seen, the pass keeps none")
        weights = [p for p in candidate.network.parameters() if p.requires_grad]
        slopes = torch.autograd.grad(total, leaves + weights, allow_unused=True)
    slopes = [slope for slope in slopes if slope is not None]
    wrong = sum(int((~slope.isfinite()).sum()) for slope in slopes)
    of = sum(slope.numel() for slope in slopes)
    if wrong:
        return fails(f"{wrong:,} of {of:,} numbers of the gradient are not finite", gradients=wrong)
    return passes(f"outputs and {of:,} numbers of the gradient are finite", gradients=0)
