"""Read the capsules of a routed layer and the capsules below it, also under interventions.

The sums of votes can be replaced in a routed layer, and the features in the capsules below it.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import cached_property

import torch
from torch import Tensor

from capsviz.checks.calling import Caller
from capsviz.checks.verdict import ApartError, SkippedError
from capsviz.wrapping import vectors, wrapping
from capsviz.wrapping.flow import PRODUCTS, Flow, Port, is_view
from capsviz.wrapping.layers import Layer, Recorded, Round, chosen, seen
from capsviz.wrapping.leaves import tensors
from capsviz.wrapping.network import Wrapped
from capsviz.wrapping.recorder import Event, Recorder
from capsviz.wrapping.taps import Tap, taps_of

ROUNDED = 1e-3  # tolerance of sums of couplings
MIXING = frozenset(
    ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "linear", "addmm",
     "baddbmm", "bilinear", "avg_pool2d", "max_pool2d", "adaptive_avg_pool2d",
     "adaptive_max_pool2d", "lp_pool2d", "interpolate", "upsample")
)  # fmt: skip
NORMALISING = frozenset(("batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm"))

INDEXING = ("getitem", "index_select", "gather", "take_along_dim")
GROWTH = 10  # growth of lengths, for features a hundred times as large, that shows no squash

Change = Callable[[Tensor], Tensor]


class Capsules:
    """The class capsules, or those of another routed `layer`.

    `pair` (which softmax makes the couplings) and `scores` are options of `Candidate`.
    """

    def __init__(self, caller: Caller, layer: Layer | None = None, *, pair=None, scores=None):
        self.caller, self.pair, self.scores = caller, pair, scores
        self.of_classes = layer is None
        if layer is not None:
            self.__dict__["layer"] = layer

    @cached_property
    def layer(self) -> Layer:
        """The recorded routing of this layer; SkippedError if there is none."""
        recorded, classes = self.caller.recorded, self.caller.classes
        own = [layer for layer in recorded.layers if layer.parents == classes]
        if not own:
            words = seen(recorded.flow, recorded.layers)
            raise SkippedError(f"no softmax weighs votes for {classes} parents{words}")
        try:
            layer = chosen(own, recorded.flow, self.pair)
        except ValueError as error:
            raise SkippedError(f"{error}, or --pair NAME") from error
        if layer.apart is not None:
            raise ApartError(layer.said_apart)
        return layer

    def require_capsules(self) -> None:
        """Raise ValueError if no routed layer is found in the network."""
        try:
            recorded = self.caller.recorded
        except Exception:  # the checks say what is wrong
            return
        if not recorded.layers and self.own_look is None:
            raise ValueError(
                f"no capsules were found in {self.caller.name}: no softmax weighs votes"
                f"{seen(recorded.flow, [])}; if it routes in another way, wrap it with couplings="
            )

    def require_classes(self) -> None:
        """Raise ValueError if the network has other classes, or no softmax named `pair`."""
        try:
            _, output, flow, known, _ = self.caller.recorded
        except Exception:  # the checks say what is wrong
            return
        classes = self.caller.classes
        own = [layer for layer in known if layer.parents == classes]
        if self.pair is not None:
            if not own:
                raise ValueError(
                    f"pair '{self.pair}' names none: no softmax weighs votes for {classes} parents"
                )
            chosen(own, flow, self.pair)
        sizes = {n for tensor in tensors(output) for n in tensor.shape[1:]}
        # if the output has an axis of the classes, they may be routed in an unknown way
        for layer in [] if own or classes in sizes else reversed(known):
            if layer.parents in sizes:
                raise ValueError(f"expected {classes} classes, the network has {layer}")

    @property
    def rounds(self) -> list[Round]:
        """The recorded routing iterations; SkippedError if there are none."""
        return self.layer.rounds

    @property
    def routed(self) -> bool:
        """Whether a softmax that weights votes was found."""
        try:
            return bool(self.rounds)
        except SkippedError:
            return False

    @cached_property
    def before(self) -> list[Capsules]:
        """Earlier routed layers that lead to this one, and whose couplings can be read."""
        if not self.routed:
            return []
        others = [
            Capsules(self.caller, layer)
            for layer in self.trial.others
            if len(layer.rounds) > 1  # a single iteration may be a part of a layer
            and layer.leads_to(self.layer, self.trial.flow)
        ]
        return [one for one in others if one._has_couplings()]

    @cached_property
    def own_look(self) -> Callable | None:
        """The network's own `look`, which is used if no softmax weights votes."""
        owner = self.caller.network if self.caller.way == "look" else self.caller.wrapper
        return getattr(owner, "look", None)

    @property
    def trial(self) -> Recorded:
        """The recorded pass, with this layer."""
        return self.caller.recorded._replace(layer=self.layer)

    @cached_property
    def wrapped(self) -> Wrapped:
        """The network with taps for capsules, votes and couplings; unlike `wrap`, not verified."""
        network, recipe = self.caller.network, self.caller.recipe
        options = wrapping.Options(scores=self.scores)
        return Wrapped(network, recipe, wrapping.capsules(network, recipe, self.trial, options))

    def taps(self, *keep: str) -> list[Tap]:
        """Return the taps that read these parts; SkippedError if one is not found."""
        taps = taps_of(self.wrapped.inferred.readers, keep)
        if missing := set(keep) - {tap.part for tap in taps}:
            raise SkippedError(f"{', '.join(sorted(missing))} not found in the pass")
        return taps

    def look(self, images: Tensor, *keep: str) -> dict[str, Tensor]:
        """Return parts of a forward pass, named as in `capsviz.trace`."""
        self.caller.require_time()
        if not self.routed and self.own_look is not None:
            values = self.own_look(images, keep=keep)
        else:
            _, mode = self.wrapped.passed(images, self.taps(*keep))
            values = self.wrapped.joined(mode.readings, len(images))
        if missing := [part for part in keep if part not in values]:
            raise SkippedError(f"{', '.join(missing)} not found in the pass")
        return values

    def poses(self, images: Tensor) -> Tensor:
        """Return poses (B, J, E) after the last iteration."""
        return self.look(images, "poses")["poses"][-1]

    def with_sums(self, change, images: Tensor, part: str, iterations=None) -> list[Tensor]:
        """Return "poses" or "couplings" of each iteration, with `change(sums)` for sums of votes.

        By default the sums of all iterations are changed, else those of the first `iterations`. If
        one line of code runs all iterations, all are changed.
        """
        totals = [one.total for one in self.rounds[:iterations]]
        return self.caller.changed(totals, change, images, self.taps(part))[1][part]

    @cached_property
    def by_length(self) -> bool:
        """Whether the length of a pose encodes presence: it is at most 1 for large sums."""
        if not self.routed:
            return False
        with self.caller.evaluating():
            poses = self.with_sums(lambda total: 1e6 * total, self.caller.images(3), "poses")
        large = poses[-1].norm(dim=-1)
        return bool((large.isfinite() & (large < 1.01)).all())

    def _has_couplings(self) -> bool:
        """Return whether couplings sum to 1 over children, or over parents at each position."""
        try:
            with self.caller.evaluating():
                couplings = self.look(self.caller.images(3), "couplings")["couplings"][-1]
        except Exception:  # couplings cannot be read
            return False
        over_children = float((couplings.cpu().double().sum(1) - 1).abs().max()) <= ROUNDED
        return over_children or positions(couplings) is not None


