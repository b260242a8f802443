"""Checks of primary capsules and votes: receptive fields, and transformation matrices."""

from itertools import pairwise

import torch

from capsviz.checks.candidate import Candidate
from capsviz.checks.capsules import GROWTH, last_before, noise
from capsviz.checks.verdict import Judgement, SkippedError, check, fails, passes, warns
from capsviz.wrapping import grid
from capsviz.wrapping.flow import PRODUCTS
from capsviz.wrapping.layers import voting

POSITIONS = 64
CLOSE, ALIKE = 1e-4, 1e-3


@check
def mixed_positions(candidate: Candidate) -> Judgement:
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
    drawn = {}

    def change(tensor):
        channels = tensor.shape[1]
        if channels not in drawn:
            drawn[channels] = torch.randn(2, channels, height, width, generator=generator)
        base, other = drawn[channels].to(tensor)
        changed = base.repeat(count + 1, 1, 1, 1)
        for position in range(count):
            row, column = divmod(position, width)
            changed[position + 1, :, row, column] = other[:, row, column]
        return changed

    capsules = primary.of(change, candidate.images(count + 1), events)
    moved = (capsules[1:] - capsules[:1]).abs().amax(2)
    of_each = (moved > CLOSE * moved.amax()).sum(0)
    most, mixed, total = int(of_each.max()), int((of_each > 1).sum()), len(of_each)
    numbers = {"positions": most, "capsules": mixed}
    if most == count and mixed == total:
        # If a capsule is a whole map, a position changes one component. The squash then scales all
        # components by one factor.
        ratio = capsules[1:] / capsules[:1]
        own = (ratio / ratio.median(2, keepdim=True).values - 1).abs() > CLOSE
        if (own.sum(0) > 1).any() or (own.any(2).sum(0) <= 1).any():
            raise SkippedError("a layer between features and capsules mixes all positions")
        return warns(
            f"each of {total} capsules is a whole feature map of {height} × {width}, and has no "
            "position", **numbers,
        )  # fmt: skip
    if mixed:
        return fails(
            f"{mixed} of {total} capsules mix several positions, up to {most} of the "
            f"{height} × {width}, expected 1", **numbers,
        )  # fmt: skip
    return passes(
        f"each of {total} capsules depends on one position of {height} × {width}", positions=most
    )


@check
def shifted_positions(candidate: Candidate) -> Judgement:
    """Change rows and columns of images; compare what the first and the last capsules see."""
    candidate.caller.require_images()
    capsules, (_, height, width) = candidate.lower.above, candidate.caller.image_shape
    places = grid.find(
        lambda images: capsules.look(images, "primary")["primary"],
        candidate.images(16), "probe", "primary capsules",
    )  # fmt: skip
    if places.grid is None:
        raise SkippedError(f"grid of primary capsules: {places.evidence}")
    for name, size, seen in (("row", height, places.rows), ("column", width, places.columns)):
        first, last = seen[0], seen[-1]
        step = max((b.start - a.start for a, b in pairwise(seen)), default=0)
        if not step or last.start == 0 or first.stop == size:
            raise SkippedError("primary capsules see the whole image")
        shift = (size - last.start - first.stop) / 2
        if abs(shift) >= max(step, 2) / 2:  # strides and even kernels explain smaller shifts
            return warns(
                f"the first {name} of capsules sees image {name}s {first.start} to "
                f"{first.stop - 1}, the last one {last.start} to {last.stop - 1} of {size}: "
                f"{abs(shift):g} pixels off the centre", shift=shift,
            )  # fmt: skip
    return passes("first and last capsules see as much of both edges of the image", step=step)


@check
def shared_matrix(candidate: Candidate) -> Judgement:
    """Fit the matrix of each primary capsule to votes for random features."""
    layer = candidate.capsules
    count = 2 * layer.look(candidate.images(2), "primary")["primary"].shape[2] + 3
    _, readings = candidate.caller.changed(
        candidate.lower.features, noise(seed=8), candidate.images(count),
        layer.taps("primary", "votes"),
    )  # fmt: skip
    capsules = readings["primary"][-1].cpu().double()  # (B, I, D)
    votes = readings["votes"][-1].cpu().double().flatten(2).movedim(1, 0)  # (I, B, J * E)
    if capsules.shape[1] < 2:
        raise SkippedError("the network has one primary capsule")
    ones = torch.ones_like(capsules[..., :1])
    given = torch.cat([capsules, ones], 2).movedim(1, 0)  # (I, B, D + 1), with a bias
    matrices = torch.linalg.lstsq(given, votes).solution
    if not float((given @ matrices - votes).norm() / votes.norm()) < ALIKE:
        raise SkippedError("votes are not linear in the primary capsules")
    matrices = matrices[:, :-1]
    spread = float((matrices - matrices.mean(0)).norm() / matrices.norm())
    message = f"matrices differ by {spread:.1%} of their size between primary capsules"
    if spread < ALIKE:
        return warns(f"{message}: they share one", spread=spread)
    return passes(message, spread=spread)


@check
def squashed_votes(candidate: Candidate) -> Judgement:
    """Enlarge the products that votes are made of, a hundred times: votes must grow, too."""
    layer, flow = candidate.capsules, candidate.caller.recorded.flow
    last = layer.rounds[-1]
    votes = flow.sources[last.event.index][voting(flow, last)]
    made = last_before(flow, votes, products=(*PRODUCTS, "mul"))
    taps = layer.taps("votes")
    first, second = (
        float(readings["votes"][-1].norm(dim=-1).max())
        for _, readings in (
            candidate.caller.changed(made, noise(size, seed=9), candidate.images(7), taps)
            for size in (1e4, 1e6)
        )
    )
    grown = second / max(first, 1e-30)
    message = f"votes grow {grown:.3g} times with products that grow 100 times, to {second:.2g}"
    return (warns if grown < GROWTH else passes)(message, growth=grown, longest=second)
