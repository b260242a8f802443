"""Children before the votes of a layer, poses after its sum: where they are, in which layout."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from capsviz.foreign.flow import Flow, Step, axes_after, is_view, varying
from capsviz.foreign.layers import voting
from capsviz.foreign.layout import Roles, arrange
from capsviz.foreign.products import letters_of, product
from capsviz.foreign.recorder import Event
from capsviz.foreign.roles import summed_dims
from capsviz.foreign.rounds import SUMS, Round

KEEPING = frozenset(
    ("relu", "leaky_relu", "elu", "gelu", "tanh", "layer_norm", "batch_norm", "instance_norm",
     "group_norm", "normalize", "nan_to_num", "clamp")
)  # fmt: skip
MASKS = frozenset(("where", "masked_fill", "einsum"))  # where they give zeros


class Place(NamedTuple):
    """A tensor of the pass: an input of an event, or its output for position -1."""

    event: Event
    position: int
    roles: Roles

    @property
    def tensor(self) -> Tensor:
        """As recorded."""
        return self.event.outputs[0] if self.position < 0 else self.event.inputs[self.position]


class Masked(NamedTuple):
    """Where poses become what a decoder gets: one pose an image in its class's place, or alone."""

    event: Event
    roles: Roles
    alone: bool


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
            return Place(event, at[0], _letters(own_roles))
        else:
            return f"votes come from {event.name} in {event.place}"
        source = flow.sources[event.index][at[0]]
    return "votes come from no product with weights"


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
        return [set() if n == 1 else r for n, r in zip(own.shape, roles[-own.dim() :], strict=True)]
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


def poses(flow: Flow, turn: Round) -> tuple[Place, list[Masked]]:
    """The pose that a pass makes of its sum, and where it is masked for a decoder.

    From the sum forward through what keeps its direction or shape: squash, norms, rearrangements.
    """
    total, last = turn.total, Place(turn.total, -1, turn.total_roles)
    size = total.outputs[0].numel()
    paths: dict = {(total.index, 0): []}
    masked: list[Masked] = []
    for event in flow.events[total.index + 1 :]:
        for position, source in enumerate(flow.sources[event.index]):
            if source not in paths:
                continue
            path = [*paths[source], Step(event, position)]
            if event.outputs[0].numel() == size and _keeps(flow, event, position):
                roles = _along(turn, path)
                if roles is None:
                    continue
                mask = not is_view(event) and not _rewritten(flow, event)
                if mask and _is_masked(event, position, roles):
                    masked.append(Masked(event, roles, alone=False))
                    continue
                paths[(event.index, 0)] = path
                if not is_view(event):
                    last = Place(event, -1, roles)
            elif _is_selected(flow, turn, event, paths[source]):
                masked.append(Masked(event, (), alone=True))
            break
    return last, masked


def _keeps(flow: Flow, event: Event, position: int) -> bool:
    """Whether an event makes of poses what are still poses."""
    if is_view(event):
        return True
    if event.name in KEEPING:
        return position == 0
    if event.name in MASKS:
        out = event.outputs[0]
        return out.shape == event.inputs[position].shape and bool((out == 0).any())
    own, others = event.inputs[position], [t for k, t in enumerate(event.inputs) if k != position]
    if event.name in ("add", "sub"):
        return not any(
            flow.from_images(event, k) for k in range(len(event.inputs)) if k != position
        )
    if event.name == "mul" or (event.name == "div" and position == 0):
        if any(t is own for t in others):
            return False
        small = all(t.numel() < own.numel() for t in others)
        fixed = not any(
            flow.from_images(event, k) for k in range(len(event.inputs)) if k != position
        )
        return small or fixed or bool((event.outputs[0] == 0).any())
    return False


def _along(turn: Round, path: list[Step]) -> Roles | None:
    start = turn.total.outputs[0]
    own_roles = []
    for axes in axes_after(start, path, path[-1].event.outputs[0]):
        own = {turn.total_roles[axis] for axis in axes}
        if len(own) > 1:
            return None
        own_roles.append(own.pop() if own else ".")
    return tuple(own_roles)


def rows(tensor: Tensor, roles: Roles) -> Tensor:
    """Poses in a layout -> (B, J, E)."""
    return arrange(tensor, roles, "BJE", {})


def _is_masked(event: Event, position: int, roles: Roles) -> bool:
    after = rows(event.outputs[0], roles).abs().sum(2)
    if after.shape[1] < 2 or not ((after > 0).sum(1) <= 1).all():
        return False
    own = event.inputs[position]
    if own.data_ptr() == event.outputs[0].data_ptr():  # in place: what it was is overwritten
        return True
    before = rows(own.expand_as(event.outputs[0]), roles).abs().sum(2)
    return bool(((before > 0).sum(1) > 1).any())


def _rewritten(flow: Flow, event: Event) -> bool:
    """Whether a later event writes into what this one gave, so that it is no more what it was."""
    own = event.outputs[0].data_ptr()
    return any(
        later.outputs[0].data_ptr() == own and not is_view(later)
        for later in flow.events[event.index + 1 :]
    )


def _is_selected(flow: Flow, turn: Round, event: Event, path: list[Step]) -> bool:
    """Whether an event picks one pose of each image."""
    roles = _along(turn, path) if path else turn.total_roles
    if roles is None:
        return False
    own = rows(path[-1].event.outputs[0] if path else turn.total.outputs[0], roles)
    batch, _, numbers = own.shape
    rows_of_one = event.outputs[0]
    if rows_of_one.numel() != batch * numbers or not rows_of_one.is_floating_point():
        return False
    rows_of_one = rows_of_one.reshape(batch, 1, numbers)
    return bool((own == rows_of_one).all(2).any(1).all())
