"""Gradients do not reach the votes, or not every routing iteration."""

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.capsules import Capsules
from capsviz.checks.verdict import About, Judgement, SkippedError, fails, passes, warns
from capsviz.wrapping.environment import in_words

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
    flow, sums = recorded.flow, [one.total for one in own[0].rounds]
    *inner, total = [one.outputs[0] for one in sums]
    events = flow.ancestors(sums[-1].index)
    used = {id(tensor) for index in events for tensor in flow.events[index].inputs}
    weights = {
        name: weight
        for name, weight in candidate.network.named_parameters()
        if weight.requires_grad and id(weight) in used
    }
    if not weights:
        raise SkippedError("no weight that the votes depend on asks for a gradient")
    gradients = _gradients(total, list(weights.values()))
    lost = [name for name, one in zip(weights, gradients, strict=True) if one is None]
    if len(lost) == len(weights):
        return fails("no gradient reaches the votes: what makes them does not learn", cut=1)
    if lost:
        names = ", ".join(lost[:3]) + (" and others" if len(lost) > 3 else "")
        return warns(
            f"no gradient reaches {names}, on which the last iteration depends: they do not learn, "
            "unless they are trained separately", unlearned=len(lost),
        )  # fmt: skip
    if not inner:
        raise SkippedError("the network routes in one iteration")
    reached = _gradients(total, [one for one in inner if one.requires_grad])
    cut = len(inner) - sum(one is not None for one in reached)
    if cut:
        return warns(f"{cut} of {len(inner)} inner iterations are detached", detached=cut)
    return passes(f"gradients flow through all {len(inner) + 1} iterations", detached=0)


def _gradients(total: Tensor, of: list[Tensor]) -> tuple[Tensor | None, ...]:
    if not of or not total.requires_grad:
        return (None,) * len(of)
    try:
        with torch.enable_grad():
            return torch.autograd.grad(total.sum(), of, retain_graph=True, allow_unused=True)
    except RuntimeError as error:  # of an operation in place, a function without a backward
        raise SkippedError(f"the gradient cannot be computed: {in_words(error)}") from error
