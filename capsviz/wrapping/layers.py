"""Find capsule layers in a recorded pass: softmaxes that weight votes in each routing iteration.

Each softmax is followed through views, additions of no larger tensors (a bias) and scalings (by an
activation) to the first product with a larger tensor, which holds the votes. The axis summed
afterwards is the child axis. The other axis along which couplings differ is the parent axis.

Every product is written as an einsum. Its *frame* is the set of axes over which it multiplies
elementwise before it sums. Weights and votes are arranged to have these axes.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import torch
from numpy import broadcast_shapes  # several times faster than torch's
from torch import Tensor

from capsviz.wrapping.flow import (
    SUMS,
    Flow,
    Port,
    Roles,
    Step,
    arrange,
    axes_after,
    is_view,
    varying,
)
from capsviz.wrapping.leaves import replaced
from capsviz.wrapping.recorder import Event, inputs_of

BATCHES = (7, 11, 13)  # images in a recorded pass: primes, so that their axis can be identified
SMALLEST = ("add", "clamp", "clamp_min")


@dataclass(frozen=True)
class Product:
    """How one event multiplies its input at `position` with the others, as an einsum.

    Attributes
    ----------
    operands  letters of the axes of each input; an axis of size 1 is broadcast.
    output    letters of the axes of the result.
    scales    whether the event only scales the weights, before they multiply votes.
    """

    position: int
    operands: tuple[str, ...]
    output: str
    scales: bool = False

    @property
    def frame(self) -> str:
        """Letters of the frame: the axes of the result, then the summed ones."""
        return self.output + "".join(
            k for k in self.operands[self.position] if k not in self.output
        )

    @property
    def summed(self) -> tuple[int, ...]:
        """Axes of the frame that the event itself sums; () if a separate sum follows."""
        return tuple(range(len(self.output), len(self.frame)))

    def weights(self, inputs) -> Tensor:
        """Return the input at `position`, in the frame."""
        return arrange(inputs[self.position], tuple(self.operands[self.position]), self.frame)

    def others(self, inputs) -> Tensor:
        """Return the product of the other inputs, in the frame."""
        rest = [k for k in range(len(inputs)) if k != self.position]
        operands = [self.operands[k] for k in rest]
        if len(rest) == 1 and set(operands[0]) <= set(self.frame):
            return arrange(inputs[rest[0]], tuple(operands[0]), self.frame)
        kept = "".join(k for k in self.frame if k in set("".join(operands)))
        made = torch.einsum(",".join(operands) + "->" + kept, *(inputs[k] for k in rest))
        return arrange(made, tuple(kept), self.frame)

    def with_weights(self, function, args, kwargs, weights: Tensor):
        """Call the event with other weights, whose axes are those of the frame."""
        inputs, own = inputs_of(args, kwargs), self.operands[self.position]
        if self.scales:
            new = {id(inputs[self.position]): weights}
            return function(*replaced(args, new), **replaced(kwargs, new))
        keep = [k for k, n in enumerate(weights.shape) if n > 1 or self.frame[k] in own]
        operands = list(self.operands)
        inputs = [arrange(one, tuple(k), k) for one, k in zip(inputs, operands, strict=True)]
        operands[self.position] = "".join(self.frame[k] for k in keep)
        inputs[self.position] = weights.reshape([weights.shape[k] for k in keep])
        return torch.einsum(",".join(operands) + "->" + self.output, *inputs)


def product(event: Event, position: int) -> Product | None:
    """Return how an event multiplies the input at `position` with the others; None if not."""
    sizes = [t.dim() for t in event.inputs]
    letters, dims = string.ascii_letters, max(sizes, default=0)
    if event.name == "mul" and len(sizes) == 2:
        output = letters[:dims]
        return Product(position, tuple(output[dims - n :] for n in sizes), output)
    if event.name == "matmul" and len(sizes) == 2 and min(sizes) >= 2:
        batch, x, y, z = letters[: dims - 2], *letters[dims : dims + 3]
        operands = [batch[dims - n :] + end for n, end in zip(sizes, (x + y, y + z), strict=True)]
        return Product(position, tuple(operands), batch + x + z)
    if event.name == "einsum" and event.args and isinstance(event.args[0], str):
        equation = letters_of(event.args[0], sizes)
        if equation is not None and len(equation[0]) >= 2:
            return Product(position, *equation)
    return None


def letters_of(equation: str, sizes: list[int]) -> tuple[tuple[str, ...], str] | None:
    """Return operands and output of an einsum, with ellipses expanded; None for a diagonal."""
    text = equation.replace(" ", "")
    left, arrow, output = text.partition("->")
    operands = left.split(",")
    free = [k for k in string.ascii_uppercase + string.ascii_lowercase if k not in text]
    counts = [n - len(o) + 3 if "..." in o else 0 for o, n in zip(operands, sizes, strict=True)]
    dots = "".join(free[: max(counts)])
    written = [
        operand.replace("...", dots[len(dots) - count :])
        for operand, count in zip(operands, counts, strict=True)
    ]
    if not arrow:
        everything = "".join(written)
        single = sorted(k for k in set(everything) - set(dots) if everything.count(k) == 1)
        output = dots + "".join(single)
    if any(len(set(operand)) != len(operand) for operand in written):
        return None
    return tuple(written), output.replace("...", dots)


def roles_in(weights: Tensor, votes: Tensor, children, batch: int, classes: int) -> Roles | None:
    """Return the roles of the axes of a frame; None if it does not fit a capsule layer."""
    frame = broadcast_shapes(weights.shape, votes.shape)
    images = [k for k, n in enumerate(votes.shape) if n == batch and k not in children]
    if len(images) != 1 or any(weights.shape[axis] != frame[axis] for axis in children):
        return None
    rest = [k for k, n in enumerate(frame) if n > 1 and k not in (*children, *images)]
    wide = [k for k in rest if weights.shape[k] > 1]
    differ = [k for k in wide if not repeats(weights, k)]
    parents = wide if len(wide) == 1 else differ or [k for k in wide if frame[k] == classes]
    if not parents or (not differ and len(parents) > 1) or set(parents) == set(rest):
        return None
    names = dict.fromkeys(parents, "J") | dict.fromkeys(children, "I") | {images[0]: "B"}
    return tuple(names.get(k, "E" if n > 1 else ".") for k, n in enumerate(frame))


def repeats(tensor: Tensor, axis: int) -> bool:
    """Return whether a tensor is constant along an axis, up to rounding."""
    return bool(torch.allclose(tensor, tensor.narrow(axis, 0, 1), rtol=1e-6, atol=0))


def roles_of_total(
    event: Event, how: Product, views: list[Step], total: Event, roles: Roles
) -> Roles | None:
    """Return the roles of the axes of the sum over children; None if an axis mixes roles."""
    if how.summed:
        return roles[: len(how.output)]
    before = []
    for axes in axes_after(event.outputs[0], views, total.inputs[0]):
        own = {roles[axis] for axis in axes}
        if len(own) > 1:
            return None
        before.append(own.pop() if own else ".")
    if total.outputs[0].dim() == total.inputs[0].dim():
        return tuple("." if role == "I" else role for role in before)
    dims = summed_dims(total)
    return tuple(role for axis, role in enumerate(before) if axis not in dims)


def roles_before(start: Tensor, path: list[Step], how: Product, roles: Roles) -> Roles | None:
    """Return the roles of the axes of `start`, which a path leads to a product; None if mixed."""
    last = path[-1]
    end = last.event.inputs[last.position]
    letters = ["."] * start.dim()
    for letter, origins in zip(
        how.operands[how.position], axes_after(start, path[:-1], end), strict=True
    ):
        role = roles[how.frame.index(letter)]
        for origin in origins:
            if letters[origin] not in (".", role):
                return None
            letters[origin] = role
    return tuple(letters)


def summed_dims(event: Event) -> tuple[int, ...]:
    """Return the axes over which a sum or mean runs; () if it runs over all."""
    axes = event.kwargs.get("dim", event.kwargs.get("axis"))
    if axes is None and len(event.args) > 1:
        axes = event.args[1]
    axes = () if axes is None else (axes,) if isinstance(axes, int) else tuple(axes)
    return tuple(d % event.inputs[0].dim() for d in axes)


@dataclass(frozen=True)
class Round:
    """One routing iteration: weights times votes, summed over children.

    If couplings are scaled (by an activation) before they multiply votes, `entry` is the first
    scaling. Otherwise it is the product itself.
    """

    event: Event  # the product
    product: Product
    roles: Roles  # of the axes of the product's frame
    total: Event  # gives the sum over children
    total_roles: Roles
    entry: Event  # reads the couplings: the product, or the first scaling
    entry_product: Product
    entry_roles: Roles  # of the frame of that event
    softmax: Event | None  # None if there is none, as in EM's first iteration
    logits: tuple[Event, int, Roles] | None = (
        None  # the event that reads them, the input, its roles
    )
    biased: bool = False  # whether a tensor is added to the softmax
    normalised: bool = False  # whether the scale depends on the couplings
    whole: Roles | None = None  # of the softmax's output, if couplings are replaced there

    @property
    def scaled(self) -> bool:
        """Whether couplings are scaled before they weigh votes."""
        return self.entry is not self.event

    @cached_property
    def frame(self) -> tuple[int, ...]:
        """The shape of the product's frame."""
        how, inputs = self.product, self.event.inputs
        return broadcast_shapes(how.weights(inputs).shape, how.others(inputs).shape)

    def count(self, role: str) -> int:
        """Return the number of images for "B", children for "I", parents for "J"."""
        return size_of(role, self.frame, self.roles)


