"""The capsules of one routed layer: votes, couplings and poses, also for other sums of votes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import prod

from torch import Tensor

from capsviz.checks.calling import Caller
from capsviz.checks.verdict import ApartError, SkippedError
from capsviz.wrapping import wrapping
from capsviz.wrapping.layers import Layer, Recorded, Round, chosen
from capsviz.wrapping.leaves import tensors
from capsviz.wrapping.network import Wrapped
from capsviz.wrapping.taps import Tap, taps_of

ROUNDED = 1e-3  # of sums of couplings


class Capsules:
    """The class capsules, or those of another routed `layer`.

    `pair` and `scores` are options of `Candidate`: which softmax, and what helps to find the poses.
    """

    def __init__(self, caller: Caller, layer: Layer | None = None, *, pair=None, scores=None):
        self.caller, self.pair, self.scores = caller, pair, scores
        self.of_classes = layer is None
        if layer is not None:
            self.__dict__["layer"] = layer

    @cached_property
    def layer(self) -> Layer:
        """Its recorded routing, that of the classes; SkippedError if there is none."""
        recorded, classes = self.caller.recorded, self.caller.classes
        own = [layer for layer in recorded.others if layer.parents == classes]
        if not own:
            raise SkippedError(f"no softmax weighs votes for {classes} parents{self._seen()}")
        try:
            layer = chosen(own, recorded.flow, self.pair)
        except ValueError as error:
            raise SkippedError(f"{error}, or --pair NAME") from error
        if layer.apart is not None:
            raise ApartError(layer.said_apart)
        return layer

    def require_capsules(self) -> None:
        """Raise ValueError if no layer of the network is routed, as far as can be seen."""
        try:
            routed = self.caller.recorded.others
        except Exception:  # the checks say what is wrong
            return
        if not routed and self.own_look is None:
            raise ValueError(
                f"no capsules were found in {self.caller.name}: no softmax weighs votes"
                f"{self._seen()}; if it routes in another way, wrap it with couplings="
            )

    def require_classes(self) -> None:
        """Raise ValueError if the network has other classes, or no softmax named `pair`."""
        try:
            _, output, flow, _, known = self.caller.recorded
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

    def _seen(self) -> str:
        """Where there are softmaxes and routed layers."""
        recorded = self.caller.recorded
        softmaxes = dict.fromkeys(e.place for e in recorded.flow.events if e.name == "softmax")
        where = f"; softmax in {', '.join(softmaxes)}" if softmaxes else ""
        return where + "".join(f"; {layer}" for layer in recorded.others)

    @property
    def rounds(self) -> list[Round]:
        """The recorded routing iterations; SkippedError if there are none."""
        return self.layer.rounds

    @property
    def routed(self) -> bool:
        """Whether a softmax weighs votes."""
        try:
            return bool(self.rounds)
        except SkippedError:
            return False

    @cached_property
    def before(self) -> list[Capsules]:
        """Routed layers that this one's votes are made of, and whose couplings can be read."""
        if not self.routed:
            return []
        recorded = self.caller.recorded
        others = [
            Capsules(self.caller, layer)
            for layer in recorded.others
            if layer is not self.layer
            and len(layer.rounds) > 1  # one iteration alone may be a part of a layer
            and layer.leads_to(self.layer, recorded.flow)
        ]
        return [one for one in others if one._couples()]

    @cached_property
    def own_look(self) -> Callable | None:
        """The network's own `look`, which is asked where no softmax weighs votes."""
        owner = self.caller.network if self.caller.way == "look" else self.caller.wrapper
        return getattr(owner, "look", None)

    @property
    def trial(self) -> Recorded:
        """The recorded pass, with this layer."""
        recorded, own = self.caller.recorded, self.layer
        others = tuple(layer for layer in recorded.others if layer is not own)
        return recorded._replace(layer=own, others=others)

    @cached_property
    def wrapped(self) -> Wrapped:
        """Taps for primary capsules, votes, couplings and poses; not verified as by `wrap`."""
        network, recipe = self.caller.network, self.caller.recipe
        options = wrapping.Options(scores=self.scores)
        return Wrapped(network, recipe, wrapping.capsules(network, recipe, self.trial, options))

    def taps(self, *keep: str) -> list[Tap]:
        """Return the taps that read these parts; SkippedError if one cannot be read."""
        taps = taps_of(self.wrapped.inferred.readers, keep)
        if missing := set(keep) - {tap.part for tap in taps}:
            raise SkippedError(f"{', '.join(sorted(missing))} not found in the pass")
        return taps

    def look(self, images: Tensor, *keep: str) -> dict[str, Tensor]:
        """Return parts of a pass, named as in `capsviz.trace`."""
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
        """Return "poses" or "couplings" of each iteration, if sums of votes are `change(sums)`.

        The sums of the first `iterations` are changed, or all. One line of code that runs all
        iterations changes those of all.
        """
        totals = [one.total for one in self.rounds[:iterations]]
        return self.caller.changed(totals, change, images, self.taps(part))[1][part]

    @cached_property
    def by_length(self) -> bool:
        """Whether the length of a pose stands for presence: it is at most 1 for large sums."""
        if not self.routed:
            return False
        with self.caller.still():
            poses = self.with_sums(lambda total: 1e6 * total, self.caller.images(3), "poses")
        large = poses[-1].norm(dim=-1)
        return bool((large.isfinite() & (large < 1.01)).all())

    def _couples(self) -> bool:
        """Whether couplings sum to 1 over parents, of each position, or over children."""
        try:
            with self.caller.still():
                couplings = self.look(self.caller.images(3), "couplings")["couplings"][-1]
        except Exception:  # anything that cannot be read
            return False
        over_children = float((couplings.cpu().double().sum(1) - 1).abs().max()) <= ROUNDED
        return over_children or positions(couplings) is not None


def positions(couplings: Tensor) -> int | None:
    """Return at how many positions couplings (B, I, J) sum to 1 over the parents; None if nowhere.

    It is 1 for a fully connected layer; a convolutional one chooses at each position.
    """
    sums = couplings.cpu().double().sum(2)
    count = max(1, round(float(sums.mean())))
    fits = couplings.shape[2] % count == 0 and float((sums / count - 1).abs().max()) <= ROUNDED
    return count if fits else None


def squeezed(tensor: Tensor) -> Tensor:
    """Return it without axes of size 1, except the first."""
    return tensor.reshape([*tensor.shape[:1], *(n for n in tensor.shape[1:] if n > 1)])


def _is_of(layer: Layer, tensor: Tensor) -> bool:
    """Whether a tensor may be the layer's poses, or their lengths."""
    shape = tuple(tensor.shape[1:])
    pose = layer.rounds[-1].count("E")
    return layer.parents in shape and prod(shape) in (layer.parents, layer.parents * pose)
