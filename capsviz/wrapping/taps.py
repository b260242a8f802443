"""Run a pass of a network, read named tensors from it, and put others in, without editing it."""

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from capsviz.wrapping.environment import on_stderr, without_cuda
from capsviz.wrapping.example import Example
from capsviz.wrapping.flow import Flow, Roles, arrange, embed
from capsviz.wrapping.layers import Layer, Place, Product, size_of
from capsviz.wrapping.leaves import replaced, tensors
from capsviz.wrapping.recorder import (
    Event,
    Pass,
    Recorder,
    Site,
    Variable,
    inputs_of,
    like_the_last,
    memory,
    name_of,
    written,
)  # fmt: skip

TARGETS = {
    "primary": "BID", "votes": "BIJE", "logits": "BIJ", "couplings": "BIJ", "weights": "BIJ",
    "poses": "BJE",
}  # fmt: skip


def called(network: nn.Module, inputs: Any):
    """Call a network in the usual way; with a tuple, or a dict of its arguments, spread out."""
    if type(inputs) in (tuple, list):
        return network(*inputs)
    if isinstance(inputs, Mapping):
        try:
            inspect.signature(network.forward).bind(**inputs)
        except TypeError:
            return network(inputs)
        return network(**inputs)
    return network(inputs)


class PassEnd(BaseException):
    """Ends a pass of which no more is wanted."""


@dataclass(frozen=True)
class Recipe:
    """How to run a network on images (B, C, H, W) in [0, 1], or on other inputs as rows."""

    call: Callable  # (network, images or inputs) -> output
    image_shape: tuple[int, ...]  # of one image or row
    classes: int
    normalise: tuple[Tensor, Tensor] | None = None  # mean and standard deviation (C, 1, 1)
    smallest: int = 1  # images that it needs at least
    cuda: bool = False  # its code asks for a GPU, but there is none
    aside: bool = False  # send what its code prints to stderr
    pair: str | None = None  # which softmax, as given
    example: Example | None = None  # of inputs that are not images

    def draw(self, count: int, seed: int = 0) -> Tensor:
        """Return random images, or inputs like the example, on the CPU."""
        if self.example is not None:
            return self.example.draw(count, seed)
        generator = torch.Generator().manual_seed(seed)
        return torch.rand(count, *self.image_shape, generator=generator)

    def normalised(self, images: Tensor) -> Any:
        """Return images or rows as the network expects them."""
        if self.example is not None:
            return self.example.nested(images)
        if self.normalise is None:
            return images
        mean, std = (one.to(images) for one in self.normalise)
        return (images - mean) / std

    def run(self, mode: Pass, images: Tensor) -> Any:
        """Return the output for images or rows; None where the mode ends the pass."""
        mode.inputs = self.normalised(images)
        with (
            without_cuda() if self.cuda else nullcontext(),
            on_stderr() if self.aside else nullcontext(),
        ):
            try:
                return mode.run(lambda: self.call(mode.network, mode.inputs))
            except PassEnd:
                return None

    def record(self, network: nn.Module, images: Tensor) -> tuple[Any, Flow]:
        """Return the output for images or rows, and the graph of the pass."""
        recorder = Recorder(network)
        output = self.run(recorder, images)
        return output, Flow(recorder.events, recorder.inputs)


class Tap(NamedTuple):
    """What to read at a site, of the inputs of the event there, or of its outputs."""

    part: str
    site: Site
    read: Callable[[list[Tensor]], Tensor]
    after: bool = False  # it reads the outputs


class Change(NamedTuple):
    """What is called in place of the function of an event, wherever its site runs."""

    site: Site
    call: Callable  # (function, *args, **kwargs) -> result
    shown: Mapping[str, Tensor] = {}  # what taps there read in place of these parts


