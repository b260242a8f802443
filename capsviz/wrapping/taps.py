"""Run a pass of a network, read tensors from it and replace tensors in it, without editing it."""

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
    """Call a network with its inputs; a tuple, list or dict of arguments is unpacked."""
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
    """Raised to end a pass early, when everything needed has been read."""


@dataclass(frozen=True)
class Recipe:
    """How to run a network on images (B, C, H, W) in [0, 1], or on other inputs as rows."""

    call: Callable  # (network, images or inputs) -> output
    image_shape: tuple[int, ...]  # shape of one image or row
    classes: int
    normalise: tuple[Tensor, Tensor] | None = None  # mean and standard deviation (C, 1, 1)
    smallest: int = 1  # smallest batch that the network accepts
    cuda: bool = False  # its code asks for a GPU, but there is none
    aside: bool = False  # send what its code prints to stderr
    pair: str | None = None  # the user's choice among several softmaxes
    example: Example | None = None  # example of inputs that are not images

    def draw(self, count: int, seed: int = 0) -> Tensor:
        """Return random images, or inputs like the example, on the CPU."""
        if self.example is not None:
            return self.example.draw(count, seed)
        generator = torch.Generator().manual_seed(seed)
        return torch.rand(count, *self.image_shape, generator=generator)

    def normalised(self, images: Tensor) -> Any:
        """Return images normalised, or rows in the form of the example, as the network expects."""
        if self.example is not None:
            return self.example.nested(images)
        if self.normalise is None:
            return images
        mean, std = (one.to(images) for one in self.normalise)
        return (images - mean) / std

    def run(self, mode: Pass, images: Tensor) -> Any:
        """Return the output for images or rows; None if the mode ends the pass early."""
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
    """A function that reads a part of a trace from the inputs or the outputs of an event."""

    part: str
    site: Site
    read: Callable[[list[Tensor]], Tensor]
    after: bool = False  # read the outputs, not the inputs


class Change(NamedTuple):
    """A function that replaces the torch function called at a site."""

    site: Site
    call: Callable  # (function, *args, **kwargs) -> result
    shown: Mapping[str, Tensor] = {}  # by part: the values that taps at the site give instead


class Entry(NamedTuple):
    """A product with the votes in which the couplings can be replaced."""

    site: Site
    product: Product
    roles: Roles

    def put(self, couplings: Tensor) -> Change:
        """Return a change that puts couplings (B, I, J) in."""

        def call(function, *args, **kwargs):
            own = self.product.weights(inputs_of(args, kwargs))
            placed = embed(couplings, "BIJ", self.roles, tuple(own.shape)).to(own)
            result = self.product.with_weights(function, args, kwargs, placed)
            to = written(function, args, kwargs)
            return result if to is None or to is result else to.copy_(result)

        parts = ("couplings",) if self.product.scales else ("couplings", "weights")
        return Change(self.site, call, dict.fromkeys(parts, couplings))


class SoftmaxEntry(NamedTuple):
    """A softmax whose output can be replaced by other couplings, for everything that reads it."""

    site: Site
    roles: Roles

    def put(self, couplings: Tensor) -> Change:
        """Return a change that puts couplings (B, I, J) in."""

        def call(function, *args, **kwargs):
            own = function(*args, **kwargs)
            placed = embed(couplings, "BIJ", self.roles, tuple(own.shape)).to(own).expand_as(own)
            to = written(function, args, kwargs)
            return placed.contiguous() if to is None else own.copy_(placed)

        return Change(self.site, call)


class ChildEntry(NamedTuple):
    """An input of an event at which the children can be replaced."""

    site: Site
    position: int
    roles: Roles
    shape: tuple[int, int]  # (I, D)

    def put(self, children: Tensor) -> Change:
        """Return a change that puts children (B, I, D) in."""

        def call(function, *args, **kwargs):
            own = tensors((args, kwargs))[self.position]
            placed = embed(children, "BID", self.roles, tuple(own.shape)).to(own)
            new = {id(own): placed.expand_as(own).contiguous()}
            return function(*replaced(args, new), **replaced(kwargs, new))

        return Change(self.site, call)


@dataclass(frozen=True)
class Watched:
    """Reads the values of a local variable, arranged in the axes of `target`."""

    variable: Variable
    roles: Roles
    target: str
    unused: int = 0  # number of last values that weigh no votes

    def read(self, heard: Mapping, output: Any) -> list[Tensor]:
        """Return the values of the variable in a pass; `heard` holds them by variable."""
        same = like_the_last(heard[self.variable])
        same = same[: max(1, len(same) - self.unused)]
        return [arrange(value, self.roles, self.target) for value in same]