def size_of(role: str, shape: Sequence[int], roles: Roles) -> int:
    """Return the product of the sizes of all axes with this role."""
    return prod(n for n, own in zip(shape, roles, strict=True) if own == role)


def normalises(event: Event, flow: Flow) -> bool:
    """Return whether an event is a softmax: by name, as exp(log-softmax), or as exp / sum(exp)."""
    if event.name in ("softmax", "gumbel_softmax", "softmin"):
        return True
    if event.name == "exp":
        return _logarithm(event, flow) is not None
    if event.name != "div" or len(event.inputs) != 2:
        return False
    top, bottom = (flow.maker(event, k) for k in (0, 1))
    while bottom and bottom.name in SMALLEST and len(bottom.inputs) == 1:  # a guard against 0
        bottom = flow.maker(bottom, 0)
    if not top or not bottom or top.name != "exp" or bottom.name not in SUMS:
        return False
    whole = flow.maker(bottom, 0)
    return whole is top or (
        whole is not None and whole.name == "exp" and flow.base(whole, 0) == flow.base(top, 0)
    )


def _logarithm(event: Event, flow: Flow) -> Step | None:
    """Return the step that reads the logits of exp(log-softmax) or exp(x - logsumexp(x))."""
    source = flow.sources[event.index][0]
    inner = None if source is None else flow.events[source[0]]
    if inner is not None and inner.name == "log_softmax":
        return Step(inner, 0)
    if inner is None or inner.name != "sub" or len(inner.inputs) != 2:
        return None
    total = flow.maker(inner, 1)
    if total is None or total.name != "logsumexp":
        return None
    return Step(inner, 0) if flow.base(total, 0) == flow.base(inner, 0) else None


