"""A primary capsule mixes several positions of the feature map."""

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.primary import last_before
from capsviz.checks.verdict import About, Judgement, SkippedError, fails, passes

ABOUT = About(
    paper="§4: [32 × 6 × 6] capsules, each an 8D vector of one position",
    breaks="a capsule has no position and no pose, and every map of it means nothing, though the "
    "network trains to 99 %",
    fix="use `view(B, types, D, H, W).permute(0, 1, 3, 4, 2).reshape(B, types * H * W, D)`",
    after=("not_repeatable", "wrong_squash_axis"),
)
POSITIONS = 64
CLOSE = 1e-4


def examine(candidate: Candidate) -> Judgement:
    """Change the features at one position at a time, and find which capsules change."""
    primary = candidate.primary
    events = primary.features
    if any(event.outputs[0].dim() != 4 for event in events):  # a normalisation of each capsule
        events = last_before(*primary.source, normalised=False)
    features = [event.outputs[0] for event in events]
    shapes = {tuple(t.shape[2:]) for t in features}
    if any(t.dim() != 4 for t in features) or len(shapes) != 1:
        names = ", ".join(event.place for event in events[:3])
        raise SkippedError(f"capsules do not come from one feature map, but from {names}")
    ((height, width),) = shapes
    if height * width == 1:
        raise SkippedError("the feature map before the capsules has one position")
    count = min(POSITIONS, height * width)
    generator = torch.Generator().manual_seed(0)
    noise = {}

    def change(tensor):
        channels = tensor.shape[1]
        if channels not in noise:
            noise[channels] = torch.randn(2, channels, height, width, generator=generator)
        base, other = noise[channels].to(tensor)
        changed = base.repeat(count + 1, 1, 1, 1)
        for position in range(count):
            row, column = divmod(position, width)
            changed[position + 1, :, row, column] = other[:, row, column]
        return changed

    capsules = primary.of(change, candidate.images(count + 1), events)
    moved = (capsules[1:] - capsules[:1]).abs().amax(2)
    of_each = (moved > CLOSE * moved.amax()).sum(0)
    most, mixed, total = int(of_each.max()), int((of_each > 1).sum()), len(of_each)
    if most == count and mixed == total and not _are_maps(capsules):
        raise SkippedError("a layer between features and capsules mixes all positions")
    if mixed:
        return fails(
            f"{mixed} of {total} capsules mix several positions, up to {most} of the "
            f"{height} × {width}, expected 1", positions=most, capsules=mixed,
        )  # fmt: skip
    return passes(
        f"each of {total} capsules depends on one position of {height} × {width}", positions=most
    )


def _are_maps(capsules: Tensor) -> bool:
    """Whether capsules are whole maps, squashed: a position changes one component, and the length.

    The length changes all components by one factor.
    """
    change = capsules[1:] / capsules[:1]
    moved = (change / change.median(2, keepdim=True).values - 1).abs() > CLOSE
    return bool((moved.sum(0) <= 1).all() and (moved.any(2).sum(0) > 1).all())
