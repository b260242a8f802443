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

from capsviz.wrapping.flow import Flow, Step, axes_after, is_view
from capsviz.wrapping.layout import Roles
from capsviz.wrapping.products import Product, product
from capsviz.wrapping.recorder import Event
from capsviz.wrapping.roles import followed, roles_in, roles_of_total, summed_dims

SUMS = ("sum", "mean", "nansum")
SMALLEST = ("add", "clamp", "clamp_min")


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
    """A softmax, the exponential of its logarithm, or exponentials divided by their sum."""
    if event.name in ("softmax", "gumbel_softmax", "softmin"):
        return True
    if event.name == "exp":
        return _logarithm(event, flow) is not None
    if event.name != "div" or len(event.inputs) != 2:
        return False
    top, bottom = (_unviewed(flow, event, k) for k in (0, 1))
    while bottom and bottom.name in SMALLEST and len(bottom.inputs) == 1:  # what keeps it from 0
        bottom = _unviewed(flow, bottom, 0)
    if not top or not bottom or top.name != "exp" or bottom.name not in SUMS:
        return False
    whole = _unviewed(flow, bottom, 0)
    return whole is top or (
        whole is not None and whole.name == "exp" and flow.base(whole, 0) == flow.base(top, 0)
    )


def _unviewed(flow: Flow, event: Event, position: int) -> Event | None:
    """The event that gives an input, views left aside."""
    source = flow.sources[event.index][position]
    while source is not None and is_view(flow.events[source[0]]):
        source = flow.sources[source[0]][0]
    return None if source is None else flow.events[source[0]]


def _logarithm(event: Event, flow: Flow) -> Step | None:
    """The logits of a softmax whose logarithm an exponential is of: x - logsumexp(x) is one too."""
    source = flow.sources[event.index][0]
    inner = None if source is None else flow.events[source[0]]
    if inner is not None and inner.name == "log_softmax":
        return Step(inner, 0)
    if inner is None or inner.name != "sub" or len(inner.inputs) != 2:
        return None
    total = _unviewed(flow, inner, 1)
    alike = total is not None and total.name == "logsumexp"
    return Step(inner, 0) if alike and flow.base(total, 0) == flow.base(inner, 0) else None


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
    roles = roles_in(weights, votes, frame, children, batch, classes)
    if roles is None:
        return None
    total_roles = roles_of_total(event, how, views, total_event, roles)
    goes_in, entry_product, entry_roles, before = event, how, roles, path
    if entry is not None:
        goes_in, before = path[entry].event, path[: entry + 1]
        entry_product = Product("scale", path[entry].position, goes_in.outputs[0].dim())
        entry_roles = followed(goes_in.outputs[0], path[entry + 1 :], how, roles)
    if total_roles is None or entry_roles is None:
        return None
    logits = _logits(flow, softmax, before, entry_product, entry_roles)
    return Round(
        event, how, roles, total_event, total_roles, goes_in, entry_product, entry_roles, softmax,
        logits, biased,
    )  # fmt: skip


def _logits(flow: Flow, softmax: Event, path, how: Product, roles: Roles):
    """What the softmax is of, before the first view that keeps its axes apart; or None."""
    step = Step(softmax, 0)
    if softmax.name == "exp":
        path, step = [step, *path], _logarithm(softmax, flow)
    elif softmax.name != "softmax":
        return None
    while True:
        path = [step, *path]
        start = step.event.inputs[step.position]
        letters = followed(start, path, how, roles)
        if letters is not None:
            return step.event, step.position, letters
        source = flow.sources[step.event.index][step.position]
        if source is None or not is_view(flow.events[source[0]]):
            return None
        step = Step(flow.events[source[0]], 0)


def summed_after(flow: Flow, event: Event):
    """The sum that follows a product: its event, the views before it, and the axes of the product.

    None where nothing is summed, or only a sum reads the sum, so that children are summed in parts.
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
                    parts = _summed_again(flow, reader.event)
                    return None if parts else (reader.event, views, axes)
    return None


def _summed_again(flow: Flow, event: Event) -> bool:
    """Whether sums alone read what an event gives."""
    left, names = [(event.index, 0)], []
    while left:
        for reader in flow.readers.get(left.pop(), []):
            if is_view(reader.event):
                left.append((reader.event.index, 0))
            else:
                names.append(reader.event.name)
    return bool(names) and set(names) <= set(SUMS)
