"""What flows where in a recorded pass: who made a tensor, who reads it, and which axis is which.

A *port* is one output of one event: (event index, output number).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from capsviz.wrapping.recorder import Event

Port = tuple[int, int]

VIEWS = frozenset(
    ("view", "reshape", "unsqueeze", "squeeze", "transpose", "permute", "expand", "expand_as",
     "contiguous", "flatten", "unflatten", "getitem", "movedim", "moveaxis", "swapaxes",
     "swapdims", "clone", "detach", "to", "float", "double", "type", "type_as", "cuda", "cpu",
     "repeat", "tile", "T", "mT", "H", "data", "narrow", "select", "chunk", "split", "unbind",
     "stack", "cat", "view_as", "reshape_as", "t", "broadcast_to", "repeat_interleave",
     "requires_grad", "dropout", "alpha_dropout", "dropout2d", "dropout3d", "feature_dropout",
     "unfold", "positive", "index_select")
)  # fmt: skip


class Step(NamedTuple):
    """One event on a path, and which of its inputs the path comes in by."""

    event: Event
    position: int


class Flow:
    """The graph of a recording.

    Parameters
    ----------
    events  of a `Recording`.
    images  the tensor that went in: what comes from it is `derived`.
    """

    def __init__(self, events: list[Event], images: Tensor):
        self.events = events
        self.sources: list[tuple[Port | None, ...]] = []
        self.readers: dict[Port, list[Step]] = {}
        self.derived: set[int] = set()
        makers: dict[int, Port] = {}
        aliases: dict[tuple, Port] = {}
        whole = _alias(images)
        for event in events:
            sources = tuple(makers.get(id(t)) or aliases.get(_alias(t)) for t in event.inputs)
            self.sources.append(sources)
            for position, source in enumerate(sources):
                if source is not None:
                    self.readers.setdefault(source, []).append(Step(event, position))
            if any(
                s[0] in self.derived if s is not None else t is images or _alias(t) == whole
                for t, s in zip(event.inputs, sources, strict=True)
            ):
                self.derived.add(event.index)
            for number, output in enumerate(event.outputs):
                makers[id(output)] = (event.index, number)
                if output.numel() > 1:
                    aliases[_alias(output)] = (event.index, number)
        self._makers, self._aliases = makers, aliases

    def port(self, tensor: Tensor) -> Port | None:
        """Who made a tensor last; None for weights, constants and images."""
        return self._makers.get(id(tensor)) or self._aliases.get(_alias(tensor))

    def tensor(self, port: Port) -> Tensor:
        """The tensor of a port."""
        return self.events[port[0]].outputs[port[1]]

    def from_images(self, event: Event, position: int) -> bool:
        """Whether an input depends on the images through an event."""
        source = self.sources[event.index][position]
        return source is not None and source[0] in self.derived

    def ports(self, event: Event) -> list[Port]:
        """All outputs of an event."""
        return [(event.index, number) for number in range(len(event.outputs))]

    def ancestors(self, index: int) -> set[int]:
        """Events that an event depends on."""
        reached, left = set(), [index]
        while left:
            for source in self.sources[left.pop()]:
                if source is not None and source[0] not in reached:
                    reached.add(source[0])
                    left.append(source[0])
        return reached

    def descendants(self, index: int) -> set[int]:
        """Events that depend on an event."""
        reached = {index}
        for event in self.events[index + 1 :]:
            if any(s is not None and s[0] in reached for s in self.sources[event.index]):
                reached.add(event.index)
        return reached - {index}

    def back_through_views(self, event: Event, position: int) -> Iterator[Tensor]:
        """An input, and what it was before each view, squeeze or copy, nearest first."""
        tensor, source = event.inputs[position], self.sources[event.index][position]
        yield tensor
        while source is not None and is_view(self.events[source[0]]):
            event = self.events[source[0]]
            tensor, source = event.inputs[0], self.sources[event.index][0]
            yield tensor

    def base(self, event: Event, position: int) -> int:
        """What an input is once views are undone: equal for two that show the same numbers."""
        *_, last = self.back_through_views(event, position)
        port = self.port(last)
        return id(last) if port is None else id(self.tensor(port))


def is_view(event: Event) -> bool:
    """Whether an event only rearranges, repeats or leaves out numbers."""
    if event.name not in VIEWS or not event.inputs:
        return False
    if event.name in ("getitem", "index_select"):
        return len(event.inputs) == 1
    return True


def axes_after(start: Tensor, steps: Iterable[Step], end: Tensor) -> list[set[int]]:
    """Which axes of `start` each axis of `end` runs along, by sending labels the same way.

    Parameters
    ----------
    start  what the first step reads.
    steps  views, and elementwise functions that may broadcast.
    end    what the last step gives.

    Returns
    -------
    For each axis of `end` a set: empty where the numbers of `start` were repeated or the axis is
    new, two or more where axes were merged.
    """
    reached: list[set[int]] = [set() for _ in end.shape]
    steps = list(steps)
    read = [event.inputs[position] for event, position in steps]
    path = [  # each step with the number of the output that the next one reads
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
            if is_view(event):
                label = _through_view(event, position, label, number)
            else:
                label = label.expand(event.outputs[0].shape)
        for other in varying(label):
            reached[other].add(axis)
    return reached


def varying(tensor: Tensor) -> set[int]:
    """The axes along which the numbers of a tensor are not all repeated."""
    return {
        axis
        for axis, size in enumerate(tensor.shape)
        if size > 1 and not torch.equal(tensor.narrow(axis, 0, 1).expand_as(tensor), tensor)
    }


def _through_view(event: Event, position: int, label: Tensor, number: int) -> Tensor:
    """An output of a view, by its number, of labels in place of one input."""
    old = event.inputs[position]

    if event.name in ("to", "type", "type_as", "float", "double", "cuda", "cpu", "requires_grad"):
        return label
    if event.name in ("data", "T", "mT", "H"):
        return getattr(label, event.name)
    joins = event.name in ("stack", "cat")  # beside others, which vary along no axis

    def change(leaf):
        if leaf is old:
            return label
        beside = joins and isinstance(leaf, Tensor)
        return torch.zeros_like(leaf, dtype=label.dtype) if beside else leaf

    makers = event.repeat(change)
    return makers if isinstance(makers, Tensor) else makers[number]


def storage(tensor: Tensor) -> tuple[str, int]:
    """Where its numbers lie; who it is, where that cannot be said, as inside of `vmap`."""
    try:
        return "at", tensor.data_ptr()
    except RuntimeError:
        return "of", id(tensor)


def _alias(tensor: Tensor) -> tuple:
    return (storage(tensor), tuple(tensor.shape), tensor.stride(), tensor.dtype)
