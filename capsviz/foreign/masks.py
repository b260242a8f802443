"""Where poses are masked for a decoder by what no rule follows: written by index, or one by one.

`kept[rows, classes] = v[rows, classes]` gives no tensor, so nothing of it is recorded; but what was
allocated before it holds the kept poses afterwards, and is told by its numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from capsviz.foreign.flow import Flow
from capsviz.foreign.following import Masked, layouts, rows
from capsviz.foreign.layout import Roles
from capsviz.foreign.vectors import Place


def by_value(flow: Flow, poses: Place) -> list[Masked]:
    """Events whose result holds one of these poses for each image, in its class's place or alone.

    Alone it must be another class's for some images, or the longest of each: else it may be one
    that is the same for all.
    """
    own, result = rows(poses.tensor, poses.roles), []
    batch, classes, numbers = own.shape
    if classes < 2:
        return []
    for event in flow.events:
        tensor = event.outputs[0]
        if not tensor.is_floating_point() or tensor is poses.tensor:
            continue
        if tensor.numel() == own.numel():
            roles = _masked(poses, own, tensor)
            result += [] if roles is None else [Masked(event, roles, alone=False)]
        elif tensor.numel() == batch * numbers and _alone(own, tensor):
            result.append(Masked(event, (), alone=True))
    return result


def _masked(poses: Place, own: Tensor, tensor: Tensor) -> Roles | None:
    """Roles of the axes of a tensor that is zero but for one pose of each image; else None."""
    for roles in layouts(poses, tensor):
        other = rows(tensor, roles).to(own)
        kept = (other != 0).any(2)
        if bool((kept.sum(1) == 1).all()) and torch.equal(other[kept], own[kept]):
            return roles
    return None


def _alone(own: Tensor, tensor: Tensor) -> bool:
    chosen = (own == tensor.to(own).reshape(len(own), 1, -1)).all(2)
    longest = chosen[torch.arange(len(own)), own.norm(dim=2).argmax(1)]
    several = not chosen.all(0).any()
    return bool(chosen.any(1).all()) and (several or bool(longest.all()))