def weighed(flow: Flow, softmax: Event, batch: int, classes: int) -> Round | None:
    """Return the routing iteration in which a softmax weights votes; None if there is none."""
    # for each port: the steps to it, how many of them precede the entry, whether biased
    paths: dict[Port | None, tuple[list[Step], int | None, bool]] = {
        port: ([], None, False) for port in flow.ports(softmax)
    }
    for event in flow.events[softmax.index + 1 :]:
        for position, source in enumerate(flow.sources[event.index]):
            if source not in paths:
                continue
            steps, entry, biased = paths[source]
            steps = [*steps, Step(event, position)]
            turn = _round(flow, softmax, steps, entry, biased, batch, classes)
            if turn is not None:
                return turn
            kind = _passes(event, position)
            if kind is not None:
                if entry is None:
                    biased = biased or kind == "bias"
                    entry = len(steps) - 1 if kind == "scale" else None
                paths.update(dict.fromkeys(flow.ports(event), (steps, entry, biased)))
    return None


def _passes(event: Event, position: int) -> str | None:
    """Classify how an event passes couplings on: "view", "bias" or "scale"; None if it does not."""
    if is_view(event):
        return "view"
    own, out = event.inputs[position], event.outputs[0]
    others = [t for k, t in enumerate(event.inputs) if k != position]
    if event.name in ("add", "sub"):
        small = all(t.numel() <= own.numel() for t in others)
        return ("bias" if others else "view") if out.numel() == own.numel() and small else None
    if event.name == "mul" or (event.name == "div" and position == 0):
        if any(t is own for t in others):
            return None
        grown = out.numel() > own.numel() and any(t.numel() == out.numel() for t in others)
        return None if grown else "scale"
    return "scale" if event.name in ("clamp", "where", "masked_fill") else None


