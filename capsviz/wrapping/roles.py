"""Who is who among the axes of a product: image, child, parent, or a number of a pose."""

from __future__ import annotations

import torch
from torch import Tensor

from capsviz.wrapping.flow import axes_after, varying
from capsviz.wrapping.layout import Roles
from capsviz.wrapping.products import Product
from capsviz.wrapping.recorder import Event


def roles_in(weights, votes, frame, children, batch: int, classes: int) -> Roles | None:
    """Who is who in a frame; None for what is no capsule layer of this batch."""
    weights, votes = (
        t.reshape((1,) * (len(frame) - t.dim()) + tuple(t.shape)) for t in (weights, votes)
    )
    images = [k for k, n in enumerate(votes.shape) if n == batch and k not in children]
    if len(images) != 1 or any(weights.shape[axis] != frame[axis] for axis in children):
        return None
    rest = [k for k, n in enumerate(frame) if n > 1 and k not in (*children, *images)]
    wide = [k for k in rest if weights.shape[k] > 1]
    differ = [k for k in wide if not _repeats(weights, k)]
    parents = wide if len(wide) == 1 else differ or [k for k in wide if frame[k] == classes]
    if not parents or (not differ and len(parents) > 1) or set(parents) == set(rest):
        return None
    names = dict.fromkeys(parents, "J") | dict.fromkeys(children, "I") | {images[0]: "B"}
    return tuple(names.get(k, "E" if n > 1 else ".") for k, n in enumerate(frame))


def _repeats(tensor: Tensor, axis: int) -> bool:
    first = tensor.narrow(axis, 0, 1)
    return bool(torch.allclose(tensor, first.expand_as(tensor), rtol=1e-6, atol=0))


def roles_of_total(event, how, views, total, roles) -> Roles | None:
    """Roles of the axes of the sum over children that follows a product."""
    if how.kind != "mul":
        return tuple(role for k, role in enumerate(roles) if k not in how.summed)
    along = axes_after(event.outputs[0], views, total.inputs[0])
    before = tuple(_one(roles, axes) for axes in along)
    if None in before:
        return None
    if total.outputs[0].dim() == total.inputs[0].dim():
        return tuple("." if role == "I" else role for role in before)
    dims = summed_dims(total)
    return tuple(role for axis, role in enumerate(before) if axis not in dims)


def _one(roles: Roles, axes: set[int]) -> str | None:
    """The role that axes share; "." for none, None where they differ."""
    own = {roles[axis] for axis in axes}
    return "." if not own else own.pop() if len(own) == 1 else None


def followed(start: Tensor, path, how: Product, roles: Roles) -> Roles | None:
    """Roles of the axes of `start`, followed to the frame of the product at the end of a path."""
    last = path[-1]
    end = last.event.inputs[last.position]
    along = axes_after(start, path[:-1], end)
    letters = ["."] * start.dim()
    for axis in range(end.dim()):
        inputs = list(last.event.inputs)
        shape = [-1 if k == axis else 1 for k in range(end.dim())]
        inputs[last.position] = torch.arange(float(end.shape[axis])).view(shape).expand(end.shape)
        inside = how.weights(inputs)
        inside = inside.reshape((1,) * (len(roles) - inside.dim()) + tuple(inside.shape))
        for origin in along[axis]:
            role = _one(roles, varying(inside))
            if role is None or letters[origin] not in (".", role):
                return None
            letters[origin] = role
    return tuple(letters)


def summed_dims(event: Event) -> tuple[int, ...]:
    """The axes that a sum or mean goes over; () where it goes over all."""
    axes = event.kwargs.get("dim", event.kwargs.get("axis"))
    if axes is None and len(event.args) > 1:
        axes = event.args[1]
    axes = () if axes is None else (axes,) if isinstance(axes, int) else tuple(axes)
    return tuple(d % event.inputs[0].dim() for d in axes)
