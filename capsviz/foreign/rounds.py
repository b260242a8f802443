"""One pass of routing: from a softmax forward to the votes that it weighs, and their sum.

A softmax is followed through views, sums with something as small (a bias) and scalings (by an
activation) to the first product with something larger: that holds the votes. The axis summed after
it is the child, the axis along which couplings differ besides is the parent.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from capsviz.foreign.flow import Flow, Step, axes_after, is_view, varying
from capsviz.foreign.layout import Roles
from capsviz.foreign.products import Product, product
from capsviz.foreign.recorder import Event

SUMS = ("sum", "mean", "nansum")


@dataclass(frozen=True)
class Round:
    """One pass of routing: a product of what weighs the votes with the votes, summed over children.

    Where couplings are scaled on their way (by an activation), the `entry` comes before the
    product; else they are one event.
    """

    event: Event  # the product
    product: Product
    roles: Roles  # of its frame
    total: Event  # gives the sum over children
    total_roles: Roles
    entry: Event  # where couplings go in: the product, or the first scaling
    entry_product: Product
    entry_roles: Roles  # of the frame of that event
    softmax: Event | None  # None for a pass whose couplings come from none, as the first of EM
    logits: tuple[Event, int, Roles] | None = None  # which input of which event they are
    biased: bool = False  # something was added to the softmax

    @property
    def scaled(self) -> bool:
        """Whether couplings are not yet what weighs the votes."""
        return self.entry is not self.event

    @property
    def frame(self) -> tuple[int, ...]:
        """The shape of the product's frame."""
        inputs = self.event.inputs
        return frame_of(self.product.weights(inputs), self.product.others(inputs))

    def count(self, role: str) -> int:
        """How many there are: of images for "B", children for "I", parents for "J"."""
        return prod(n for n, own in zip(self.frame, self.roles, strict=True) if own == role)


def normalises(event: Event, flow: Flow) -> bool:
    """A softmax, or exponentials that are divided by their sum."""
    if event.name in ("softmax", "gumbel_softmax", "softmin"):
        return True
    if event.name != "div" or len(event.inputs) != 2:
        return False
    sources = flow.sources[event.index]
    if None in sources:
        return False
    top, bottom = (flow.events[source[0]] for source in sources)
    while is_view(bottom) and flow.sources[bottom.index][0] is not None:
        bottom = flow.events[flow.sources[bottom.index][0][0]]
    return top.name == "exp" and bottom.name in SUMS and bottom.inputs[0] is event.inputs[0]


def frame_of(weights: Tensor, votes: Tensor) -> tuple[int, ...]:
    """The shape over which both are multiplied; RuntimeError where they do not fit."""
    return tuple(torch.broadcast_shapes(weights.shape, votes.shape))


def weighed(flow: Flow, softmax: Event, batch: int, classes: int) -> Round | None:
    """The first product of what a softmax gives with votes."""
    # what comes from it: the steps so far, how many of them lie before the entry, biased
    paths: dict = {port: ([], None, False) for port in flow.ports(softmax)}
    for event in flow.events[softmax.index + 1 :]:
        for position, source in enumerate(flow.sources[event.index]):
            if source not in paths:
                continue
            steps, entry, biased = paths[source]
            step = Step(event, position)
            turn = _round(flow, softmax, [*steps, step], entry, biased, batch, classes)
            if turn is not None:
                return turn
            kind = _passes(event, position)
            if kind is not None:
                after = ([*steps, step], entry, biased)
                if entry is None and kind == "scale":
                    after = ([*steps, step], len(steps), biased)
                elif entry is None and kind == "bias":
                    after = ([*steps, step], None, True)
                paths.update(dict.fromkeys(flow.ports(event), after))
    return None


