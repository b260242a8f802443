"""The graph of a recorded pass: which event made a tensor, which events read it, and its axes.

A *port* is one output of one event: (event index, output number). *Roles* give each axis a letter:
B image, I child, J parent, E component of a parent's pose, D component of a child's pose, "." an
axis of size 1 or of repeated numbers. Several axes may share I, E or D.
"""

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from capsviz.wrapping.leaves import tensors
from capsviz.wrapping.recorder import Event, memory

Port = tuple[int, int]
Roles = tuple[str, ...]

VIEWS = frozenset(
    ("view", "reshape", "unsqueeze", "squeeze", "transpose", "permute", "expand", "expand_as",
     "contiguous", "flatten", "unflatten", "getitem", "movedim", "moveaxis", "swapaxes",
     "swapdims", "clone", "detach", "to", "float", "double", "type", "type_as", "cuda", "cpu",
     "repeat", "tile", "T", "mT", "H", "data", "narrow", "select", "chunk", "split", "unbind",
     "stack", "cat", "view_as", "reshape_as", "t", "broadcast_to", "repeat_interleave",
     "requires_grad", "dropout", "alpha_dropout", "dropout2d", "dropout3d", "feature_dropout",
     "unfold", "positive", "index_select")
)  # fmt: skip


SUMS = ("sum", "mean", "nansum")
PRODUCTS = ("matmul", "einsum", "linear")


class Step(NamedTuple):
    """One event on a path, and the index of the input through which the path enters it."""

    event: Event
    position: int


class Flow:
    """The graph of recorded events; `derived` holds those that depend on the images."""

    def __init__(self, events: list[Event], inputs: Any):
        self.events = events
        self.sources: list[tuple[Port | None, ...]] = []
        self.readers: dict[Port, list[Step]] = {}
        self.derived: set[int] = set()
        makers: dict[int, Port] = {}
        aliases: dict[tuple, Port] = {}
        given = {id(one) for one in tensors(inputs)}
        wholes = {_alias(one) for one in tensors(inputs)}
        for event in events:
            sources = tuple(makers.get(id(t)) or aliases.get(_alias(t)) for t in event.inputs)
            self.sources.append(sources)
            for position, source in enumerate(sources):
                if source is not None:
                    self.readers.setdefault(source, []).append(Step(event, position))
            if any(
                s[0] in self.derived if s is not None else id(t) in given or _alias(t) in wholes
                for t, s in zip(event.inputs, sources, strict=True)
            ):
                self.derived.add(event.index)
            for number, output in enumerate(event.outputs):
                makers[id(output)] = (event.index, number)
                if output.numel() > 1:
                    aliases[_alias(output)] = (event.index, number)
        self._makers, self._aliases = makers, aliases

    def port(self, tensor: Tensor) -> Port | None:
        """Return the port that made a tensor last; None for weights, constants and images."""
        return self._makers.get(id(tensor)) or self._aliases.get(_alias(tensor))

    def from_images(self, event: Event, position: int) -> bool:
        """Return whether an input depends on the images through an event."""
        source = self.sources[event.index][position]
        return source is not None and source[0] in self.derived

    def ports(self, event: Event) -> list[Port]:
        """Return all outputs of an event."""
        return [(event.index, number) for number in range(len(event.outputs))]

    def steps_from(self, ports: Iterable[Port]) -> Iterator[Step]:
        """Yield the steps, other than views, that read these outputs or views of them."""
        left = list(ports)
        while left:
            for step in self.readers.get(left.pop(), []):
                if is_view(step.event):
                    left += self.ports(step.event)
                else:
                    yield step

    def occurrence(self, event: Event) -> int:
        """Return how often the event's site had run by then, this event included."""
        return sum(one.site == event.site for one in self.events[: event.index + 1])

    def ancestors(self, index: int, until: int | None = None) -> set[int]:
        """Return the events that an event depends on, except through the event `until`."""
        reached, left = set(), [index]
        while left:
            for source in self.sources[left.pop()]:
                if source is not None and source[0] != until and source[0] not in reached:
                    reached.add(source[0])
                    left.append(source[0])
        return reached

    def descendants(self, index: int) -> set[int]:
        """Return the events that depend on an event."""
        reached = {index}
        for event in self.events[index + 1 :]:
            if any(s is not None and s[0] in reached for s in self.sources[event.index]):
                reached.add(event.index)
        return reached - {index}

    def base(self, event: Event, position: int) -> Port | int:
        """Return the port that made an input, before any views; the tensor's id if no event did."""
        tensor, source = event.inputs[position], self.sources[event.index][position]
        while source is not None and is_view(self.events[source[0]]):
            event = self.events[source[0]]
            tensor, source = event.inputs[0], self.sources[event.index][0]
        return id(tensor) if source is None else source

    def maker(self, event: Event, position: int) -> Event | None:
        """Return the event that made an input, before any views; None if no event did."""
        base = self.base(event, position)
        return self.events[base[0]] if isinstance(base, tuple) else None