def _round(
    flow: Flow, softmax: Event, path: list[Step], entry: int | None, biased: bool, batch: int,
    classes: int,
) -> Round | None:  # fmt: skip
    """Return the iteration whose product is the last step of a path; None if it is not one."""
    event, position = path[-1]
    how = product(event, position)
    others = [k for k in range(len(event.inputs)) if k != position]
    if how is None or not any(flow.from_images(event, k) for k in others):
        return None
    weights, votes = how.weights(event.inputs), how.others(event.inputs)
    if any(v == 1 < w for v, w in zip(votes.shape, weights.shape, strict=True)):
        return None  # the other factor is no larger than the couplings: it only scales them
    totals = [(event, [], how.summed)] if how.summed else sums_after(flow, event)
    fits = [
        (total, steps, roles)
        for total, steps, children in totals
        if (roles := roles_in(weights, votes, children, batch, classes)) is not None
    ]
    if not fits:
        return None
    total, steps, roles = fits[0]
    total_roles = roles_of_total(event, how, steps, total, roles)
    goes_in, entry_product, before = event, how, path
    entry_roles: Roles | None = roles
    if entry is not None:
        goes_in, before = path[entry].event, path[: entry + 1]
        output, at = string.ascii_letters[: goes_in.outputs[0].dim()], path[entry].position
        operands = ("",) * at + (output[len(output) - goes_in.inputs[at].dim() :],)
        entry_product = Product(at, operands, output, scales=True)
        entry_roles = roles_before(goes_in.outputs[0], path[entry + 1 :], how, roles)
    if total_roles is None or entry_roles is None:
        return None
    logits = _logits(flow, softmax, before, entry_product, entry_roles)
    normalised = entry is not None and any(
        source is not None and softmax.index in {source[0], *flow.ancestors(source[0])}
        for k, source in enumerate(flow.sources[goes_in.index])
        if k != path[entry].position
    )
    turn = Round(
        event, how, roles, total, total_roles, goes_in, entry_product, entry_roles, softmax,
        logits, biased, normalised,
    )  # fmt: skip
    whole, shape = roles_before(softmax.outputs[0], path, how, roles), softmax.outputs[0].shape
    if whole is not None and size_of("I", shape, whole) > turn.count("I"):
        return None  # the product covers only some of the children
    if not normalised or whole is None or size_of("J", shape, whole) != turn.count("J"):
        return turn
    return replace(turn, whole=whole)


def _logits(
    flow: Flow, softmax: Event, path: list[Step], how: Product, roles: Roles
) -> tuple[Event, int, Roles] | None:
    """Return the logits of a softmax, at the first step back whose axes have distinct roles."""
    step = Step(softmax, 0)
    if softmax.name == "exp":
        inner = _logarithm(softmax, flow)
        if inner is None:  # not a softmax: the user named this function
            return None
        path, step = [step, *path], inner
    elif softmax.name != "softmax":
        return None
    while True:
        path = [step, *path]
        start = step.event.inputs[step.position]
        letters = roles_before(start, path, how, roles)
        if letters is not None:
            return step.event, step.position, letters
        source = flow.sources[step.event.index][step.position]
        if source is None or not is_view(flow.events[source[0]]):
            return None
        step = Step(flow.events[source[0]], 0)


def sums_after(flow: Flow, event: Event) -> list[tuple[Event, list[Step], tuple[int, ...]]]:
    """Return sums after a product: the event, the steps to it, and the summed axes of the product.

    Consecutive sums count as one sum over all their axes. The one over most axes comes first.
    """
    found: list[tuple[Event, list[Step], tuple[int, ...]]] = []
    left: list[tuple[Port, list[Step]]] = [((event.index, 0), [])]
    axes: set[int] = set()
    while left:
        port, steps = left.pop(0)
        for reader in flow.readers.get(port, []):
            after = ((reader.event.index, 0), [*steps, reader])
            if is_view(reader.event):
                left.append(after)
            elif reader.event.name in SUMS and (dims := summed_dims(reader.event)):
                along = axes_after(event.outputs[0], steps, reader.event.inputs[0])
                if more := set().union(*(along[d] for d in dims)) - axes:
                    axes |= more
                    found.insert(0, (reader.event, steps, tuple(sorted(axes))))
                    left = [after]
                    break
    return found


