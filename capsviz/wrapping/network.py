"""The network that `wrap` returns: how to run it, where its parts are, and its report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from capsviz import analysis, discovery
from capsviz.nn.models import Output, Scores
from capsviz.nn.routing import Parents
from capsviz.tracing.needs import missing
from capsviz.wrapping.flow import arrange
from capsviz.wrapping.grid import NOWHERE, Places
from capsviz.wrapping.recorder import like_the_last, outputs_of, watching
from capsviz.wrapping.taps import (
    TARGETS,
    ChildEntry,
    Entry,
    OfModule,
    OfOutput,
    Reader,
    Recipe,
    Tap,
    TapPass,
    Watched,
    taps_of,
)

PER_ITERATION = ("logits", "couplings", "weights", "poses")
ALONE = threading.RLock()  # held while attributes of a network are set, or its modules hooked
OF_FILES = ("affnist", "curves")  # analyses of results, without a network


class Fact(NamedTuple):
    """One line of a report: a part, and how it was found, or why not."""

    name: str
    finding: str


class Setter(NamedTuple):
    """An attribute of a module that sets the number of routing iterations."""

    module: nn.Module
    attribute: str
    value: int
    name: str  # from the network on


@dataclass(frozen=True)
class Inferred:
    """The parts of a network: how each is read, found in the recorded pass or given."""

    readers: Mapping[str, Reader] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()
    scores: Callable | None = None  # output -> (B, J); None: norms of the poses
    entries: tuple[Entry, ...] = ()  # where couplings can be put in
    child_entry: ChildEntry | None = None  # where children can be put in
    children: int | None = None  # how many
    decode: Callable | None = None  # (poses (B, J, E), classes (B,)) -> images
    places: Places = NOWHERE
    passes: int | None = None  # routing iterations in the recorded pass
    iterations: Setter | None = None  # sets their number
    image_bytes: int = 1


@dataclass(frozen=True)
class Verified:
    """The result of comparing a network with itself: other batches, other children, the sums."""

    facts: tuple[Fact, ...] = ()
    smallest: int = 1  # images that it needs at least
    takes_children: bool = True
    peculiar: Mapping[str, str] = field(default_factory=dict)


class Bare(nn.Module):
    """A network without capsules, or of which only scores are known: it can be evaluated."""

    def __init__(
        self,
        network: nn.Module,
        recipe: Recipe,
        inferred: Inferred = Inferred(),
        verified: Verified = Verified(),
        card: Mapping | None = None,
    ):
        super().__init__()
        self.network, self.inferred, self.verified = network, inferred, verified
        self.recipe = replace(recipe, smallest=verified.smallest)
        self.card: dict[str, Any] = dict(card or {})
        self.config = {"image_shape": recipe.image_shape, "classes": recipe.classes}

    @property
    def image_bytes(self) -> int:
        """Memory of one image in a forward pass."""
        return self.inferred.image_bytes

    def forward(self, images: Tensor) -> Any:
        """Images (B, C, H, W) in [0, 1] -> scores (B, J) in [0, 1]."""
        output, _ = self.passed(images)
        scores = self._scores(output)[: len(images)]
        return Scores(scores, scores.clamp_min(torch.finfo(scores.dtype).tiny).log())

    def report(self) -> str:
        """Return what was found, with its evidence, and which analyses can be run."""
        return written(self)

    def passed(
        self,
        images: Tensor,
        taps: Collection[Tap] = (),
        entries: Collection[Entry] = (),
        couplings: Tensor | None = None,
        until: str | None = None,
        children: tuple[ChildEntry, Tensor] | None = None,
    ) -> tuple[Any, TapPass]:
        """Return the output of one pass, for `smallest` images at least, and what taps read."""
        recipe = self.recipe
        if tuple(images.shape[1:]) != recipe.image_shape:
            raise ValueError(
                f"expected images (B, {', '.join(map(str, recipe.image_shape))}), "
                f"got {tuple(images.shape)}"
            )
        if len(images) < recipe.smallest:
            images = images.repeat(recipe.smallest, 1, 1, 1)[: recipe.smallest]
        mode = TapPass(self.network, taps, entries, couplings, until, children)
        return recipe.run(mode, self.network, recipe.normalised(images)), mode

    def _scores(self, output: Any) -> Tensor:
        if self.inferred.scores is None:
            raise ValueError("this network says no scores")
        return self.inferred.scores(output)


class Wrapped(Bare):
    """A capsule network that can be traced; `capsviz.wrap` makes it.

    `peculiar` names differences from the CapsNet of 2017, for the verification of a trace:
        "norms"  scores are not the norms of the poses
        "sums"   couplings of a child do not sum to 1 over parents
        "votes"  poses are not parallel to the weighted sum of votes
    """

    @property
    def peculiar(self) -> Mapping[str, str]:
        """Differences from the CapsNet of 2017, with the reason."""
        return self.verified.peculiar

    @property
    def grid(self) -> tuple[int, int, int] | None:
        """(types, rows, columns) of the children; None: they have no positions."""
        return self.inferred.places.grid

    @property
    def decoder(self) -> Callable | None:
        """None for a network that cannot decode."""
        return self.inferred.decode

    @property
    def parts(self) -> set[str]:
        """Names of the parts that `look` can give."""
        return {*self.inferred.readers, "lengths"} | (
            {"reconstruction"} if self.inferred.decode else set()
        )

    @property
    def replaceable(self) -> set[str]:
        """Which of "couplings", "iterations" and "children" can be replaced."""
        known = {
            "couplings": bool(self.inferred.entries),
            "iterations": self.inferred.iterations is not None,
            "children": self.inferred.child_entry is not None and self.verified.takes_children,
        }
        return {name for name, found in known.items() if found}

    def forward(self, images: Tensor) -> Output:
        """Images (B, C, H, W) in [0, 1] -> scores (B, J), poses (B, J, E), primary (B, I, D)."""
        traced = self.look(images, keep=("lengths", "poses", "primary"))
        poses = traced.get("poses")
        return Output(
            traced["lengths"], None if poses is None else poses[-1], traced.get("primary")
        )

    def from_children(
        self,
        children: Tensor,
        activations: Tensor | None = None,
        *,
        couplings: Tensor | list | None = None,
    ) -> Parents:
        """Return poses and activations of the classes, for children (B, I, D) of no image.

        `activations` of children are ignored: the network makes its own. ValueError where children,
        or couplings of single iterations, cannot be put in.
        """
        if isinstance(couplings, list):
            raise ValueError("couplings of single iterations of this network cannot be replaced")
        images = children.new_zeros(len(children), *self.recipe.image_shape)
        keep = ("poses", "lengths")
        traced = self.look(images, keep=keep, couplings=couplings, children=children)
        poses: Any = traced["poses"][-1] if "poses" in traced else None
        return Parents(poses, traced["lengths"])

    def look(
        self,
        images: Tensor,
        *,
        keep: Collection[str],
        couplings: Tensor | None = None,
        iterations: int | None = None,
        children: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return parts of one pass, for `capsviz.trace`.

        Parameters
        ----------
        couplings   (B, I, J) or (I, J) in place of its own, in every iteration.
        iterations  of routing, in place of its own number.
        children    (B, I, D) in place of those of the images.

        Raises
        ------
        ValueError  for what cannot be replaced.
        """
        known, count = self.inferred, len(images)
        names = {"primary" if part == "children" else part for part in keep}
        if "reconstruction" in names or known.scores is None:
            names.add("poses")
        wanted = {part: reader for part, reader in known.readers.items() if part in names}
        if couplings is not None:
            couplings = self._in_own_layout(couplings, images)
        put = None
        if children is not None:
            if known.child_entry is None or not self.verified.takes_children:
                raise ValueError("children of this network can be read at most, not replaced")
            put = (known.child_entry, self._in_own_order(children, images))
        with ExitStack() as stack:
            others = any(isinstance(one, OfModule | Watched) for one in known.readers.values())
            if known.iterations is not None or others:
                stack.enter_context(ALONE)
            stack.enter_context(self._iterating(iterations))
            hooked = {p: one for p, one in wanted.items() if isinstance(one, OfModule)}
            outputs = {p: stack.enter_context(outputs_of(m.module)) for p, m in hooked.items()}
            watched = {p: one for p, one in wanted.items() if isinstance(one, Watched)}
            values = stack.enter_context(watching(one.variable for one in watched.values()))
            taps = taps_of(known.readers, names)
            output, mode = self.passed(images, taps, known.entries, couplings, children=put)
        readings = mode.readings
        if couplings is not None and not mode.exchanges:
            raise ValueError("couplings were not put in: this pass did not come where they enter")
        if put is not None and not mode.puts:
            raise ValueError("children were not put in: this pass did not come where they enter")
        for part, module in hooked.items():
            readings[part] = [module.read(one) for one in outputs[part]]
        for part, one in watched.items():
            same = like_the_last(values[one.variable])
            readings[part] = [arrange(value, one.roles, TARGETS[part]) for value in same]
        for part, reader in wanted.items():
            if isinstance(reader, OfOutput):
                readings[part] = [reader.function(output)]
        traced = self.joined(readings, max(count, self.recipe.smallest))
        if known.scores is not None:
            traced["lengths"] = known.scores(output)
        else:
            traced["lengths"] = traced["poses"][-1].norm(dim=-1)
        traced = {
            part: value[:, :count] if part in PER_ITERATION else value[:count]
            for part, value in traced.items()
        }
        if "reconstruction" in names and known.decode is not None:
            winners = traced["lengths"].argmax(1)
            traced["reconstruction"] = known.decode(traced["poses"][-1], winners)
        return traced

    def decode(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Reconstruct from the poses (B, J, E) of `classes` (B,): images (B, C, H, W) in [0, 1]."""
        if self.inferred.decode is None:
            raise ValueError(
                "this network has no decoder that capsviz knows: give wrap decode=lambda poses, "
                "classes: images (B, C, H, W) in [0, 1]"
            )
        return self.inferred.decode(poses, classes)

    def receptive_field(self, row: int, column: int) -> tuple[slice, slice]:
        """Return the rows and columns of the image that capsules at one position depend on."""
        places = self.inferred.places
        if places.grid is None:
            raise ValueError(
                "the capsules of this network have no positions: grid is None, so there are no maps"
            )
        return places.rows[row], places.columns[column]

    def capsules(self, images: Tensor, part: str) -> Tensor:
        """Return "primary" or "votes" as vectors (B, I, ·), in the network's own order."""
        taps = taps_of(self.inferred.readers, (part,))
        if not taps:
            return self.look(images, keep=(part,))[part].flatten(2)
        _, mode = self.passed(images, taps, until=part)
        return mode.readings[part][-1].flatten(2)

    def joined(self, readings: Mapping[str, list[Tensor]], count: int) -> dict[str, Tensor]:
        """Return a tensor for each part that taps read of `count` images, in the grid's order."""
        traced, order = {}, self.inferred.places.order
        for part, values in readings.items():
            if not values:
                continue
            values = [v.expand(count, *v.shape[1:]) if len(v) != count else v for v in values]
            whole = torch.stack(values) if part in PER_ITERATION else values[-1]
            axis = 2 if part in ("logits", "couplings", "weights") else 1
            if order is not None and part not in ("poses", "lengths"):
                whole = whole.index_select(axis, order.to(whole.device))
            traced[part] = whole
        passes = len(traced["couplings"]) if "couplings" in traced else None
        if passes is not None and len(traced.get("logits", ())) != passes:
            traced.pop("logits", None)  # of some iterations only
        if passes is not None and len(traced.get("poses", ())) > passes:
            traced["poses"] = traced["poses"][-1:]  # which iteration the others are of is unknown
        return traced

    def _in_own_layout(self, couplings: Tensor, images: Tensor) -> Tensor:
        if not self.inferred.entries:
            raise ValueError(
                "couplings of this network can be read, but not replaced: they are not the "
                "operand of a product that capsviz finds"
            )
        if couplings.dim() == 2:
            couplings = couplings[None]
        expected = (self.inferred.children, self.recipe.classes)
        if tuple(couplings.shape[1:]) != expected:
            raise ValueError(f"expected couplings of {expected}, got {tuple(couplings.shape[1:])}")
        return self._in_own_order(couplings, images)

    def _in_own_order(self, values: Tensor, images: Tensor) -> Tensor:
        """Return values (B, I, ·) for children in the network's own order; one image's for all."""
        count, order = max(len(images), self.recipe.smallest), self.inferred.places.order
        if len(values) < count:
            values = values[:1].expand(count, -1, -1)
        if order is None:
            return values
        return values.index_select(1, order.argsort().to(values.device))

    @contextmanager
    def _iterating(self, iterations: int | None) -> Iterator[None]:
        known = self.inferred
        if iterations is None or iterations == known.passes:
            yield
            return
        if known.iterations is None or known.passes is None:
            raise ValueError(
                f"the number of routing iterations of this network cannot be changed, got "
                f"{iterations}: no attribute of it was found to set them"
                + ("" if known.entries else "; it routes in one pass")
            )
        if iterations < 1:
            raise ValueError(f"routing iterations must be at least 1, got {iterations}")
        module, name, value, _ = known.iterations
        before = getattr(module, name)
        setattr(module, name, value + iterations - known.passes)
        try:
            yield
        finally:
            setattr(module, name, before)


def lacks(network: Bare) -> dict[str, list[str]]:
    """Return what each analysis needs and a network does not have; evaluation needs only scores."""
    needs: dict[str, tuple[str, ...]] = {"evaluate": ()}
    for name in discovery.names(analysis.PACKAGE):
        if name not in OF_FILES:
            needs[name] = analysis.of(name)[0].needs
    return {name: missing(network, parts) for name, parts in needs.items()}


def written(network: Bare) -> str:
    """Write the report of a wrapped network."""
    count = sum(p.numel() for p in network.network.parameters())
    shape = ", ".join(map(str, network.recipe.image_shape))
    kind = type(network.network).__name__
    lines = [f"{kind}, {count:,} weights, images ({shape}), {network.recipe.classes} classes"]
    facts = [*network.inferred.facts, *network.verified.facts]
    lines += [f"  {fact.name:<12}{fact.finding}" for fact in facts]
    left_out = lacks(network)
    lines.append(f"  {'can':<12}" + ", ".join(name for name, left in left_out.items() if not left))
    by_lack: dict[str, list[str]] = {}
    for name, left in left_out.items():
        if left:
            by_lack.setdefault(", ".join(left), []).append(name)
    reasons = "; ".join(f"{', '.join(names)} (no {left})" for left, names in by_lack.items())
    if reasons:
        lines.append(f"  {'cannot':<12}{reasons}")
    return "\n".join(lines)
