"""Gradients flow through all passes of routing, or the code says that they do not."""

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, UnseenError, fails, passes, told

ABOUT = About(
    paper="§2: nothing is said of stopping gradients",
    seen="whether the gradient of the last pass's sum comes to those of the inner passes",
    breaks="of inner passes nothing, if it is said: training is another one than the paper's; of "
    "all, what makes the votes never learns",
    mend="say so where results are reported, or route on votes that are not detached",
    pitfalls=(16,),
    after=("couplings_of_images",),
)


def examine(candidate: Candidate) -> Judgement:
    """Record a pass with gradients."""
    candidate.layer  # noqa: B018  (raises its own reason)
    with torch.enable_grad():
        structure = candidate.recorded(candidate.images(len(candidate.structure.images)))
    own = [layer for layer in structure.layers if layer.place == candidate.layer.place]
    if not own:
        raise UnseenError("the layer is not seen again in a pass with gradients")
    *inner, last = [one.total.outputs[0] for one in own[0].rounds]
    if not last.requires_grad:
        before = structure.flow.ancestors(own[0].rounds[-1].event.index)
        earlier = [tensor for index in before for tensor in structure.flow.events[index].outputs]
        if any(tensor.requires_grad for tensor in earlier):
            return fails("no gradient comes to the votes: what makes them learns nothing", cut=1)
        raise UnseenError("no pass has a gradient")
    if not inner:
        raise UnseenError("it routes in one pass")
    cut = len(inner) - _reached(inner, last)
    if cut:
        return told(f"{cut} of {len(inner)} inner passes are detached", detached=cut)
    return passes(f"gradients flow through all {len(inner) + 1} passes", detached=0)


def _reached(inner: list[Tensor], last: Tensor) -> int:
    """How many inner sums the gradient of the last one comes to."""
    live = [one for one in inner if one.requires_grad]
    if not live:
        return 0
    try:
        with torch.enable_grad():
            gradients = torch.autograd.grad(last.sum(), live, allow_unused=True)
    except RuntimeError as error:  # of an operation in place, a function without a backward
        raise UnseenError(
            f"no gradient can be had: {' '.join(str(error).split())[:120]}"
        ) from error
    return sum(one is not None for one in gradients)