class Entry(NamedTuple):
    """Where couplings can be put in."""

    site: Site
    product: Product
    roles: Roles

    def put(self, couplings: Tensor) -> Change:
        """Return the change to couplings (B, I, J)."""

        def call(function, *args, **kwargs):
            own = self.product.weights(inputs_of(args, kwargs))
            placed = embed(couplings, "BIJ", self.roles, tuple(own.shape)).to(own)
            result = self.product.with_weights(function, args, kwargs, placed)
            to = written(function, args, kwargs)
            return result if to is None or to is result else to.copy_(result)

        parts = ("couplings",) if self.product.scales else ("couplings", "weights")
        return Change(self.site, call, dict.fromkeys(parts, couplings))


class SoftmaxEntry(NamedTuple):
    """Where couplings can be put in for all that reads them: the output of the softmax."""

    site: Site
    roles: Roles

    def put(self, couplings: Tensor) -> Change:
        """Return the change to couplings (B, I, J)."""

        def call(function, *args, **kwargs):
            own = function(*args, **kwargs)
            placed = embed(couplings, "BIJ", self.roles, tuple(own.shape)).to(own).expand_as(own)
            to = written(function, args, kwargs)
            return placed.contiguous() if to is None else own.copy_(placed)

        return Change(self.site, call)


class ChildEntry(NamedTuple):
    """Where children can be put in: an input of an event."""

    site: Site
    position: int
    roles: Roles
    shape: tuple[int, int]  # (I, D)

    def put(self, children: Tensor) -> Change:
        """Return the change to children (B, I, D)."""

        def call(function, *args, **kwargs):
            own = tensors((args, kwargs))[self.position]
            placed = embed(children, "BID", self.roles, tuple(own.shape)).to(own)
            new = {id(own): placed.expand_as(own).contiguous()}
            return function(*replaced(args, new), **replaced(kwargs, new))

        return Change(self.site, call)


@dataclass(frozen=True)
class Watched:
    """Reads the values of a local variable, in the axes of `target`."""

    variable: Variable
    roles: Roles
    target: str
    unused: int = 0  # values at the end that weigh nothing

    def read(self, heard: Mapping, output: Any) -> list[Tensor]:
        """Return the values that were heard in a pass."""
        same = like_the_last(heard[self.variable])
        same = same[: max(1, len(same) - self.unused)]
        return [arrange(value, self.roles, self.target) for value in same]


@dataclass(frozen=True)
class OfOutput:
    """Reads the output of the network by a function."""

    function: Callable

    def read(self, heard: Mapping, output: Any) -> list[Tensor]:
        """Return what the function makes of an output."""
        return [self.function(output)]


@dataclass(frozen=True)
class OfModule:
    """Reads a tensor that a module returns, (B, ..., n, ...) with n at `axis`."""

    module: nn.Module
    name: str  # of the tensor in its output, as `named_tensors` says it
    axis: int

    def read(self, heard: Mapping, output: Any) -> list[Tensor]:
        """Return outputs of the module with that axis second and the rest flattened."""
        values = [out[self.name] for out in heard[self.module] if self.name in out]
        return [one.movedim(self.axis, 1).flatten(2) for one in values]


Reader = tuple[Tap, ...] | Watched | OfOutput | OfModule  # how a part of a trace is read


def readers_of_layer(layer: Layer) -> tuple[dict[str, Reader], tuple[Entry | SoftmaxEntry, ...]]:
    """Return taps for logits, couplings, weights and votes of all iterations, and their entries."""
    taps: dict[str, dict[Site, Tap]] = {}
    entries: dict[Site, Entry | SoftmaxEntry] = {}

    def tap(part: str, event: Event, read: Callable, roles: Roles) -> None:
        taps.setdefault(part, {})[event.site] = tap_at(part, event, read, roles)

    for turn in layer.rounds:
        tap("couplings", turn.entry, turn.entry_product.weights, turn.entry_roles)
        tap("votes", turn.event, turn.product.others, turn.roles)
        if any(other.scaled for other in layer.rounds):
            tap("weights", turn.event, turn.product.weights, turn.roles)
        if turn.logits is not None:
            event, position, roles = turn.logits
            # not with a class for no parent beside the others
            if size_of("J", event.inputs[position].shape, roles) in (1, layer.parents):
                tap("logits", event, itemgetter(position), roles)
        if turn.softmax is not None and turn.whole is not None:
            entries[turn.softmax.site] = SoftmaxEntry(turn.softmax.site, turn.whole)
        else:
            entries[turn.entry.site] = Entry(turn.entry.site, turn.entry_product, turn.entry_roles)
    return {part: tuple(own.values()) for part, own in taps.items()}, tuple(entries.values())


