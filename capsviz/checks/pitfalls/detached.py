"""Gradients flow through all passes of routing, or the code says that they do not."""

import torch

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, UnseenError, passes, told

ABOUT = About(
    paper="§2: nothing is said of stopping gradients",
    seen="whether the sums of the inner passes have a gradient, where the last has one",
    breaks="nothing, if it is said: training is another one than the paper's",
    mend="say so where results are reported, or route on votes that are not detached",
    pitfalls=(16,),
)


def examine(candidate: Candidate) -> Judgement:
    """Record a pass with gradients."""
    candidate.layer  # noqa: B018  (raises its own reason)
    with torch.enable_grad():
        structure = candidate.recorded(candidate.images(len(candidate.structure.images)))
    own = [layer for layer in structure.layers if layer.place == candidate.layer.place]
    if not own:
        raise UnseenError("the layer is not seen again in a pass with gradients")
    kept = [one.total.outputs[0].requires_grad for one in own[0].rounds]
    inner = kept[:-1]
    if not kept[-1]:
        raise UnseenError("no pass has a gradient")
    if not inner:
        raise UnseenError("it routes in one pass")
    cut = inner.count(False)
    if cut:
        return told(f"{cut} of {len(inner)} inner passes are detached", detached=cut)
    return passes(f"all {len(kept)} passes have gradients", detached=0)
