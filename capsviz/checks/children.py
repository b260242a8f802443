"""Children of a network: from which features they come, and what becomes of others."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Self

from torch import Tensor

from capsviz.checks.features import last_before
from capsviz.checks.inside import Inside
from capsviz.checks.verdict import UnseenError
from capsviz.wrapping import vectors
from capsviz.wrapping.flow import Flow, Port
from capsviz.wrapping.layers import Layer
from capsviz.wrapping.network import Wrapped
from capsviz.wrapping.recorder import Event, record
from capsviz.wrapping.taps import ChangePass, taps_of


class Children(Inside):
    """Children before the votes; the options are those of `Candidate`."""

    classes_by_length = False  # of one that is looked at in another layer: `by_length` of classes

    @property
    def children_by_hand(self) -> Callable | None:
        """Images -> children (B, I, D), where `wrap` was told where they are."""
        wrapper = self.wrapper
        if not isinstance(wrapper, Wrapped):
            return None
        if isinstance(wrapper.inferred.readers.get("primary", ()), tuple):
            return None
        return lambda images: wrapper.look(images, keep=("primary",))["primary"]

    @cached_property
    def child_port(self) -> tuple[Flow, Port | None]:
        """A recorded pass, and who makes the children in it."""
        images, recording, flow, _ = self.structure
        if (by_hand := self.children_by_hand) is not None:
            recording = record(self.network, lambda: by_hand(images))
            flow = Flow(recording.events, self.inside(images))
            return flow, flow.port(recording.output)
        if not self.has_layer and self.manner == "look":
            return flow, flow.port(recording.output["primary"])
        place = vectors.children(flow, self.last)
        if isinstance(place, str):
            raise UnseenError(f"children are not seen: {place}")
        return flow, flow.sources[place.event.index][place.position]

    @cached_property
    def features(self) -> list[Event]:
        """The last convolutions, products with weights, or normalisations before the children."""
        return last_before(*self.child_port)

    @cached_property
    def mixtures(self) -> list[Event]:
        """The same without normalisations."""
        return last_before(*self.child_port, normalised=False)

    def between(self) -> list[Event]:
        """The events from the features to the children."""
        features, (flow, port) = self.features, self.child_port
        assert port is not None  # what has features is made by something
        before = {port[0]} | flow.ancestors(port[0])
        after = set().union(*(flow.descendants(event.index) for event in features))
        return [event for event in flow.events if event.index in before & after]

    def at(self, layer: Layer) -> Self:
        """As of `Inside`; whether presence is said by length is as the classes say it, too."""
        other = super().at(layer)
        other.classes_by_length = self.by_length if self.of_classes else self.classes_by_length
        return other

    @property
    def primary(self) -> Self:
        """The same network, looked at where children are no parents: at its first routed layer.

        UnseenError where that cannot be read.
        """
        first = self
        while (below := first._below()) is not None:
            if not any(below is layer for layer in first.layers_before):
                raise UnseenError(f"children are the parents of another routed layer: {below}")
            first = first.at(below)
        if first is not self:
            first.__dict__["by_length"] = first.classes_by_length
        return first

    def _below(self) -> Layer | None:
        """The routed layer whose parents the children are, made of its votes; None for none."""
        between = {id(event) for event in self.between()}
        for layer in self.structure.layers:
            if layer is not self.layer and any(id(turn.event) in between for turn in layer.rounds):
                return layer
        return None

    def children(self, change: Callable[[Tensor], Tensor], images: Tensor, events=None) -> Tensor:
        """Children (B, I, D) that become of `change(features)`, in the network's own order.

        `events` take the place of the features.
        """
        events = self.features if events is None else events
        shapes = {tuple(event.outputs[0].shape[1:]) for event in events}

        def own(tensor):  # one line may run all layers of an nn.Sequential
            return change(tensor) if tuple(tensor.shape[1:]) in shapes else tensor

        return self.alteration(events, own, images, "primary", until="primary")[-1]

    def alteration(self, events, change, images, part: str, until=None) -> list[Tensor]:
        """A part of a pass in which `change` is applied to what some events give."""
        by_hand = self.children_by_hand if part == "primary" else None
        taps = []
        if self.has_layer and by_hand is None:
            taps = taps_of(self.wrapped.inferred.readers, (part,))
        mode = ChangePass(self.network, taps, events, change, until)
        output = self.run(mode, images) if by_hand is None else mode.run(lambda: by_hand(images))
        if by_hand is not None:
            mode.readings[part] = [output]
        elif part == "poses" and self.pose_output is not None:
            mode.readings[part] = [self.of_output(output)]
        elif not taps and self.manner == "look":
            mode.readings[part] = [output[part]]
        if not mode.count or part not in mode.readings:
            raise UnseenError(f"{part} cannot be followed in a pass whose features are changed")
        return mode.readings[part]

    @cached_property
    def by_length(self) -> bool:
        """Whether the length of a class's pose stands for its presence: it is squashed to 1."""
        if not self.has_layer:
            return False
        with self.still():
            images = self.images(3)
            large = self.alteration(
                [one.total for one in self.layer.rounds], lambda t: 1e6 * t, images, "poses"
            )[-1].norm(dim=-1)
        return bool((large.isfinite() & (large < 1.01)).all())
