"""Where poses are masked for a decoder by what no rule follows: written by index, or one by one.

`kept[rows, classes] = v[rows, classes]` gives no tensor, so nothing of it is recorded; but what was
allocated before it holds the kept poses afterwards, and is told by its numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from capsviz.wrapping.flow import Flow
from capsviz.wrapping.following import Masked, layouts, picks, rows
from capsviz.wrapping.layout import Roles
from capsviz.wrapping.vectors import Place


def by_value(flow: Flow, poses: Place) -> list[Masked]:
    """Events whose result holds one of these poses of each image, in its class's place or alone."""
    own, result = rows(poses.tensor, poses.roles), []
    if own.shape[1] < 2:
        return []
    for event in flow.events:
        tensor = event.outputs[0]
        if not tensor.is_floating_point() or tensor is poses.tensor:
            continue
        if tensor.numel() == own.numel():
            roles = _masked(poses, own, tensor)
            result += [] if roles is None else [Masked(event, roles, alone=False)]
        elif picks(tensor, own):
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
