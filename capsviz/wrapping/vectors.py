"""Children before the votes of a layer: where they are, in which layout."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from capsviz.wrapping.flow import Flow, Step, axes_after, is_view, varying
from capsviz.wrapping.layers import voting
from capsviz.wrapping.layout import Roles
from capsviz.wrapping.products import letters_of, product
from capsviz.wrapping.recorder import Event
from capsviz.wrapping.roles import summed_dims
from capsviz.wrapping.rounds import SUMS, Round


class Place(NamedTuple):
    """A tensor of the pass: an input of an event, or its output for position -1."""

    event: Event
    position: int
    roles: Roles

    @property
    def tensor(self) -> Tensor:
        """As recorded."""
        return self.event.outputs[0] if self.position < 0 else self.event.inputs[self.position]


def children(flow: Flow, turn: Round) -> Place | str:
    """The children of a layer, before the product with its matrices; or why they are not seen."""
    position = voting(flow, turn.event, turn.product)
    if turn.product.kind == "einsum" and len(turn.event.inputs) > 2:
        known = dict(zip(turn.product.letters, turn.roles, strict=True))
        letters = turn.product.operands[position]
        roles = tuple({"E": "D"}.get(known.get(k, "D"), known.get(k, "D")) for k in letters)
        return Place(turn.event, position, roles)
    roles = [set(role) - {"."} for role in _roles_of_votes(turn, position)]
    source = flow.sources[turn.event.index][position]
    while source is not None and source[0] in flow.derived:
        event = flow.events[source[0]]
        at = [k for k in range(len(event.inputs)) if flow.from_images(event, k)]
        if not at:
            break
        if is_view(event):
            along = axes_after(event.inputs[at[0]], [Step(event, at[0])], event.outputs[source[1]])
            own = event.inputs[at[0]]
            roles = [
                set().union(*(r for r, axes in zip(roles, along, strict=True) if axis in axes))
                for axis in range(own.dim())
            ]
        elif event.name in ("add", "sub"):
            at.sort(key=lambda k: -event.inputs[k].numel())
            roles = roles[len(roles) - event.inputs[at[0]].dim() :]
        elif event.name in SUMS:
            kept = event.outputs[0].dim() == event.inputs[0].dim()
            for dim in sorted(summed_dims(event)):
                roles[dim : dim + kept] = [{"D"}]
        elif len(at) == 1 and (own_roles := _before_matrices(event, at[0], roles)) is not None:
            place = Place(event, at[0], _letters(own_roles))
            if _count(place, "I") == turn.count("I"):
                return place
            return f"votes are put together of several products, as {event.name} in {event.place}"
        else:
            return f"votes come from {event.name} in {event.place}"
        source = flow.sources[event.index][at[0]]
    return "votes come from no product with weights"


def _count(place: Place, role: str) -> int:
    return prod(n for n, own in zip(place.tensor.shape, place.roles, strict=True) if own == role)


def _roles_of_votes(turn: Round, position: int) -> list[str]:
    """Roles of the axes of the operand that holds the votes."""
    own, roles = turn.event.inputs[position], []
    for axis, size in enumerate(own.shape):
        inputs = list(turn.event.inputs)
        shape = [-1 if k == axis else 1 for k in range(own.dim())]
        inputs[position] = torch.arange(float(size)).view(shape).expand(own.shape)
        inside = turn.product.others(inputs)
        inside = inside.reshape((1,) * (len(turn.roles) - inside.dim()) + tuple(inside.shape))
        roles.append("".join(turn.roles[k] for k in varying(inside)) or ".")
    return roles


def _before_matrices(event: Event, position: int, roles: list[set]) -> list[set] | None:
    """Roles of the input of a product with weights, from those of what it gives."""
    own = event.inputs[position]
    if event.name == "linear":
        return [*roles[:-1], {"D"}]
    how = product(event, position)
    if how is None:
        return None
    if how.kind == "mul":
        differs = varying(own)  # where children are tiled, an axis holds repeats alone
        return [
            r if n > 1 and (r & {"B", "I"} or axis in differs) else set()
            for axis, (n, r) in enumerate(zip(own.shape, roles[-own.dim() :], strict=True))
        ]
    if how.kind == "einsum":
        _, output = letters_of(event.args[0], [t.shape for t in event.inputs])
        known = dict(zip(output, roles, strict=True))
        return [known.get(letter, {"D"}) for letter in how.operands[position]]
    outer = roles[: len(roles) - 2][-(own.dim() - 2) or len(roles) :]
    left = how.kind == "left"
    return [*outer, roles[-2], {"D"}] if left else [*outer, {"D"}, roles[-1]]


def _letters(roles: list[set]) -> Roles:
    """One letter an axis: what is neither image nor child is a number of the child's pose."""

    def letter(own: set) -> str:
        if own <= {"J"}:
            return "."
        return own.pop() if len(own) == 1 and own <= {"B", "I"} else "D"

    return tuple(letter(set(own)) for own in roles)
