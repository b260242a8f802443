"""What one recorded pass of a network shows: what was computed, and its routed layers."""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any, NamedTuple

from torch import Tensor

from capsviz.checks.calling import Caller
from capsviz.checks.verdict import ApartError, SkippedError
from capsviz.wrapping.flow import Flow
from capsviz.wrapping.layers import BATCHES, Layer, chosen, layers
from capsviz.wrapping.leaves import tensors
from capsviz.wrapping.recorder import Recorder


class Recorded(NamedTuple):
    """One recorded pass."""

    images: Tensor  # in [0, 1], as given to the network's caller
    output: Any
    flow: Flow
    layers: list[Layer]


class Inside:
    """The recorded pass of a network, and which of its routed layers is that of the classes."""

    def __init__(self, caller: Caller, pair: str | None = None):
        self.caller, self.pair = caller, pair

    @cached_property
    def recorded(self) -> Recorded:
        """A pass of a prime number of images, in which a layer of the classes was found if any."""
        best = None
        for count in (n for n in BATCHES if n != self.caller.classes):
            one = self.record(self.caller.images(count))
            if any(layer.parents == self.caller.classes for layer in one.layers):
                return one
            best = best if best is not None and best.layers else one
        assert best is not None  # there are several primes
        return best

    def record(self, images: Tensor) -> Recorded:
        """Record a pass of these images."""
        caller = self.caller
        inside = caller.inside(images)
        recorder = Recorder(caller.network)
        output = caller.recipe.run(recorder, caller.network, inside)
        flow = Flow(recorder.events, inside)
        return Recorded(images, output, flow, layers(flow, len(images), caller.classes))

    @cached_property
    def layer(self) -> Layer:
        """The routed layer whose parents are the classes; SkippedError without one."""
        _, _, flow, known = self.recorded
        classes = self.caller.classes
        own = [layer for layer in known if layer.parents == classes]
        if not own:
            softmaxes = dict.fromkeys(e.place for e in flow.events if e.name == "softmax")
            where = f"; softmax in {', '.join(softmaxes)}" if softmaxes else ""
            where += "".join(f"; {layer}" for layer in known)
            raise SkippedError(f"no softmax weighs votes for {classes} parents{where}")
        try:
            layer = chosen(own, flow, self.pair)
        except ValueError as error:
            raise SkippedError(f"{error}, or --pair NAME") from error
        if layer.apart is not None:
            raise ApartError(layer.said_apart)
        return layer

    def require(self) -> None:
        """Raise ValueError if the network has other classes, or no softmax named `pair`."""
        try:
            _, output, flow, known = self.recorded
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
        shown = tensors(output)
        # an axis of the classes without a layer of theirs: they are routed in an unknown way
        if own or any(classes in tensor.shape[1:] for tensor in shown):
            return
        for layer in reversed(known):
            if any(_is_of(layer, tensor) for tensor in shown):
                raise ValueError(f"expected {classes} classes, the network has {layer}")


def _is_of(layer: Layer, tensor: Tensor) -> bool:
    """Whether a tensor may be the layer's poses, or their lengths."""
    shape = tuple(tensor.shape[1:])
    pose = layer.rounds[-1].count("E")
    return layer.parents in shape and prod(shape) in (layer.parents, layer.parents * pose)
