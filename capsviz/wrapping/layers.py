"""Capsule layers in a recorded pass: rounds of routing over the same votes."""

from __future__ import annotations

from dataclasses import dataclass, field

from capsviz.wrapping.flow import Flow, is_view, varying
from capsviz.wrapping.products import Product
from capsviz.wrapping.recorder import Event
from capsviz.wrapping.rounds import Round, normalises, summed_after, weighed


@dataclass
class Layer:
    """Passes of routing over the same votes."""

    module: str
    children: int
    parents: int
    rounds: list[Round] = field(default_factory=list)
    apart: Event | None = None  # a softmax whose couplings differ between the numbers of a pose

    @property
    def place(self) -> str:
        """Module, file and line of its softmax."""
        last = next((r for r in reversed(self.rounds) if r.softmax), self.rounds[-1])
        return (last.softmax or last.event).place

    @property
    def said_apart(self) -> str:
        """In words, of a layer that has such a softmax."""
        assert self.apart is not None
        return (
            f"couplings differ between the numbers of a pose in {self.apart.place}: a child has no "
            "one coupling to a parent"
        )

    def __str__(self):
        count = len(self.rounds)
        return (
            f"{self.children} children to {self.parents} parents in {self.place}, "
            f"{count} pass{'es' if count > 1 else ''}"
        )


def layers(flow: Flow, batch: int, classes: int) -> list[Layer]:
    """All layers in which a softmax weighs votes, in the order of their last product.

    Parameters
    ----------
    flow     of a recorded pass.
    batch    images in it: the axis of this length is theirs.
    classes  the number of parents, where couplings that are all equal do not tell their axis.
    """
    collected: list[Layer] = []
    refused = []
    for event in flow.events:
        if normalises(event, flow):
            turn = weighed(flow, event, batch, classes)
            if turn is not None:
                _put(flow, collected, turn)
            else:
                refused.append(event)
    known = {turn.event.index for layer in collected for turn in layer.rounds}
    for layer in collected:
        layer.apart = next((one for one in refused if _is_apart(flow, layer, one)), None)
        _add_unweighed(flow, layer, known)
        layer.rounds.sort(key=lambda turn: turn.event.index)
    return sorted(collected, key=lambda layer: layer.rounds[-1].event.index)


def _put(flow: Flow, collected: list[Layer], turn: Round) -> None:
    """Add a pass to the layer whose votes it weighs, or make a new one of it."""
    for layer in collected:
        last = layer.rounds[-1]
        if any(other.event is turn.event for other in layer.rounds):
            return
        own = layer.module == turn.event.site.module
        alike = (layer.children, layer.parents) == (turn.count("I"), turn.count("J"))
        if alike and last.product.kind == turn.product.kind:
            shared = votes_base(flow, last) == votes_base(flow, turn)
            after = last.total.index in flow.ancestors(turn.event.index)
            # a module of its own for each pass: of the same votes, one after the other
            if (shared and (own or after)) or (
                own and after and not _votes_of(flow, turn, last.total)
            ):
                layer.rounds.append(turn)
                return
    module = turn.event.site.module
    collected.append(Layer(module, turn.count("I"), turn.count("J"), [turn]))


def _votes_of(flow: Flow, turn: Round, total: Event) -> bool:
    """Whether the votes of a pass are made of a sum: of another layer, called before."""
    source = flow.sources[turn.event.index][voting(flow, turn.event, turn.product)]
    return source is not None and total.index in {source[0], *flow.ancestors(source[0])}


def votes_base(flow: Flow, turn: Round) -> int:
    """What the votes of a pass are once views are undone."""
    return flow.base(turn.event, voting(flow, turn.event, turn.product))


def voting(flow: Flow, event: Event, how: Product) -> int:
    """Which input of a product holds votes, or the children of which an einsum makes them."""
    others = [k for k in range(len(event.inputs)) if k != how.position]
    return next((k for k in others if flow.from_images(event, k)), others[0])


def _is_apart(flow: Flow, layer: Layer, softmax: Event) -> bool:
    """Whether a softmax weighs the votes of a layer by numbers that differ along a pose."""
    first, ports = layer.rounds[0], flow.ports(softmax)
    base = votes_base(flow, first)
    while ports:
        for event, position in flow.readers.get(ports.pop(), []):
            if is_view(event):
                ports += flow.ports(event)
                continue
            weights = event.inputs[position]
            if tuple(weights.shape) == first.frame and any(
                flow.base(event, k) == base for k in range(len(event.inputs)) if k != position
            ):
                return any(first.roles[axis] == "E" for axis in varying(weights))
    return False


def _add_unweighed(flow: Flow, layer: Layer, known: set[int]) -> None:
    """Passes at the same sites whose couplings come from no softmax, as the first one of EM.

    `known` are the products of all layers; it grows.
    """
    for turn in list(layer.rounds):
        for event in flow.events:
            if event.index in known or event.site != turn.event.site:
                continue
            earlier = [e for e in flow.events[: event.index + 1] if e.site == turn.entry.site]
            after = summed_after(flow, event) if turn.product.kind == "mul" else (event,)
            if earlier and after is not None:
                known.add(event.index)
                layer.rounds.append(
                    Round(
                        event, turn.product, turn.roles, after[0], turn.total_roles, earlier[-1],
                        turn.entry_product, turn.entry_roles, None, None, turn.biased,
                    )
                )  # fmt: skip
