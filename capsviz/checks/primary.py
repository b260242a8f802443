"""The primary capsules, which a routed layer takes: from which features, and of other features."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import cached_property

import torch
from torch import Tensor

from capsviz.checks.capsules import Capsules
from capsviz.checks.verdict import SkippedError
from capsviz.wrapping import vectors
from capsviz.wrapping.flow import Flow, Port, is_view
from capsviz.wrapping.layers import Layer
from capsviz.wrapping.network import Wrapped
from capsviz.wrapping.recorder import Event, record

MIXING = frozenset(
    ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "linear", "addmm",
     "baddbmm", "bilinear", "avg_pool2d", "max_pool2d", "adaptive_avg_pool2d",
     "adaptive_max_pool2d", "lp_pool2d", "interpolate", "upsample")
)  # fmt: skip
NORMALISING = frozenset(("batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm"))

PRODUCTS = ("matmul", "rmatmul", "einsum")  # of which one factor is not made of the images
GROWTH = 10  # of lengths, if features are a hundred times as large

Change = Callable[[Tensor], Tensor]


class PrimaryCapsules:
    """The capsules whose votes a routed layer weighs."""

    def __init__(self, above: Capsules):
        self.above, self.caller = above, above.caller

    @cached_property
    def by_hand(self) -> Callable | None:
        """Images -> capsules (B, I, D), if `wrap` was given `children=`."""
        wrapper = self.caller.wrapper
        if not isinstance(wrapper, Wrapped):
            return None
        if isinstance(wrapper.inferred.readers.get("primary", ()), tuple):
            return None
        return lambda images: wrapper.look(images, keep=("primary",))["primary"]

    @cached_property
    def source(self) -> tuple[Flow, Port | None]:
        """A recorded pass, and the event that makes the capsules in it."""
        images, output, flow, *_ = self.caller.recorded
        if (by_hand := self.by_hand) is not None:
            recording = record(self.caller.network, lambda: by_hand(images))
            flow = Flow(recording.events, images)
            return flow, flow.port(recording.output)
        if not self.above.routed and self.caller.way == "look":
            return flow, flow.port(output["primary"])
        place = vectors.children(flow, self.above.rounds[-1])
        if isinstance(place, str):
            raise SkippedError(f"primary capsules are not found: {place}")
        return flow, flow.sources[place.event.index][place.position]

    @cached_property
    def features(self) -> list[Event]:
        """The last convolutions, products with weights, or normalisations before the capsules."""
        return last_before(*self.source)

    def between(self) -> list[Event]:
        """Return the events from the features to the capsules."""
        features, (flow, port) = self.features, self.source
        assert port is not None  # what has features is made by an event
        before = {port[0]} | flow.ancestors(port[0])
        after = set().union(*(flow.descendants(event.index) for event in features))
        return [event for event in flow.events if event.index in before & after]

    def below(self) -> Layer | None:
        """Return the routed layer that makes these capsules; None for primary capsules proper."""
        between = {id(event) for event in self.between()}
        own = self.above.layer if self.above.routed else None
        others = (one for one in self.caller.recorded.others if one is not own)
        made = (one for one in others if any(id(turn.event) in between for turn in one.rounds))
        return next(made, None)

    def of(self, change: Change, images: Tensor, events: list[Event] | None = None) -> Tensor:
        """Return the capsules (B, I, D) made of `change(features)`, in the network's own order.

        With `events`, their results are changed in place of the features.
        """
        events = self.features if events is None else events
        shapes = {tuple(event.outputs[0].shape[1:]) for event in events}

        def own(tensor):  # one line may run all layers of an nn.Sequential
            return change(tensor) if tuple(tensor.shape[1:]) in shapes else tensor

        taps = self.above.taps("primary") if self.above.routed and self.by_hand is None else []
        output, readings = self.caller.changed(events, own, images, taps, "primary", self.by_hand)
        if self.by_hand is not None:
            return output
        return readings["primary"][-1] if taps else output["primary"]

    def lengths(self, scale: float, events: list[Event] | None = None) -> Tensor:
        """Return lengths (B, I) for random features, or results of `events`, of that size."""
        return self.of(noise(scale, seed=2), self.caller.images(7), events).norm(dim=-1)

    @cached_property
    def large_capsules(self) -> Tensor:
        """Capsules (B, I, D) for large features."""
        return self.of(noise(1e4, seed=2), self.caller.images(7))

    @property
    def large(self) -> Tensor:
        """Lengths (B, I) for large features."""
        return self.large_capsules.norm(dim=-1)

    @cached_property
    def growth(self) -> float:
        """How much longer they are for features a hundred times as large as those."""
        return self._growth(self.large, self.lengths(1e6))

    def squashed_earlier(self) -> bool:
        """Whether lengths stay the same however large is what the features are made of."""
        flow, _ = self.source
        ports = {port for e in self.features for port in flow.sources[e.index] if port is not None}
        try:
            events = [event for port in ports for event in last_before(flow, port)]
            lengths = [self.lengths(scale, events) for scale in (1e4, 1e6)]
        except SkippedError:
            return False
        return self._growth(*lengths) < GROWTH

    def _growth(self, first: Tensor, second: Tensor) -> float:
        if not (first.isfinite().all() and second.isfinite().all()):
            raise SkippedError("primary capsules are not finite for large features")
        return float(second.max() / first.max().clamp_min(1e-30))


def noise(scale: float = 1.0, *, seed: int) -> Change:
    """Return a change to normal noise; with each call other noise."""
    generator = torch.Generator().manual_seed(seed)
    return lambda tensor: scale * torch.randn(tensor.shape, generator=generator).to(tensor)


def last_before(
    flow: Flow, port: Port | None, normalised: bool = True, products: Container[str] = PRODUCTS
) -> list[Event]:
    """Return the last convolutions, pools, products with weights or normalisations before a tensor.

    Not a normalisation that only views follow: it stands in for the squash.
    """
    queue, visited, events = [(port, True)], set(), []
    while queue:
        source, bare = queue.pop()  # bare: only views follow
        if source is None or source[0] in visited or source[0] not in flow.derived:
            continue
        visited.add(source[0])
        event = flow.events[source[0]]
        own = [k for k in range(len(event.inputs)) if flow.from_images(event, k)]
        product = event.name in products and len(event.inputs) > len(own)
        scaled = normalised and not bare and event.name in NORMALISING
        if event.name in MIXING or product or scaled:
            events.append(event)
            continue
        bare = bare and is_view(event)
        queue += [(flow.sources[event.index][k], bare) for k in range(len(event.inputs))]
    if not events:
        raise SkippedError("no convolution or product with weights comes before")
    return sorted(events, key=lambda event: event.index)