def positions(couplings: Tensor) -> int | None:
    """Return Q if couplings (B, I, J) sum to 1 over the parents at each of Q positions, else None.

    Q is 1 for a fully connected layer.
    """
    sums = couplings.cpu().double().sum(2)
    count = max(1, round(float(sums.mean())))
    fits = couplings.shape[2] % count == 0 and float((sums / count - 1).abs().max()) <= ROUNDED
    return count if fits else None


def squeezed(tensor: Tensor) -> Tensor:
    """Return a tensor without axes of size 1, except the first."""
    return tensor.reshape([*tensor.shape[:1], *(n for n in tensor.shape[1:] if n > 1)])


class PrimaryCapsules:
    """The capsules whose votes a routed layer combines."""

    def __init__(self, above: Capsules):
        self.above, self.caller = above, above.caller

    @cached_property
    def by_hand(self) -> Callable | None:
        """Function images -> capsules (B, I, D), if `wrap` was given `children=`."""
        wrapper = self.caller.wrapper
        if not isinstance(wrapper, Wrapped):
            return None
        if isinstance(wrapper.inferred.readers.get("primary", ()), tuple):
            return None
        return lambda images: wrapper.look(images, keep=("primary",))["primary"]

    @cached_property
    def source(self) -> tuple[Flow, Port | None]:
        """A recorded pass, and the output of the event in it that makes the capsules."""
        images, output, flow, *_ = self.caller.recorded
        if (by_hand := self.by_hand) is not None:
            recorder = Recorder(self.caller.network)
            made = recorder.run(lambda: by_hand(images))
            flow = Flow(recorder.events, images)
            return flow, flow.port(made)
        if not self.above.routed and self.caller.way == "look":
            return flow, flow.port(output["primary"])
        place = vectors.children(flow, self.above.rounds[-1])
        if isinstance(place, str):
            raise SkippedError(f"primary capsules are not found: {place}")
        return flow, flow.sources[place.event.index][place.position]

    @cached_property
    def features(self) -> list[Event]:
        """Last convolutions, products with weights, or normalisations before the capsules."""
        return last_before(*self.source)

    def between(self) -> list[Event]:
        """Return the events from the features to the capsules."""
        features, (flow, port) = self.features, self.source
        assert port is not None  # or there would be no features
        before = {port[0]} | flow.ancestors(port[0])
        after = set().union(*(flow.descendants(event.index) for event in features))
        return [event for event in flow.events if event.index in before & after]

    def below(self) -> Layer | None:
        """Return the routed layer that makes these capsules; None for primary capsules."""
        between = {id(event) for event in self.between()}
        recorded = self.above.trial if self.above.routed else self.caller.recorded
        made = (
            one for one in recorded.others if any(id(turn.event) in between for turn in one.rounds)
        )
        return next(made, None)

    def of(self, change: Change, images: Tensor, events: list[Event] | None = None) -> Tensor:
        """Return the capsules (B, I, D) made of `change(features)`, in the network's own order.

        With `events`, the results of these are changed instead of the features.
        """
        events = self.features if events is None else events
        shapes = {tuple(event.outputs[0].shape[1:]) for event in events}

        def own(tensor):  # the line of an event may run other layers of an nn.Sequential, too
            return change(tensor) if tuple(tensor.shape[1:]) in shapes else tensor

        taps = self.above.taps("primary") if self.above.routed and self.by_hand is None else []
        output, readings = self.caller.changed(
            events, own, images, taps, ("primary", 1), self.by_hand
        )
        if self.by_hand is not None:
            return output
        return readings["primary"][-1] if taps else output["primary"]

    def lengths(self, scale: float, events: list[Event] | None = None) -> Tensor:
        """Return lengths (B, I) for noise of this scale as features, or as results of `events`."""
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
        """Factor by which lengths grow for features a hundred times as large as for `large`."""
        return self._growth(self.large, self.lengths(1e6))

    def squashed_earlier(self) -> bool:
        """Return whether lengths do not grow with the inputs of the features."""
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
    """Return a change that replaces a tensor by normal noise, drawn anew in each call."""
    generator = torch.Generator().manual_seed(seed)
    return lambda tensor: scale * torch.randn(tensor.shape, generator=generator).to(tensor)


def _made_of_images(flow: Flow, event: Event, position: int) -> bool:
    """Return whether an input is computed from the images, not only indexed by them."""
    maker = flow.maker(event, position)
    picked = maker is not None and maker.name in INDEXING and not flow.from_images(maker, 0)
    return not picked and flow.from_images(event, position)


def last_before(
    flow: Flow, port: Port | None, normalised: bool = True, products: Container[str] = PRODUCTS
) -> list[Event]:
    """Return the last convolutions, pools, products with weights or normalisations before a tensor.

    A normalisation that only views follow is left out: it replaces the squash.
    """
    queue, visited, events = [(port, True)], set(), []
    while queue:
        source, bare = queue.pop()  # bare: only views follow
        if source is None or source[0] in visited or source[0] not in flow.derived:
            continue
        visited.add(source[0])
        event = flow.events[source[0]]
        own = [k for k in range(len(event.inputs)) if _made_of_images(flow, event, k)]
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
