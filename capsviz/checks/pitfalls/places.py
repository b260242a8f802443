"""A primary capsule is made of the channels of one place."""

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, UnseenError, fails, passes

ABOUT = About(
    paper="§4: [32 × 6 × 6] capsules, each an 8D vector of one place",
    seen="the features before the capsules changed at one place at a time: whose numbers follow?",
    breaks="a capsule is several places of one channel: it has no place and no pose, and every map "
    "of it means nothing, though the network trains to 99 %",
    mend="`view(B, types, D, H, W).permute(0, 1, 3, 4, 2).reshape(B, types * H * W, D)`",
    pitfalls=(1,),
    after=("repeats", "squash_axis"),
)
PLACES = 64
CLOSE = 1e-4


def examine(candidate: Candidate) -> Judgement:
    """Count the places that each capsule is made of."""
    candidate = candidate.primary
    events = candidate.features
    if any(event.outputs[0].dim() != 4 for event in events):  # a normalisation of each capsule
        events = candidate.mixtures
    features = [event.outputs[0] for event in events]
    shapes = {tuple(t.shape[2:]) for t in features}
    if any(t.dim() != 4 for t in features) or len(shapes) != 1:
        names = ", ".join(event.place for event in events[:3])
        raise UnseenError(f"capsules do not come from one map of places, but from {names}")
    ((height, width),) = shapes
    if height * width == 1:
        raise UnseenError("the features before the capsules have one place, so there is no grid")
    count = min(PLACES, height * width)
    generator = torch.Generator().manual_seed(0)
    noise = {}

    def change(tensor):
        channels = tensor.shape[1]
        if channels not in noise:
            noise[channels] = torch.randn(2, channels, height, width, generator=generator)
        base, other = noise[channels].to(tensor)
        changed = base.repeat(count + 1, 1, 1, 1)
        for place in range(count):
            row, column = divmod(place, width)
            changed[place + 1, :, row, column] = other[:, row, column]
        return changed

    children = candidate.children(change, candidate.images(count + 1), events)
    moved = (children[1:] - children[:1]).abs().amax(2)
    moved = moved > CLOSE * moved.amax()
    of_each = moved.sum(0)
    most, capsules = int(of_each.max()), len(of_each)
    mixed = int((of_each > 1).sum())
    whole = candidate.of_classes and _of_single_places(children)  # else read with all their places
    if most == count and mixed == capsules and not whole:
        raise UnseenError("something between features and capsules mixes all places")
    if mixed:
        return fails(
            f"{mixed} of {capsules} capsules are made of several places, up to {most} of the "
            f"{height} × {width}", places=most, capsules=mixed,
        )  # fmt: skip
    return passes(
        f"each of {capsules} capsules is made of one place of {height} × {width}", places=most
    )


def _of_single_places(children: Tensor) -> bool:
    """Whether each number of a capsule follows one place at most, but for a factor of them all.

    As where a capsule is a whole map, squashed: what one place gives shortens or lengthens it.
    """
    change = children[1:] / children[:1]
    moved = (change / change.median(2, keepdim=True).values - 1).abs() > CLOSE
    return bool((moved.sum(0) <= 1).all() and (moved.any(2).sum(0) > 1).all())