def is_view(event: Event) -> bool:
    """Return whether an event only rearranges, repeats or drops numbers."""
    by_index = event.name in ("getitem", "index_select") and len(event.inputs) > 1
    return event.name in VIEWS and len(event.inputs) > 0 and not by_index


def axes_after(start: Tensor, steps: Iterable[Step], end: Tensor) -> list[set[int]]:
    """Find the axes of `start` that each axis of `end` comes from.

    Index labels take the same path: `steps` are the views, sums, products and elementwise functions
    (which may broadcast) from `start` to `end`. The set is empty for a new axis or one of repeated
    numbers. It has several members if axes were merged.
    """
    reached: list[set[int]] = [set() for _ in end.shape]
    steps = list(steps)
    read = [event.inputs[position] for event, position in steps]
    path = [  # each step with the index of the output that the next step reads
        (*step, next((k for k, one in enumerate(step.event.outputs) if one is then), 0))
        for step, then in zip(steps, [*read[1:], end], strict=False)
    ]
    for axis, size in enumerate(start.shape):
        if size == 1:
            continue
        label = torch.arange(size, dtype=torch.float32, device=start.device)
        label = label.view([-1 if k == axis else 1 for k in range(start.dim())])
        label = label.expand(start.shape).contiguous()
        for event, position, number in path:
            if is_view(event) or event.name in (*SUMS, *PRODUCTS):
                label = _repeated(event, position, label, number)
            else:
                label = label.expand(event.outputs[0].shape)
        for other in varying(label):
            reached[other].add(axis)
    return reached


def varying(tensor: Tensor) -> set[int]:
    """Return the axes along which a tensor is not constant."""
    return {
        axis
        for axis, size in enumerate(tensor.shape)
        if size > 1 and not torch.equal(tensor.narrow(axis, 0, 1).expand_as(tensor), tensor)
    }


def _repeated(event: Event, position: int, label: Tensor, number: int) -> Tensor:
    """Repeat a view, sum or product with labels in place of one input; return one output."""
    old = event.inputs[position]

    if event.name in ("to", "type", "type_as", "float", "double", "cuda", "cpu", "requires_grad"):
        return label
    others = event.name in ("stack", "cat", *PRODUCTS)  # replaced by ones, so that only labels vary

    def change(leaf):
        if leaf is old:
            return label
        beside = others and isinstance(leaf, Tensor)
        return torch.ones_like(leaf, dtype=label.dtype) if beside else leaf

    makers = event.repeat(change)
    return makers if isinstance(makers, Tensor) else makers[number]


def _alias(tensor: Tensor) -> tuple:
    return (memory(tensor, whole=False), tuple(tensor.shape), tensor.stride(), tensor.dtype)


def arrange(tensor: Tensor, roles: Roles, target: str) -> Tensor:
    """Return the tensor with one axis for each letter of `target`, in that order.

    Axes that share a role are merged. Axes whose role is not in `target` hold repeated numbers, so
    only their first entry is used. A letter without an axis becomes an axis of size 1.
    """
    tensor = tensor.reshape((1,) * (len(roles) - tensor.dim()) + tuple(tensor.shape))
    for axis in reversed(range(len(roles))):
        if roles[axis] not in target:
            tensor = tensor.select(axis, 0)
    kept = [role for role in roles if role in target]
    order = [axis for letter in target for axis, role in enumerate(kept) if role == letter]
    tensor = tensor.permute(order)
    shape, at = [], 0
    for letter in target:
        count = kept.count(letter)
        shape.append(prod(tensor.shape[at : at + count]))
        at += count
    return tensor.reshape(shape)


def embed(tensor: Tensor, source: str, roles: Roles, shape: tuple[int, ...]) -> Tensor:
    """Undo `arrange`: turn axes named by `source` into axes with these roles, others of size 1.

    `shape` gives the sizes of the axes that share a letter.
    """
    split: list[int] = []
    for letter, size in zip(source, tensor.shape, strict=True):
        own = [n for role, n in zip(roles, shape, strict=True) if role == letter]
        split += own if len(own) > 1 else [size] * (len(own) or 1)
    tensor = tensor.reshape(split)
    places = [axis for letter in source for axis, role in enumerate(roles) if role == letter]
    tensor = tensor.permute(sorted(range(len(places)), key=places.__getitem__))
    for axis, role in enumerate(roles):
        if role not in source:
            tensor = tensor.unsqueeze(axis)
    return tensor
