"""What becomes of the sum of a pass of routing: poses, and where they are masked for a decoder.

From the sum forward through what keeps its direction or shape: squash, norms, rearrangements. A
squash can be written in many ways, so what no rule follows is followed by value: numbers that point
as the poses found so far, capsule by capsule.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

import torch
from torch import Tensor, nn

from capsviz.wrapping.flow import Flow, Port, Step, axes_after, is_view, storage
from capsviz.wrapping.layout import Roles, arrange
from capsviz.wrapping.recorder import Event
from capsviz.wrapping.rounds import Round
from capsviz.wrapping.vectors import Place

KEEPING = frozenset(
    ("relu", "leaky_relu", "elu", "gelu", "tanh", "layer_norm", "batch_norm", "instance_norm",
     "group_norm", "normalize", "nan_to_num", "clamp")
)  # fmt: skip
MASKS = frozenset(("where", "masked_fill", "einsum"))  # where they give zeros
PARALLEL = 1e-5  # 1 - cosine, at most


class Masked(NamedTuple):
    """Where poses become what a decoder gets: one pose an image in its class's place, or alone."""

    event: Event
    roles: Roles
    alone: bool


class Followed(NamedTuple):
    """What becomes of the sum of one pass."""

    last: Place  # the last that a rule knows for poses
    alike: list[Place]  # later ones, that point as it does
    masked: list[Masked]


class Path(NamedTuple):
    """Steps from a tensor of known axes on; or from one that was told by its values."""

    start: Tensor
    roles: Roles
    steps: list[Step]
    by_value: bool


def followed(flow: Flow, turn: Round, end: int) -> Followed:
    """What becomes of a sum; by value, as far as the event of number `end`."""
    total, last = turn.total, Place(turn.total, -1, turn.total_roles)
    size = total.outputs[0].numel()
    paths: dict[Port | int, Path] = {
        (total.index, 0): Path(total.outputs[0], turn.total_roles, [], False)
    }
    reached, masked, alike = {total.index}, [], []
    for event in flow.events[total.index + 1 :]:
        sources = _sources(flow, event)
        if any(isinstance(source, tuple) and source[0] in reached for source in sources):
            reached.add(event.index)
        for position in range(len(event.inputs)):  # what comes from where nothing is seen
            key, hidden = sources[position], _hidden(flow, event, position, size)
            if hidden and event.index < end:
                roles = parallel(last, event.inputs[position])
                if roles is not None:
                    alike.append(Place(event, position, roles))
                    paths.setdefault(key, Path(event.inputs[position], roles, [], True))
        new = None
        for position, source in enumerate(sources):
            if source not in paths:
                continue
            path = paths[source]
            path = path._replace(steps=[*path.steps, Step(event, position)])
            if event.outputs[0].numel() == size and _keeps(flow, event, position):
                roles = _along(path)
                if roles is None:
                    continue
                mask = not is_view(event) and not _rewritten(flow, event)
                if mask and _is_masked(event, position, roles):
                    masked.append(Masked(event, roles, alone=False))
                    new = True
                    continue
                new = paths[(event.index, 0)] = path
                place = Place(event, -1, roles)
                if not is_view(event) and not path.by_value:
                    last = place
                elif not is_view(event) and event.index < end and parallel(last, place.tensor):
                    alike.append(place)
            elif _is_selected(flow, event, position, paths[source]):
                masked.append(Masked(event, (), alone=True))
                new = True
            break
        known = event.index in reached and not _is_allocation(event)
        if new is None and known and event.index < end:
            roles = parallel(last, event.outputs[0])
            if roles is not None:
                alike.append(Place(event, -1, roles))
                paths[(event.index, 0)] = Path(event.outputs[0], roles, [], True)
    return Followed(last, alike, masked)


def _sources(flow: Flow, event: Event) -> list[Port | int]:
    """Who made each input; the tensor's id where nobody is seen."""
    sources = flow.sources[event.index]
    return [id(t) if s is None else s for t, s in zip(event.inputs, sources, strict=True)]


def _hidden(flow: Flow, event: Event, position: int, size: int) -> bool:
    """Whether an input as large is made where no function is seen: scripted, or by index."""
    own = event.inputs[position]
    if own.numel() != size or isinstance(own, nn.Parameter):
        return False
    source = flow.sources[event.index][position]
    return not flow.from_images(event, position) or _is_allocation(flow.events[source[0]])


def _is_allocation(event: Event) -> bool:
    """Whether an event gives numbers that are yet to be written."""
    return event.name.endswith("_like") or event.name.startswith("new_")


