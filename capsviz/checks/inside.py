"""What a recorded pass of a network shows: its capsule layer, scores and poses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple, Self

from torch import Tensor

from capsviz.checks import facts
from capsviz.checks.caller import Caller
from capsviz.checks.parents import ROUNDED, places, require_classes, require_pair
from capsviz.checks.verdict import ApartError, UnseenError
from capsviz.wrapping import infer, outputs
from capsviz.wrapping.flow import Flow
from capsviz.wrapping.layers import BATCHES, Layer, Recorded, Round, chosen, layers
from capsviz.wrapping.leaves import named_tensors
from capsviz.wrapping.network import Wrapped
from capsviz.wrapping.recorder import Recorder, Recording
from capsviz.wrapping.taps import taps_of

OF_LAYER = {  # what is known of one
    *("layer", "layers_before", "wrapped", "by_length"),
    *("child_port", "features", "mixtures"),
}


class Structure(NamedTuple):
    """One recorded pass."""

    images: Tensor  # in [0, 1], as outside of the network
    recording: Recording
    flow: Flow
    layers: list[Layer]


class Inside(Caller):
    """Capsules of a network; `scores`, `decode` and `pair` are those of `Candidate`."""

    def __init__(self, network, *size, scores=None, decode=None, pair=None, call=None, **more):
        scores, decode, pair, call = facts.options(
            scores=scores, decode=decode, pair=pair, call=call
        )
        super().__init__(network, *size, call=call, **more)
        if (before := self.wrapper) is not None:
            scores = scores or before.inferred.scores
            decode = before.inferred.decode if decode is None else decode
            pair = pair or before.recipe.pair
        self.scores_option, self.decode_option, self.pair = scores, decode, pair
        self.of_classes = True  # whether it is their layer that is looked at
        with self.still():
            self._require_layer()

    @cached_property
    def structure(self) -> Structure:
        """A recorded pass of a prime number of images, in which layers were found if there are."""
        best = None
        for count in (n for n in BATCHES if n != self.classes):
            one = self.recorded(self.images(count))
            if any(layer.parents == self.classes for layer in one.layers):
                return one
            best = best if best is not None and best.layers else one
        assert best is not None  # there is more than one prime
        return best

    def recorded(self, images: Tensor) -> Structure:
        """A recorded pass."""
        inside = self.inside(images)
        recorder = Recorder(self.network)
        output = self.recipe.run(recorder, self.network, inside)
        recording, flow = Recording(recorder.events, output), Flow(recorder.events, inside)
        return Structure(images, recording, flow, layers(flow, len(images), self.classes))

    def _require_layer(self) -> None:
        """ValueError where the network shows other classes, or no softmax of the pair."""
        try:
            _, recording, flow, known = self.structure
        except Exception:  # the checks say what is wrong
            return
        if self.pair is not None:
            require_pair(known, flow, self.classes, self.pair)
        require_classes(known, recording.output, self.classes)

    @property
    def flow(self) -> Flow:
        """Of the recorded pass."""
        return self.structure.flow

    @cached_property
    def layer(self) -> Layer:
        """The capsule layer whose parents are the classes."""
        own = [layer for layer in self.structure.layers if layer.parents == self.classes]
        if not own:
            softmaxes = [e.place for e in self.structure.recording.events if e.name == "softmax"]
            where = f"; softmax in {', '.join(dict.fromkeys(softmaxes))}" if softmaxes else ""
            where += "".join(f"; {layer}" for layer in self.structure.layers)
            raise UnseenError(f"no softmax weighs votes for {self.classes} parents{where}")
        try:
            layer = chosen(own, self.flow, self.pair)
        except ValueError as error:
            raise UnseenError(f"{error}, or --pair NAME") from error
        if layer.apart is not None:
            raise ApartError(layer.said_apart)
        return layer

    @cached_property
    def layers_before(self) -> list[Layer]:
        """Routed layers that this one's children are made of, whose couplings can be read."""
        if not self.has_layer:
            return []
        before = self.flow.ancestors(self.layer.rounds[0].total.index)
        return [
            layer
            for layer in self.structure.layers
            if layer is not self.layer
            and len(layer.rounds) > 1  # of one pass it may be a part of a layer
            and layer.rounds[-1].total.index in before
            and self.at(layer)._shares()
        ]

    def _shares(self) -> bool:
        """Whether couplings sum to 1 over parents, of each place, or over children."""
        try:
            with self.still():
                couplings = self.look(self.images(3), "couplings")["couplings"][-1]
        except Exception:  # whatever cannot be read
            return False
        over_children = float((couplings.double().sum(1) - 1).abs().max()) <= ROUNDED
        return over_children or places(couplings) is not None

    def at(self, layer: Layer) -> Self:
        """The same network, where another layer is looked at: its parents in place of classes."""
        other = copy.copy(self)
        for name in OF_LAYER:
            other.__dict__.pop(name, None)
        other.__dict__ |= {"layer": layer, "pose_output": None, "scores_option": None}
        other.of_classes = False
        return other

    @property
    def has_layer(self) -> bool:
        """Whether a softmax weighs votes."""
        try:
            return bool(self.layer.rounds)
        except UnseenError:
            return False

    @property
    def own_look(self) -> Callable | None:
        """How it says itself what is inside, where nothing is found: by a `look`."""
        owner = self.network if self.manner == "look" else self.wrapper
        return getattr(owner, "look", None)

    @property
    def last(self) -> Round:
        """The last pass of routing."""
        return self.layer.rounds[-1]

    @cached_property
    def wrapped(self) -> Wrapped:
        """Taps for children, votes, couplings and poses; not verified as `wrap` does."""
        options = infer.Options(scores=self.scores_option)
        known = infer.capsules(self.network, self.recipe, self.trial, options)
        return Wrapped(self.network, self.recipe, known)

    @property
    def trial(self) -> Recorded:
        """The recorded pass, as `wrap` takes one."""
        images, recording, flow, layers = self.structure
        others = tuple(layer for layer in layers if layer is not self.layer)
        return Recorded(images, recording.output, flow, self.layer, others)

    def look(self, images: Tensor, *keep: str) -> dict[str, Tensor]:
        """Parts of a pass, as `capsviz.trace` names them."""
        if not self.has_layer and (own := self.own_look) is not None:
            values = own(images, keep=keep)
            if missing := [part for part in keep if part not in values]:
                raise UnseenError(f"{', '.join(missing)} not said by the network")
            return values
        wrapped = self.wrapped
        taps = taps_of(wrapped.inferred.readers, keep)
        _, mode = wrapped.passed(images, taps)
        missing = [part for part in keep if not mode.readings.get(part)]
        if missing:
            raise UnseenError(f"{', '.join(missing)} not found in the pass")
        return wrapped.joined(mode.readings, len(images))

    @cached_property
    def score(self) -> Callable | None:
        """output -> scores (B, J), or None where they are the norms of its poses."""
        if callable(self.scores_option):
            return self.scores_option
        if self.manner == "look":
            return lambda output: output["lengths"]
        images, recording, flow, _ = self.structure
        try:
            form = self.scores_option if self.scores_option != "norms" else None
            result = outputs.find_scores(recording.output, flow, len(images), self.classes, form)
        except ValueError as error:
            raise UnseenError(str(error)) from error
        return None if result is None else result.of

    def scores(self, images: Tensor) -> Tensor:
        """(B, J): of the output, or the norms of the poses."""
        if self.score is not None:
            return self.score(self.call(images))
        return self.poses(images).norm(dim=-1)

    def poses(self, images: Tensor) -> Tensor:
        """(B, J, E) after the last pass of routing: of the output, if it holds them."""
        if self.pose_output is not None:
            return self.of_output(self.call(images))
        return self.look(images, "poses")["poses"][-1]

    @cached_property
    def pose_output(self) -> str | None:
        """The one output that has the shape of the poses, by name."""
        if self.manner == "look" or not self.has_layer:
            return None
        shape = (len(self.structure.images), self.classes, self.last.count("E"))
        named = named_tensors(self.structure.recording.output)
        fits = [
            name for name, t in named if t.is_floating_point() and tuple(squeezed(t).shape) == shape
        ]
        return fits[0] if len(fits) == 1 and shape[2] > 1 else None

    def of_output(self, output) -> Tensor:
        """Poses (B, J, E) of an output."""
        assert self.pose_output is not None  # asked only of what has one
        return squeezed(outputs.pick(output, self.pose_output))


def squeezed(tensor: Tensor) -> Tensor:
    """Without axes of size 1, but for the first."""
    return tensor.reshape([*tensor.shape[:1], *(n for n in tensor.shape[1:] if n > 1)])
