"""Run the network that `wrap` returns, read and replace its parts, and report what was found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from capsviz import analysis, discovery
from capsviz.nn.images import require_shape
from capsviz.nn.models import Output, Scores
from capsviz.nn.routing import Parents
from capsviz.tracing.needs import missing, required
from capsviz.tracing.record import PER_ITERATION
from capsviz.wrapping.environment import ALONE
from capsviz.wrapping.grid import NOWHERE, Places
from capsviz.wrapping.recorder import like_the_last, outputs_of, watching
from capsviz.wrapping.taps import (
    Change,
    ChildEntry,
    Entry,
    OfModule,
    Reader,
    Recipe,
    SoftmaxEntry,
    Tap,
    TapPass,
    Watched,
    taps_of,
)

OF_FILES = ("affnist", "curves")  # analyses that read result files and need no network


class Setter(NamedTuple):
    """An attribute of a module that sets the number of routing iterations."""

    module: nn.Module
    attribute: str
    value: int
    name: str  # dotted name of the attribute in the network


@dataclass
class Inferred:
    """How to read and replace the parts of one routed layer of a network."""

    readers: dict[str, Reader] = field(default_factory=dict)
    facts: list[tuple[str, str]] = field(default_factory=list)  # lines of the report
    scores: Callable | None = None  # output -> (B, J); None: norms of the poses
    entries: tuple[Entry | SoftmaxEntry, ...] = ()  # where couplings can be replaced
    child_entry: ChildEntry | None = None  # where children can be replaced
    children: int | None = None  # number of children
    reads: dict[str, int] = field(default_factory=dict)  # by part: which reading, from 1
    decode: Callable | None = None  # (poses (B, J, E), classes (B,)) -> images
    places: Places = NOWHERE
    passes: int | None = None  # routing iterations in the recorded pass
    last_alone: bool = False  # give only the last iteration, because others have no poses
    iterations: Setter | None = None  # sets the number of iterations
    image_bytes: int = 1
    peculiar: dict[str, str] = field(default_factory=dict)  # `verification.differences`
    parents: int = 0  # number of parents, if they are not the classes
    below: list[Inferred] = field(default_factory=list)  # earlier routed layers, in order

    def say(self, name: str, finding: str) -> None:
        """Add a line to the report."""
        self.facts.append((name, finding))


class Bare(nn.Module):
    """A network of which only the scores are known: it can be evaluated, not traced."""

    def __init__(
        self, network: nn.Module, recipe: Recipe, inferred: Inferred, card: Mapping | None = None
    ):
        super().__init__()
        self.network, self.recipe, self.inferred = network, recipe, inferred
        self.card: dict[str, Any] = dict(card or {})
        self.config = {"image_shape": recipe.image_shape, "classes": recipe.classes}

    @property
    def image_bytes(self) -> int:
        """Return the memory of one image in a forward pass, in bytes."""
        return self.inferred.image_bytes

    @property
    def draw(self) -> Callable | None:
        """Return a function, (count, seed) -> random inputs; None if the network takes images."""
        return None if self.recipe.example is None else self.recipe.draw

    @property
    def takes_double(self) -> bool:
        """Return whether its inputs hold numbers that float32 would round."""
        return self.recipe.example is not None and self.recipe.example.is_double

    def rows(self, inputs: Any) -> Tensor:
        """Return inputs in the form of the example, or images, as one tensor (N, ...)."""
        return inputs if self.recipe.example is None else self.recipe.example.rows(inputs)

    def forward(self, images: Tensor) -> Any:
        """Return scores (B, J) in [0, 1] for images (B, C, H, W) in [0, 1]."""
        assert self.inferred.scores is not None  # else it is `Wrapped`, with its own `forward`
        output, _ = self.passed(images)
        scores = self.inferred.scores(output)[: len(images)]
        return Scores(scores, scores.clamp_min(torch.finfo(scores.dtype).tiny).log())

    def report(self) -> str:
        """Return the parts that were found, with evidence, and the analyses that can be run."""
        count = sum(p.numel() for p in self.network.parameters())
        shape = ", ".join(map(str, self.recipe.image_shape))
        kind, of = type(self.network).__name__, "images" if self.draw is None else "inputs"
        kinds = "classes" if self.config["classes"] else "capsules"
        lines = [f"{kind}, {count:,} weights, {of} ({shape}), {self.recipe.classes} {kinds}"]
        lines += [f"  {name:<12}{finding}" for name, finding in self.inferred.facts]
        by_lack: dict[str, list[str]] = {"": ["evaluate"] if self.config["classes"] else ["trace"]}
        for name in discovery.names(analysis.PACKAGE):
            if name not in OF_FILES:
                each = [missing(self, required(one)) for one in analysis.of(name)]
                lacks = ", ".join(sorted(each, key=len)[0])
                by_lack.setdefault(lacks, []).append(name)
        lines.append(f"  {'can':<12}" + ", ".join(by_lack.pop("")))
        reasons = "; ".join(f"{', '.join(names)} (no {left})" for left, names in by_lack.items())
        if reasons:
            lines.append(f"  {'cannot':<12}{reasons}")
        return "\n".join(lines)

    def passed(
        self, images: Tensor, taps: Collection[Tap] = (), **more: Any
    ) -> tuple[Any, TapPass]:
        """Run one pass; return the output and the finished `TapPass` with its readings.

        Images are repeated up to the smallest batch that the network accepts, so the output may
        hold more rows than `images`. `more` are further arguments of `TapPass`.
        """
        recipe = self.recipe
        require_shape(images, recipe.image_shape)
        if images.shape[0] < recipe.smallest:
            images = torch.cat([images] * recipe.smallest)[: recipe.smallest]
        mode = TapPass(self.network, taps, **more)
        return recipe.run(mode, images), mode


class Wrapped(Bare):
    """A capsule network that can be traced, made by `capsviz.wrap`."""

    @property
    def peculiar(self) -> Mapping[str, str]:
        """Return the differences from the CapsNet of 2017, as from `verification.differences`."""
        return self.inferred.peculiar

    @property
    def grid(self) -> tuple[int, int, int] | None:
        """Return (types, rows, columns) of the children; None if they have no positions."""
        return self.inferred.places.grid

    @property
    def grids(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Return the grid of each routed layer, ending with the layer of the classes."""
        return tuple(one.places.grid for one in (*self.inferred.below, self.inferred))

    def at(self, layer: int) -> Wrapped:
        """Return the same network, showing another routed layer; ValueError if there is none."""
        layers = (*self.inferred.below, self.inferred)
        if layer not in range(-len(layers), len(layers)):
            raise ValueError(f"this network has {len(layers)} routed layers, got layer {layer}")
        known = layers[layer]
        if known is self.inferred:
            return self
        return Wrapped(self.network, replace(self.recipe, classes=known.parents), known)

    @property
    def decoder(self) -> Callable | None:
        """Return the decoder, or None if the network has none."""
        return self.inferred.decode

    @property
    def parts(self) -> set[str]:
        """Return the names of the parts that `look` can give."""
        more = {"lengths"} if self.decoder is None else {"lengths", "reconstruction"}
        return {*self.inferred.readers, *more}

    @property
    def replaceable(self) -> set[str]:
        """Return which of "couplings", "iterations" and "children" can be replaced."""
        known = self.inferred
        found = {
            "couplings": known.entries,
            "iterations": known.iterations,
            "children": known.child_entry,
        }
        return {name for name, one in found.items() if one}

    def forward(self, images: Tensor) -> Output:
        """Return scores (B, J), poses (B, J, E) and primary (B, I, D) for images in [0, 1]."""
        traced = self.look(images, keep=("lengths", "poses", "primary"))
        poses = traced["poses"][-1] if "poses" in traced else None
        return Output(traced["lengths"], poses, traced.get("primary"))

    def from_children(
        self,
        children: Tensor,
        activations: Tensor | None = None,
        *,
        layer: int = -1,
        couplings: Tensor | list | None = None,
    ) -> Parents:
        """Return poses and activations of the classes for given children (B, I, D), without images.

        Children and couplings are those of the routed layer `layer`. `activations` of children are
        ignored: the network computes its own. ValueError if children cannot be replaced, or if
        couplings are given for single iterations, as a list.
        """
        if isinstance(couplings, list):
            raise ValueError("couplings of single iterations of this network cannot be replaced")
        images = children.new_zeros(len(children), *self.recipe.image_shape)
        keep, own = ("poses", "lengths"), self.at(layer)
        ends = self.inferred
        known = replace(own.inferred, readers=ends.readers, scores=ends.scores)
        put = Wrapped(self.network, own.recipe, known)
        traced = put.look(images, keep=keep, couplings=couplings, children=children)
        poses: Any = traced["poses"][-1] if "poses" in traced else None
        return Parents(poses, traced["lengths"])

    def look(
        self,
        images: Tensor,
        *,
        keep: Collection[str],
        layer: int = -1,
        couplings: Tensor | None = None,
        iterations: int | None = None,
        children: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the parts named in `keep` of one pass, for one routed layer; used by `trace`.

        Couplings (B, I, J) or (I, J), the number of iterations, and children (B, I, D) replace the
        network's own. ValueError if a part cannot be replaced.
        """
        if (own := self.at(layer)) is not self:
            return own.look(
                images, keep=keep, couplings=couplings, iterations=iterations, children=children
            )
        known, count = self.inferred, max(images.shape[0], self.recipe.smallest)
        names = {"primary" if part == "children" else part for part in keep}
        if "reconstruction" in names or known.scores is None:
            names.add("poses")
        wanted = {part: reader for part, reader in known.readers.items() if part in names}
        listeners = {part: one for part, one in wanted.items() if not isinstance(one, tuple)}
        puts: dict[str, list[Change]] = {}
        if couplings is not None:
            couplings = self._checked_couplings(couplings, count)
            puts["couplings"] = [entry.put(couplings) for entry in known.entries]
        if children is not None:
            if known.child_entry is None:
                raise ValueError("children of this network cannot be replaced")
            if (shape := tuple(children.shape[1:])) != known.child_entry.shape:
                raise ValueError(f"expected children of {known.child_entry.shape}, got {shape}")
            puts["children"] = [known.child_entry.put(self._in_own_order(children, count))]
        with ALONE, ExitStack() as stack:
            stack.enter_context(self._with_iterations(iterations))
            modules = {one.module for one in listeners.values() if isinstance(one, OfModule)}
            variables = [one.variable for one in listeners.values() if isinstance(one, Watched)]
            heard: dict[Any, list] = {m: stack.enter_context(outputs_of(m)) for m in modules}
            heard |= stack.enter_context(watching(variables))
            taps = taps_of(known.readers, names)
            output, mode = self.passed(images, taps, changes=chain(*puts.values()))
        for what, changes in puts.items():
            if mode.reached.isdisjoint(one.site for one in changes):
                raise ValueError(
                    f"{what} were not replaced: this pass did not run the code that uses them"
                )
        readings = mode.readings | {p: one.read(heard, output) for p, one in listeners.items()}
        traced = self.joined(readings, count)
        if known.scores is not None:
            traced["lengths"] = known.scores(output)
        else:
            traced["lengths"] = traced["poses"][-1].norm(dim=-1)
        traced = {
            part: value[:, : images.shape[0]] if part in PER_ITERATION else value[: images.shape[0]]
            for part, value in traced.items()
        }
        if "reconstruction" in names and known.decode is not None:
            winners = traced["lengths"].argmax(1)
            traced["reconstruction"] = known.decode(traced["poses"][-1], winners)
        return traced

    def decode(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Reconstruct images (B, C, H, W) in [0, 1] from poses (B, J, E) of `classes` (B,)."""
        if self.inferred.decode is None:
            raise ValueError(
                "this network has no decoder that capsviz knows: give wrap decode=lambda poses, "
                "classes: images (B, C, H, W) in [0, 1]"
            )
        return self.inferred.decode(poses, classes)

    def receptive_field(self, row: int, column: int, *, layer: int = -1) -> tuple[slice, slice]:
        """Return the rows and columns of the image on which capsules at a position depend."""
        places = self.at(layer).inferred.places
        if places.grid is None:
            raise ValueError(
                "the capsules of this network have no positions: grid is None, so there are no maps"
            )
        return places.rows[row], places.columns[column]

    def capsules(self, images: Tensor, part: str) -> Tensor:
        """Return `part`, "primary" or "votes", as vectors (B, I, ·) in the network's own order."""
        taps = taps_of(self.inferred.readers, (part,))
        if not taps:
            return self.look(images, keep=(part,))[part].flatten(2)
        _, mode = self.passed(images, taps, until=(part, self.inferred.reads.get(part, 1)))
        return mode.readings[part][-1].flatten(2)

    def joined(self, readings: Mapping[str, list[Tensor]], count: int) -> dict[str, Tensor]:
        """Join the readings of each part for `count` images into one tensor, in grid order."""
        traced, order = {}, self.inferred.places.order
        for part, values in readings.items():
            if not values:
                continue
            values = [v.expand(count, *v.shape[1:]) for v in values]
            own = values[: self.inferred.reads.get(part, len(values))]  # without later layers
            whole = torch.stack(like_the_last(values)) if part in PER_ITERATION else own[-1]
            if order is not None and part != "poses":
                axis = 2 if part in PER_ITERATION else 1
                whole = whole.index_select(axis, order.to(whole.device))
            traced[part] = whole
        passes = len(traced["couplings"]) if "couplings" in traced else None
        if passes is not None and len(traced.get("logits", ())) != passes:
            traced.pop("logits", None)  # known for some iterations only
        if self.inferred.last_alone:
            traced |= {part: traced[part][-1:] for part in PER_ITERATION if part in traced}
        return traced

    def _checked_couplings(self, couplings: Tensor, count: int) -> Tensor:
        """Return couplings (B, I, J) in the network's own order; ValueError if they do not fit."""
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
        return self._in_own_order(couplings, count)

    def _in_own_order(self, values: Tensor, count: int) -> Tensor:
        """Return values (B, I, ·) with children in the network's own order.

        If there are fewer than `count` rows, the first is used for all images.
        """
        order = self.inferred.places.order
        if len(values) < count:
            values = values[:1].expand(count, -1, -1)
        if order is None:
            return values
        return values.index_select(1, order.argsort().to(values.device))

    @contextmanager
    def _with_iterations(self, iterations: int | None) -> Iterator[None]:
        """Set the number of routing iterations for a while; ValueError if it cannot be set."""
        known = self.inferred
        if iterations is None or iterations == known.passes:
            yield
            return
        if known.iterations is None or known.passes is None:
            raise ValueError(
                f"the number of routing iterations of this network cannot be changed, got "
                f"{iterations}: no attribute was found that sets it"
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
