"""Take named tensors from a pass at known sites, and put other couplings in, without editing it."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from torch import Tensor, nn

from capsviz.wrapping.layers import Layer
from capsviz.wrapping.layout import Roles, arrange, embed
from capsviz.wrapping.leaves import replaced, tensors
from capsviz.wrapping.products import Product
from capsviz.wrapping.recorder import Event, Pass, Site, name_of
from capsviz.wrapping.vectors import Place


class Tap(NamedTuple):
    """What to take at a site: `read` gets the inputs and the outputs of the event there."""

    part: str
    site: Site
    name: str  # of the function
    read: Callable[[list[Tensor], list[Tensor]], Tensor]
    after: bool = False  # it reads the outputs


class Entry(NamedTuple):
    """Where couplings can be put in."""

    site: Site
    name: str
    product: Product
    roles: Roles


class ChildEntry(NamedTuple):
    """Where children can be put in: an input of an event."""

    site: Site
    name: str
    position: int
    roles: Roles


def taps_of_layer(layer: Layer) -> tuple[list[Tap], list[Entry]]:
    """Taps for logits, couplings, weights and votes of all passes of a layer, and their entries."""
    taps, entries = {}, {}
    for turn in layer.rounds:
        reads = [
            ("couplings", turn.entry, _weights(turn.entry_product, turn.entry_roles)),
            ("votes", turn.event, _votes(turn.product, turn.roles)),
        ]
        if any(other.scaled for other in layer.rounds):
            reads.append(("weights", turn.event, _weights(turn.product, turn.roles)))
        if turn.logits is not None:
            event, position, roles = turn.logits
            shape = zip(event.inputs[position].shape, roles, strict=True)
            if prod(n for n, role in shape if role == "J") in (1, layer.parents):  # none beside
                reads.append(("logits", event, _input(position, roles, "BIJ")))
        for part, event, read in reads:
            taps[part, event.site] = _tap(part, event, read)
        entries[turn.entry.site] = Entry(
            turn.entry.site, turn.entry.name, turn.entry_product, turn.entry_roles
        )
    return list(taps.values()), list(entries.values())


def tap_of_place(part: str, place: Place, target: str) -> Tap:
    """A tap for a tensor whose axes are known."""

    if place.position >= 0:
        return _tap(part, place.event, _input(place.position, place.roles, target))
    roles = place.roles

    def read(inputs, outputs):
        return arrange(outputs[0], roles, target, {}).clone()  # a mask may yet be put in in place

    return _tap(part, place.event, read)._replace(after=True)


# What is read holds roles and products, not events: those keep the tensors of a whole pass.


def _weights(product: Product, roles: Roles):
    return lambda inputs, outputs: arrange(product.weights(inputs), roles, "BIJ", {})


def _votes(product: Product, roles: Roles):
    return lambda inputs, outputs: arrange(product.others(inputs), roles, "BIJE", {})


def _input(position: int, roles: Roles, target: str):
    return lambda inputs, outputs: arrange(inputs[position], roles, target, {})


def _tap(part: str, event: Event, read) -> Tap:
    return Tap(part, event.site, event.name, read)


class PassEnd(BaseException):
    """Ends a pass of which no more is wanted."""


class TapPass(Pass):
    """A mode that takes what its taps name; `readings` holds a list for each part, in order.

    With `until`, the pass ends by `PassEnd` when that part is taken for the first time.
    """

    def __init__(
        self,
        network: nn.Module,
        taps: list[Tap],
        entries: list[Entry] = (),
        couplings: Tensor | None = None,
        until: str | None = None,
        children: tuple[ChildEntry, Tensor] | None = None,
    ):
        super().__init__(network)
        self.children, self.puts = children, 0
        self.until = until
        self.couplings, self.readings, self.exchanges = couplings, {}, 0
        self.taps: dict[Site, list[Tap]] = {}
        self.entries = {entry.site: entry for entry in entries} if couplings is not None else {}
        for tap in taps:
            self.taps.setdefault(tap.site, []).append(tap)
        known = [*taps, *self.entries.values(), *([] if children is None else children[:1])]
        self.names = {one.name for one in known}
        self.innermost = {one.site.stack[0] for one in known}

    def dispatch(self, function, args, kwargs):
        """Call the function, with other couplings where they enter, and take what is wanted."""
        name = name_of(function)
        if name not in self.names:
            return function(*args, **kwargs)
        frame = self.frame()
        if (id(frame.f_code), frame.f_lasti) not in self.innermost:
            return function(*args, **kwargs)
        site = self.site(frame)
        taps = [tap for tap in self.taps.get(site, ()) if tap.name == name]
        if self.children is not None and (site, name) == self.children[0][:2]:
            args, kwargs = self._with_children(args, kwargs)
        inputs = tensors((args, kwargs))
        reads = [(tap.part, tap.read(inputs, ())) for tap in taps if not tap.after]
        entry = self.entries.get(site)
        if entry is None or entry.name != name:
            result = function(*args, **kwargs)
        else:
            result = self._put_in(entry, inputs, function, args, kwargs)
            own = ("couplings",) if entry.product.kind == "scale" else ("couplings", "weights")
            reads = [(part, self.couplings if part in own else t) for part, t in reads]
        outputs = tensors(result)
        reads += [(tap.part, tap.read((), outputs)) for tap in taps if tap.after]
        for part, tensor in reads:
            values = self.readings.setdefault(part, [])
            if part == "votes":  # the last is enough, and they are large
                values[:] = [tensor]
            else:
                values.append(tensor.clone())
        if self.until in self.readings:
            raise PassEnd
        return result

    def _with_children(self, args, kwargs):
        entry, children = self.children
        own = tensors((args, kwargs))[entry.position]
        placed = embed(children, "BID", entry.roles, tuple(own.shape)).to(own)
        self.puts += 1
        return replaced((args, kwargs), {id(own): placed.expand_as(own).contiguous()})

    def _put_in(self, entry: Entry, inputs, function, args, kwargs):
        own = entry.product.weights(inputs)
        shape = (1,) * (len(entry.roles) - own.dim()) + tuple(own.shape)
        placed = embed(self.couplings, "BIJ", entry.roles, shape)
        self.exchanges += 1
        return entry.product.with_weights(function, args, kwargs, placed.to(own))
