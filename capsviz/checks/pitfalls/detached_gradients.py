"""Gradients do not reach the votes, or not every routing iteration."""

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.capsules import Capsules
from capsviz.checks.verdict import About, Judgement, SkippedError, fails, passes, warns
from capsviz.wrapping.environment import in_words
from capsviz.wrapping.flow import Flow
from capsviz.wrapping.layers import Round, voting

ABOUT = About(
    paper="§2: nothing is said of stopping gradients",
    breaks="without gradients in inner iterations, training differs from the paper; without any, "
    "the layers before the votes never learn",
    fix="route on votes that are not detached, or report it with the results",
    after=("constant_couplings",),
    every_layer=True,
)


def examine(candidate: Candidate, layer: Capsules) -> Judgement:
    """Find whether the gradient of the last sum reaches the inner iterations, and all weights."""
    place = layer.layer.place
    with torch.enable_grad():
        recorded = candidate.caller.record(candidate.caller.recorded.images)
    own = [one for one in recorded.others if one.place == place]
    if not own:
        raise SkippedError("the layer is not found again in a pass with gradients")
    flow, last = recorded.flow, own[0].rounds[-1]
    *inner, total = [one.total.outputs[0] for one in own[0].rounds]
    if not total.requires_grad and not _learns(flow, last.event.index):
        raise SkippedError("no pass has a gradient")
    if not total.requires_grad or _votes_are_detached(flow, last):
        return fails("no gradient reaches the votes: what makes them does not learn", cut=1)
    if still := _unlearned(candidate, flow, last):
        names = ", ".join(still[:3]) + (" and others" if len(still) > 3 else "")
        return warns(
            f"no gradient reaches {names}, on which the last iteration depends: they do not learn, "
            "unless they are trained separately", unlearned=len(still),
        )  # fmt: skip
    if not inner:
        raise SkippedError("the network routes in one iteration")
    reached = _gradients(total, [one for one in inner if one.requires_grad])
    cut = len(inner) - sum(one is not None for one in reached)
    if cut:
        return warns(f"{cut} of {len(inner)} inner iterations are detached", detached=cut)
    return passes(f"gradients flow through all {len(inner) + 1} iterations", detached=0)


def _learns(flow: Flow, index: int) -> bool:
    """Whether an event before has a gradient."""
    before = flow.ancestors(index)
    return any(tensor.requires_grad for one in before for tensor in flow.events[one].outputs)


def _votes_are_detached(flow: Flow, last: Round) -> bool:
    """Whether votes have no gradient, though what they are made of has one."""
    position = voting(flow, last.event, last.product)
    source = flow.sources[last.event.index][position]
    if source is None or last.event.inputs[position].requires_grad:
        return False
    return _learns(flow, source[0])


def _unlearned(candidate: Candidate, flow: Flow, last: Round) -> list[str]:
    """Names of weights on which an iteration depends and that get no gradient of its sum."""
    events = flow.ancestors(last.total.index)
    used = {id(tensor) for index in events for tensor in flow.events[index].inputs}
    weights = {
        name: weight
        for name, weight in candidate.network.named_parameters()
        if weight.requires_grad and id(weight) in used
    }
    gradients = _gradients(last.total.outputs[0], list(weights.values()))
    return [name for name, one in zip(weights, gradients, strict=True) if one is None]


def _gradients(total: Tensor, of: list[Tensor]) -> tuple[Tensor | None, ...]:
    if not of:
        return ()
    try:
        with torch.enable_grad():
            return torch.autograd.grad(total.sum(), of, retain_graph=True, allow_unused=True)
    except RuntimeError as error:  # of an operation in place, a function without a backward
        raise SkippedError(f"the gradient cannot be computed: {in_words(error)}") from error