@dataclass
class Layer:
    """A routed layer: routing iterations over the same votes."""

    module: str
    children: int
    parents: int
    rounds: list[Round] = field(default_factory=list)
    weighing: str = "softmax"  # the function whose result multiplies the votes
    apart: Event | None = None  # a softmax whose couplings differ between pose components
    call: int = 0  # 1, 2, ... if one line of code routes several layers; else 0

    @property
    def place(self) -> str:
        """Module, file and line of the softmax."""
        softmaxes = [turn.softmax for turn in self.rounds if turn.softmax]
        place = (softmaxes or [self.rounds[-1].event])[-1].place
        return f"{place} ({self.call})" if self.call else place

    def leads_to(self, other: Layer, flow: Flow) -> bool:
        """Return whether another layer depends on this one's last sum."""
        return self.rounds[-1].total.index in flow.ancestors(other.rounds[0].total.index)

    @property
    def said_apart(self) -> str:
        """The error message for a softmax whose couplings differ between pose components."""
        assert self.apart is not None
        return (
            f"couplings differ between the numbers of a pose in {self.apart.place}: a child has no "
            "one coupling to a parent"
        )

    def __str__(self):
        count = len(self.rounds)
        return (
            f"{self.children} children to {self.parents} parents in {self.place}, "
            f"{count} iteration{'s' if count > 1 else ''}"
        )


def layers(flow: Flow, batch: int, classes: int, weighing: str = "softmax") -> list[Layer]:
    """Return all layers in which a softmax weights votes, in the order of their last product.

    The axis of length `batch` is the image axis. If all couplings are equal, the axis of length
    `classes` is the parent axis. `weighing` names another torch function in place of the softmax,
    such as "sigmoid".
    """
    collected: list[Layer] = []
    refused = []
    for event in flow.events:
        if normalises(event, flow) if weighing == "softmax" else event.name == weighing:
            turn = weighed(flow, event, batch, classes)
            if turn is not None:
                _put(flow, collected, turn)
            else:
                refused.append(event)
    collected = [one for one in collected if not any(_agrees(flow, one, own) for own in collected)]
    known = {turn.event.index for layer in collected for turn in layer.rounds}
    for layer in collected:
        layer.weighing = weighing
        layer.apart = next((one for one in refused if _is_apart(flow, layer, one)), None)
        _add_unweighed(flow, layer, known)
        layer.rounds.sort(key=lambda turn: turn.event.index)
    collected.sort(key=lambda layer: layer.rounds[-1].event.index)
    places = [layer.place for layer in collected]
    for k, (place, layer) in enumerate(zip(places, collected, strict=True)):
        layer.call = places[: k + 1].count(place) if places.count(place) > 1 else 0
    return collected


def _put(flow: Flow, collected: list[Layer], turn: Round) -> None:
    """Add an iteration to the layer whose votes it uses, or begin a new layer."""
    for layer in collected:
        last = layer.rounds[-1]
        if any(other.event is turn.event for other in layer.rounds):
            return
        own = layer.module == turn.event.site.module
        alike = (layer.children, layer.parents) == (turn.count("I"), turn.count("J"))
        if alike and bool(last.product.summed) == bool(turn.product.summed):
            shared = votes_base(flow, last) == votes_base(flow, turn)
            after = last.total.index in flow.ancestors(turn.event.index)
            # separate modules are one layer if they use the same votes one after the other
            if (shared and (own or after)) or (
                own and after and not _votes_of(flow, turn, last.total)
            ):
                layer.rounds.append(turn)
                return
    module = turn.event.site.module
    collected.append(Layer(module, turn.count("I"), turn.count("J"), [turn]))


def _agrees(flow: Flow, layer: Layer, own: Layer) -> bool:
    """Return whether a layer is only the agreement step of another one.

    There a softmax of the other layer's sums (as poses) multiplies the same votes.
    """
    first, other = layer.rounds[0], own.rounds[0]
    return (
        (layer.children, layer.parents) != (own.children, own.parents)
        and other.total.index in flow.ancestors(first.event.index)
        and votes_base(flow, first) == votes_base(flow, other)
    )


def _votes_of(flow: Flow, turn: Round, total: Event) -> bool:
    """Return whether votes depend on the sum `total`, and so belong to a later layer."""
    source = flow.sources[turn.event.index][voting(flow, turn)]
    return source is not None and total.index in {source[0], *flow.ancestors(source[0])}