@dataclass(frozen=True)
class OfOutput:
    """Reads a part by a function of the network's output."""

    function: Callable

    def read(self, heard: Mapping, output: Any) -> list[Tensor]:
        """Return the function's result for an output."""
        return [self.function(output)]


@dataclass(frozen=True)
class OfModule:
    """Reads a tensor (B, ..., n, ...) that a module returns; `axis` is the one of capsules, n."""

    module: nn.Module
    name: str  # of the tensor in its output, as from `named_tensors`
    axis: int

    def read(self, heard: Mapping, output: Any) -> list[Tensor]:
        """Return the module's outputs as (B, n, ·)."""
        values = [out[self.name] for out in heard[self.module] if self.name in out]
        return [one.movedim(self.axis, 1).flatten(2) for one in values]


Reader = tuple[Tap, ...] | Watched | OfOutput | OfModule  # how a part of a trace is read


def readers_of_layer(layer: Layer) -> tuple[dict[str, Reader], tuple[Entry | SoftmaxEntry, ...]]:
    """Return taps for logits, couplings, weights and votes, and entries for the couplings.

    They cover all routing iterations of the layer.
    """
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
            # logits with one more class, "no parent", are left out
            if size_of("J", event.inputs[position].shape, roles) in (1, layer.parents):
                tap("logits", event, itemgetter(position), roles)
        if turn.softmax is not None and turn.whole is not None:
            entries[turn.softmax.site] = SoftmaxEntry(turn.softmax.site, turn.whole)
        else:
            entries[turn.entry.site] = Entry(turn.entry.site, turn.entry_product, turn.entry_roles)
    return {part: tuple(own.values()) for part, own in taps.items()}, tuple(entries.values())


def tap_at(part: str, event: Event, read: Callable, roles: Roles, after: bool = False) -> Tap:
    """Return a tap that arranges a tensor of axes `roles`, read by `read`, as its part needs.

    `read` takes the inputs of the event, or its outputs with after=True.
    """
    target = TARGETS[part]  # a tap must not hold the event, with the tensors of a whole pass
    return Tap(part, event.site, lambda values: arrange(read(values), roles, target), after)


def tap_of_place(part: str, place: Place) -> Tap:
    """Return a tap for the tensor at a place."""
    number = itemgetter(max(place.position, 0))
    return tap_at(part, place.event, number, place.roles, after=place.position < 0)


class TapPass(Pass):
    """Run taps and changes in a pass.

    `readings` holds, for each part, the tensors that its taps read, in order; of votes only the
    last. `reached` holds the sites at which changes were made. If `until` is (part, n), the pass
    ends when that part has been read n times.
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
        self.read: Counter[str] = Counter()  # number of readings of each part
        self.readings: dict[str, list[Tensor]] = {}
        self.reached: set[Site] = set()
        known = {tap.site for tap in self.taps} | {change.site for change in self.changes}
        self.names = {site.name for site in known}
        self.innermost = {site.stack[0] for site in known}

    def dispatch(self, function, args, kwargs):
        """Call the function, or its change at this site, and run the taps of the site."""
        name = name_of(function)
        frame = self.frame() if name in self.names else None
        if frame is None or (id(frame.f_code), frame.f_lasti) not in self.innermost:
            self._protect_votes(written(function, args, kwargs))
            return function(*args, **kwargs)
        here = self.site(name, frame)
        taps = [tap for tap in self.taps if tap.site == here]
        inputs = inputs_of(args, kwargs)
        reads = [(tap.part, tap.read(inputs)) for tap in taps if not tap.after]
        if (own := written(function, args, kwargs)) is not None:
            self._protect_votes(own)
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
            if part == "votes":  # large, and the last ones suffice
                values[:] = [tensor]
            else:
                values.append(tensor.clone())
        if self.until is not None and self.read[self.until[0]] >= self.until[1]:
            raise PassEnd
        return result

    def _protect_votes(self, own: Tensor | None) -> None:
        """Copy the votes that were read, if a function is about to write to their memory."""
        votes = self.readings.get("votes")
        if votes and own is not None and memory(own) == memory(votes[0]):
            votes[:] = [votes[0].clone()]


def of_outputs(events: Iterable[Event], change: Callable[[Tensor], Tensor]) -> list[Change]:
    """Return changes that apply `change` to the outputs of these recorded events."""

    def call(function, *args, **kwargs):
        return change(function(*args, **kwargs))

    return [Change(site, call) for site in {event.site for event in events}]


def taps_of(readers: Mapping[str, Reader], names: Iterable[str]) -> list[Tap]:
    """Return the taps among the readers of the named parts."""
    own = [readers[name] for name in readers if name in set(names)]
    return [tap for reader in own if isinstance(reader, tuple) for tap in reader]