def tap_at(part: str, event: Event, read: Callable, roles: Roles, after: bool = False) -> Tap:
    """Return a tap for a tensor of these axes that `read` makes of the inputs of an event."""
    target = TARGETS[part]  # a tap holds no event: that would keep the tensors of a whole pass
    return Tap(part, event.site, lambda values: arrange(read(values), roles, target), after)


def tap_of_place(part: str, place: Place) -> Tap:
    """Return a tap for a tensor whose axes are known."""
    number = itemgetter(max(place.position, 0))
    return tap_at(part, place.event, number, place.roles, after=place.position < 0)


class TapPass(Pass):
    """Read what taps name, and make changes; `readings` holds a list for each part, in order.

    `reached` says where changes were made. The pass ends when a part was read `until` times.
    """

    def __init__(
        self,
        network: nn.Module,
        taps: Iterable[Tap],
        changes: Iterable[Change] = (),
        until: tuple[str, int] | None = None,
    ):
        super().__init__(network)
        self.taps, self.changes, self.until = list(taps), list(changes), until
        self.read: Counter[str] = Counter()  # how often
        self.readings: dict[str, list[Tensor]] = {}
        self.reached: set[Site] = set()
        known = {tap.site for tap in self.taps} | {change.site for change in self.changes}
        self.names = {site.name for site in known}
        self.innermost = {site.stack[0] for site in known}

    def dispatch(self, function, args, kwargs):
        """Call the function, or what replaces it here, and read what is wanted."""
        name = name_of(function)
        frame = self.frame() if name in self.names else None
        if frame is None or (id(frame.f_code), frame.f_lasti) not in self.innermost:
            self._keep(written(function, args, kwargs))
            return function(*args, **kwargs)
        here = self.site(name, frame)
        taps = [tap for tap in self.taps if tap.site == here]
        inputs = inputs_of(args, kwargs)
        reads = [(tap.part, tap.read(inputs)) for tap in taps if not tap.after]
        if (own := written(function, args, kwargs)) is not None:
            self._keep(own)
            reads = [(part, value.clone()) for part, value in reads]
        for change in self.changes:
            if change.site == here:
                self.reached.add(here)
                function = partial(change.call, function)
                reads = [(part, change.shown.get(part, value)) for part, value in reads]
        result = function(*args, **kwargs)
        outputs = tensors(result) or inputs[:1]  # of `x[i] = y`, which returns nothing
        reads += [(tap.part, tap.read(outputs)) for tap in taps if tap.after]
        for part, tensor in reads:
            self.read[part] += 1
            values = self.readings.setdefault(part, [])
            if part == "votes":  # the last is enough, and they are large
                values[:] = [tensor]
            else:
                values.append(tensor.clone())
        if self.until is not None and self.read[self.until[0]] >= self.until[1]:
            raise PassEnd
        return result

    def _keep(self, own: Tensor | None) -> None:
        """Copy the votes that were read, if they share the memory of what will be written to."""
        votes = self.readings.get("votes")
        if votes and own is not None and memory(own) == memory(votes[0]):
            votes[:] = [votes[0].clone()]


def of_outputs(events: Iterable[Event], change: Callable[[Tensor], Tensor]) -> list[Change]:
    """Return changes to `change(output)` of events, which are of a recording of the same call."""

    def call(function, *args, **kwargs):
        return change(function(*args, **kwargs))

    return [Change(site, call) for site in {event.site for event in events}]


def taps_of(readers: Mapping[str, Reader], names: Iterable[str]) -> list[Tap]:
    """Return the taps among the readers of some parts."""
    own = [readers[name] for name in readers if name in set(names)]
    return [tap for reader in own if isinstance(reader, tuple) for tap in reader]