def parallel(place: Place, tensor: Tensor) -> Roles | None:
    """The roles of the axes of a tensor whose vectors point as those of a place; else None."""
    own = place.tensor
    if tensor is own or tensor.numel() != own.numel() or not tensor.is_floating_point():
        return None
    expected = rows(own, place.roles).double()
    if expected.shape[2] < 2 or not expected.isfinite().all():
        return None
    tolerance = max(PARALLEL, torch.finfo(own.dtype).eps)
    for roles in layouts(place, tensor):
        other = rows(tensor, roles).double()
        long, short = expected.norm(dim=2), other.norm(dim=2)
        alike = (other * expected).sum(2) >= (1 - tolerance) * long * short
        if bool(alike.all() and long.any() and ((long > 0) == (short > 0)).all()):
            return roles
    return None


def layouts(place: Place, tensor: Tensor) -> Iterator[Roles]:
    """The roles that the axes of a tensor may have, where it holds a number for each of a place."""
    wide = [(role, n) for role, n in zip(place.roles, place.tensor.shape, strict=True) if n > 1]
    for order in permutations(wide):
        if [n for _, n in order] == [n for n in tensor.shape if n > 1]:
            left = iter(role for role, _ in order)
            yield tuple(next(left) if n > 1 else "." for n in tensor.shape)


def _keeps(flow: Flow, event: Event, position: int) -> bool:
    """Whether an event makes of poses what are still poses."""
    if is_view(event):
        return True
    if event.name in KEEPING:
        return position == 0
    if event.name in MASKS:
        out = event.outputs[0]
        return out.shape == event.inputs[position].shape and bool((out == 0).any())
    own, others = event.inputs[position], [t for k, t in enumerate(event.inputs) if k != position]
    if event.name in ("add", "sub"):
        return not any(
            flow.from_images(event, k) for k in range(len(event.inputs)) if k != position
        )
    if event.name == "mul" or (event.name == "div" and position == 0):
        if any(t is own for t in others):
            return False
        small = all(t.numel() < own.numel() for t in others)
        fixed = not any(
            flow.from_images(event, k) for k in range(len(event.inputs)) if k != position
        )
        return small or fixed or bool((event.outputs[0] == 0).any())
    return False


def _along(path: Path) -> Roles | None:
    """Roles of what the last step of a path gives; None where it mixes them."""
    own_roles = []
    for axes in axes_after(path.start, path.steps, path.steps[-1].event.outputs[0]):
        own = {path.roles[axis] for axis in axes}
        if len(own) > 1:
            return None
        own_roles.append(own.pop() if own else ".")
    return tuple(own_roles)


def rows(tensor: Tensor, roles: Roles) -> Tensor:
    """Poses in a layout -> (B, J, E)."""
    return arrange(tensor, roles, "BJE", {})


def _is_masked(event: Event, position: int, roles: Roles) -> bool:
    after = rows(event.outputs[0], roles).abs().sum(2)
    if after.shape[1] < 2 or not ((after > 0).sum(1) <= 1).all():
        return False
    own = event.inputs[position]
    if storage(own) == storage(event.outputs[0]):  # in place: what it was is overwritten
        return True
    before = rows(own.expand_as(event.outputs[0]), roles).abs().sum(2)
    return bool(((before > 0).sum(1) > 1).any())


def _rewritten(flow: Flow, event: Event) -> bool:
    """Whether a later event writes into what this one gave, so that it is no more what it was."""
    own = storage(event.outputs[0])
    return any(
        storage(later.outputs[0]) == own and not is_view(later)
        for later in flow.events[event.index + 1 :]
    )


def _is_selected(flow: Flow, event: Event, position: int, path: Path) -> bool:
    """Whether an event picks one pose of each image: by a number of its own, not one for all."""
    roles = _along(path) if path.steps else path.roles
    if roles is None:
        return False
    own = rows(path.steps[-1].event.outputs[0] if path.steps else path.start, roles)
    others = [k for k in range(len(event.inputs)) if k != position]
    by_image = any(flow.from_images(event, k) for k in others)
    return picks(event.outputs[0], own, by_image=by_image)


def picks(tensor: Tensor, own: Tensor, *, by_image: bool = False) -> bool:
    """Whether a tensor holds one of the poses (B, J, E) of each image, alone.

    It must be another class's for some images, or the longest of each, or be chosen `by_image`:
    else it may be one that is the same for all.
    """
    batch, _, numbers = own.shape
    if tensor.numel() != batch * numbers or not tensor.is_floating_point():
        return False
    chosen = (own == tensor.to(own).reshape(batch, 1, numbers)).all(2)
    longest = chosen[torch.arange(batch), own.norm(dim=2).argmax(1)]
    several = by_image or not bool(chosen.all(0).any())
    return bool(chosen.any(1).all()) and (several or bool(longest.all()))