def _passes(event: Event, position: int) -> str | None:
    """How an event passes couplings on: "view", "bias" or "scale"; None where it does not."""
    if is_view(event):
        return "view"
    own, out = event.inputs[position], event.outputs[0]
    others = [t for k, t in enumerate(event.inputs) if k != position]
    if event.name in ("add", "sub"):
        small = all(t.numel() <= own.numel() for t in others)
        return ("bias" if others else "view") if out.numel() == own.numel() and small else None
    if event.name == "mul" or (event.name == "div" and position == 0):
        if any(t is own for t in others):
            return None
        grown = out.numel() > own.numel() and any(t.numel() == out.numel() for t in others)
        return None if grown else "scale"
    return "scale" if event.name in ("clamp", "where", "masked_fill") else None


def _round(flow, softmax, path, entry, biased, batch, classes) -> Round | None:
    """The pass of routing whose product is the last step of a path, if it is one."""
    event, position = path[-1]
    how = product(event, position)
    others = [k for k in range(len(event.inputs)) if k != position]
    if how is None or not any(flow.from_images(event, k) for k in others):
        return None
    weights, votes = how.weights(event.inputs), how.others(event.inputs)
    try:
        frame = frame_of(weights, votes)
    except RuntimeError:
        return None
    if prod(votes.shape) != prod(frame):
        return None  # something as small as the couplings: it scales them
    total = summed_after(flow, event) if how.kind == "mul" else (event, [], how.summed)
    if total is None:
        return None
    total_event, views, children = total
    roles = _roles(weights, votes, frame, children, batch, classes)
    if roles is None:
        return None
    total_roles = _roles_of_total(event, how, views, total_event, roles)
    goes_in, entry_product, entry_roles, before = event, how, roles, path
    if entry is not None:
        goes_in, before = path[entry].event, path[: entry + 1]
        entry_product = Product("scale", path[entry].position, goes_in.outputs[0].dim())
        entry_roles = _followed(goes_in.outputs[0], path[entry + 1 :], how, roles)
    if total_roles is None or entry_roles is None:
        return None
    logits = _logits(flow, softmax, before, entry_product, entry_roles)
    return Round(
        event, how, roles, total_event, total_roles, goes_in, entry_product, entry_roles, softmax,
        logits, biased,
    )  # fmt: skip


def _logits(flow: Flow, softmax: Event, path, how: Product, roles: Roles):
    """What the softmax is of, before the first view that keeps its axes apart; or None."""
    if softmax.name != "softmax":
        return None
    step = Step(softmax, 0)
    while True:
        path = [step, *path]
        start = step.event.inputs[step.position]
        letters = _followed(start, path, how, roles)
        if letters is not None:
            return step.event, step.position, letters
        source = flow.sources[step.event.index][step.position]
        if source is None or not is_view(flow.events[source[0]]):
            return None
        step = Step(flow.events[source[0]], 0)


def summed_after(flow: Flow, event: Event):
    """The sum that follows a product: its event, the views before it, and the axes of the product.

    None where nothing is summed.
    """
    left = [((event.index, 0), [])]
    while left:
        port, views = left.pop(0)
        for reader in flow.readers.get(port, []):
            if is_view(reader.event):
                left.append(((reader.event.index, 0), [*views, reader]))
            elif reader.event.name in SUMS and (dims := summed_dims(reader.event)):
                along = axes_after(event.outputs[0], views, reader.event.inputs[0])
                axes = tuple(sorted(set().union(*(along[d] for d in dims))))
                if axes:
                    return reader.event, views, axes
    return None


def summed_dims(event: Event) -> tuple[int, ...]:
    """The axes that a sum or mean goes over; () where it goes over all."""
    given = event.kwargs.get("dim", event.kwargs.get("axis"))
    if given is None and len(event.args) > 1:
        given = event.args[1]
    given = () if given is None else (given,) if isinstance(given, int) else tuple(given)
    return tuple(d % event.inputs[0].dim() for d in given)


def _roles(weights, votes, frame, children, batch: int, classes: int) -> Roles | None:
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


def _roles_of_total(event, how, views, total, roles) -> Roles | None:
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


def _followed(start: Tensor, path, how: Product, roles: Roles) -> Roles | None:
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