def votes_base(flow: Flow, turn: Round) -> Port | int:
    """Return the port (or tensor id) that made the votes of an iteration, before any views."""
    return flow.base(turn.event, voting(flow, turn))


def voting(flow: Flow, turn: Round) -> int:
    """Return the index of a product's input that holds votes, or children that an einsum maps."""
    others = [k for k in range(len(turn.event.inputs)) if k != turn.product.position]
    return next((k for k in others if flow.from_images(turn.event, k)), others[0])


def _is_apart(flow: Flow, layer: Layer, softmax: Event) -> bool:
    """Return whether a softmax weights the layer's votes differently for each pose component."""
    first = layer.rounds[0]
    base = votes_base(flow, first)
    for event, position in flow.steps_from(flow.ports(softmax)):
        weights = event.inputs[position]
        if tuple(weights.shape) == first.frame and any(
            flow.base(event, k) == base for k in range(len(event.inputs)) if k != position
        ):
            return any(first.roles[axis] == "E" for axis in varying(weights))
    return False


def _add_unweighed(flow: Flow, layer: Layer, known: set[int]) -> None:
    """Add iterations at the same sites without a softmax, such as the first iteration of EM.

    `known` holds the event indices of the products of all layers; new ones are added to it.
    """
    for turn in list(layer.rounds):
        for event in flow.events:
            if event.index in known or event.site != turn.event.site:
                continue
            earlier = [e for e in flow.events[: event.index + 1] if e.site == turn.entry.site]
            sums = [total for total, _, _ in sums_after(flow, event)]
            totals = [event] if turn.product.summed else sums
            if earlier and totals:
                total = next((one for one in totals if one.site == turn.total.site), totals[-1])
                known.add(event.index)
                first = replace(turn, event=event, total=total, entry=earlier[-1], softmax=None)
                layer.rounds.append(replace(first, logits=None))


def chosen(own: list[Layer], flow: Flow, pair: str | None) -> Layer:
    """Return the layer that `pair` names, or the last one if the others lead to it."""
    listed = "; ".join(map(str, own))
    if pair is not None:
        fits = [layer for layer in own if layer.module == pair]
        fits = fits or [layer for layer in own if pair in layer.place]
        if len(fits) != 1:
            raise ValueError(f"pair '{pair}' names {len(fits)} of the softmaxes: {listed}")
        return fits[0]
    last = own[-1]
    aside = [layer for layer in own[:-1] if not layer.leads_to(last, flow)]
    if aside:
        raise ValueError(
            f"{len(own)} softmaxes have an equal claim: {listed}; say which one by pair="
        )
    entry = last.rounds[-1].entry
    here = {e.index for e in flow.events if e.site == entry.site}
    if here - {turn.entry.index for turn in last.rounds}:
        raise ValueError(
            f"one line of one module, {entry.place}, routes several layers, which "
            "capsviz distinguishes by their modules: make each layer a module of its own"
        )
    return last


def seen(flow: Flow, known: list[Layer], weighing: str = "softmax") -> str:
    """Describe the softmaxes that weight no votes, and the known layers, for an error message."""
    places = {turn.softmax.place for one in known for turn in one.rounds if turn.softmax}
    own = [e for e in flow.events if e.name == weighing and e.place not in places]
    others = [f"{e.place} of shape {tuple(e.outputs[0].shape)}" for e in own]
    where = f"; {weighing} in {', '.join(dict.fromkeys(others))} weighs none" if others else ""
    return where + "".join(f"; {layer}" for layer in known)


class Recorded(NamedTuple):
    """One recorded pass over B images, its routed layers, and the layer in use."""

    images: Tensor  # (B, C, H, W) in [0, 1], before `normalise`
    output: Any
    flow: Flow
    layers: list[Layer]  # empty if no softmax was searched for
    layer: Layer | None = None

    @property
    def others(self) -> list[Layer]:
        """All layers except the one in use."""
        return [one for one in self.layers if one is not self.layer]


class Place(NamedTuple):
    """A tensor of a recorded pass: an input of an event, or its output for position -1."""

    event: Event
    position: int
    roles: Roles

    @property
    def tensor(self) -> Tensor:
        """The recorded tensor."""
        return self.event.outputs[0] if self.position < 0 else self.event.inputs[self.position]

    @property
    def made(self) -> str:
        """A description of the event that made or read the tensor, and its place in the code."""
        how = "made by" if self.position < 0 else "what is given to"
        return f"{how} {self.event.name} in {self.event.place}"
