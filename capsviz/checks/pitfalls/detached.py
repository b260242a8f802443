"""Gradients flow through all passes of routing, or the code says that they do not."""

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, UnseenError, fails, passes, told
from capsviz.wrapping.flow import Flow
from capsviz.wrapping.layers import Round, voting

ABOUT = About(
    paper="§2: nothing is said of stopping gradients",
    seen="whether the gradient of the last pass's sum comes to those of the inner passes, and to "
    "all weights that it depends on",
    breaks="of inner passes nothing, if it is said: training is another one than the paper's; of "
    "all, what makes the votes never learns",
    mend="say so where results are reported, or route on votes that are not detached",
    pitfalls=(16,),
    after=("couplings_of_images",),
    layers=True,
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
    if _detached_votes(structure.flow, own[0].rounds[-1]):
        return fails("no gradient comes to the votes: what makes them learns nothing", cut=1)
    if still := _unlearned(candidate, structure.flow, own[0].rounds[-1]):
        names = ", ".join(still[:3]) + (" and others" if len(still) > 3 else "")
        return told(
            f"no gradient comes to {names}, whose numbers come to the last pass: they learn "
            "nothing, unless they are trained apart", unlearned=len(still),
        )  # fmt: skip
    if not inner:
        raise UnseenError("it routes in one pass")
    cut = len(inner) - _reached(inner, last)
    if cut:
        return told(f"{cut} of {len(inner)} inner passes are detached", detached=cut)
    return passes(f"gradients flow through all {len(inner) + 1} passes", detached=0)


def _detached_votes(flow: Flow, last: Round) -> bool:
    """Whether votes are cut from what learns before them, though a gradient comes to the sum."""
    position = voting(flow, last.event, last.product)
    source = flow.sources[last.event.index][position]
    if source is None or last.event.inputs[position].requires_grad:
        return False
    return any(
        tensor.requires_grad
        for index in flow.ancestors(source[0])
        for tensor in flow.events[index].outputs
    )


def _unlearned(candidate: Candidate, flow: Flow, last: Round) -> list[str]:
    """Names of weights that a pass depends on and that no gradient of its sum comes to."""
    events = flow.ancestors(last.total.index)
    used = {id(tensor) for index in events for tensor in flow.events[index].inputs}
    weights = {
        name: weight
        for name, weight in candidate.network.named_parameters()
        if weight.requires_grad and id(weight) in used
    }
    if not weights:
        return []
    gradients = _gradients(last.total.outputs[0], list(weights.values()))
    return [name for name, one in zip(weights, gradients, strict=True) if one is None]


def _reached(inner: list[Tensor], last: Tensor) -> int:
    """How many inner sums the gradient of the last one comes to."""
    live = [one for one in inner if one.requires_grad]
    if not live:
        return 0
    return sum(one is not None for one in _gradients(last, live))


def _gradients(last: Tensor, of: list[Tensor]) -> tuple[Tensor | None, ...]:
    try:
        with torch.enable_grad():
            return torch.autograd.grad(last.sum(), of, retain_graph=True, allow_unused=True)
    except RuntimeError as error:  # of an operation in place, a function without a backward
        raise UnseenError(
            f"no gradient can be had: {' '.join(str(error).split())[:120]}"
        ) from error
