"""Find children before the votes of a layer, and poses after the sum over children.

From the sum, poses are followed through whatever keeps their direction or shape: squash, norms,
rearrangements. A squash can be written in many ways, so what no rule follows is followed by value:
numbers that are parallel to the poses found so far, capsule by capsule.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from capsviz.tracing.verification import allowed
from capsviz.wrapping.flow import (
    SUMS,
    Flow,
    Port,
    Roles,
    Step,
    arrange,
    axes_after,
    is_view,
    storage,
    varying,
)
from capsviz.wrapping.layers import Place, Round, voting
from capsviz.wrapping.products import product, summed_dims
from capsviz.wrapping.recorder import Event

KEEPING = frozenset(
    ("relu", "leaky_relu", "elu", "gelu", "tanh", "layer_norm", "batch_norm", "instance_norm",
     "group_norm", "normalize", "nan_to_num", "clamp")
)  # fmt: skip
MASKS = frozenset(("where", "masked_fill", "einsum"))  # where their result has zeros
PARALLEL = 1e-5  # 1 - cosine, at most


def children(flow: Flow, turn: Round) -> Place | str:
    """Return the children of a layer, before the product with matrices; or why none are found."""
    position = voting(flow, turn.event, turn.product)
    if turn.product.kind == "einsum" and len(turn.event.inputs) > 2:
        known = dict(zip(turn.product.letters, turn.roles, strict=True))
        letters = turn.product.operands[position]
        own_letters = tuple(known.get(k, "D").replace("E", "D") for k in letters)
        return Place(turn.event, position, own_letters)
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
    """Return the roles of the axes of the operand that holds the votes."""
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
    """Return the roles of the input of a product with weights, given those of its result."""
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
        known = dict(zip(how.output, roles, strict=True))
        return [known.get(letter, {"D"}) for letter in how.operands[position]]
    outer = roles[: len(roles) - 2][-(own.dim() - 2) or len(roles) :]
    left = how.kind == "left"
    return [*outer, roles[-2], {"D"}] if left else [*outer, {"D"}, roles[-1]]


def _letters(roles: list[set]) -> Roles:
    """Return one letter for each axis: D for all but images, children and parents."""

    def letter(own: set) -> str:
        if own <= {"J"}:
            return "."
        return own.pop() if len(own) == 1 and own <= {"B", "I"} else "D"

    return tuple(letter(set(own)) for own in roles)


class Masked(NamedTuple):
    """Where poses become the input of a decoder: one pose an image, others 0, or that one alone."""

    event: Event
    roles: Roles
    alone: bool


class Followed(NamedTuple):
    """The tensors that the sum of one iteration leads to."""

    last: Place  # the last that a rule follows
    alike: list[Place]  # later ones, parallel to it
    masked: list[Masked]


class Poses(NamedTuple):
    """The poses of all iterations of a layer."""

    places: list[Place]
    masked: list[Masked]
    doubt: str | None  # why these may be no poses


def poses(flow: Flow, rounds: list[Round], scores: list[Tensor], output: list[Tensor]) -> Poses:
    """Find the poses of each iteration.

    Of several parallel tensors, the poses are those whose norms are the scores; without scores,
    those that the network returns. If neither fits what rules and values follow, other functions of
    the sum are tried: a squash of each number, a linear map, a batch norm.

    Parameters
    ----------
    scores  (B, J), candidates for the scores of the recorded pass.
    output  all tensors that the network returned.
    """
    ends = [later.total.index for later in rounds[1:]] + [len(flow.events)]
    passes = [followed(flow, turn, end) for turn, end in zip(rounds, ends, strict=True)]
    masked = [mask for one in passes for mask in one.masked]
    places, last, doubt = [one.last for one in passes], passes[-1], None
    for chosen in reversed(_fitting(last, scores, output)):
        others = [_as(chosen, rounds[-1], *pair) for pair in zip(passes, rounds, strict=True)][:-1]
        sites = {(place.event.site, place.event.name) for place in (*others, chosen)}
        if sum((event.site, event.name) in sites for event in flow.events) == len(rounds):
            return Poses([*others, chosen], [*by_value(flow, chosen), *masked], None)
    if _are_lengths(last.last, scores) or any(_shows(last.last, one) for one in output):
        return Poses(places, [*by_value(flow, last.last), *masked], None)
    kept = {mask.event.index for mask in [*masked, *by_value(flow, last.last)]}
    later = [one for one in _functions(flow, rounds[-1], last.last) if one.event.index not in kept]
    fits = [place for place in later if _are_lengths(place, scores)][:1]
    fits = fits or _returned(flow, rounds[-1], output)
    fits = [place for place in fits if not _is_stacked(place, rounds)]
    if len(fits) == 1:
        (place,) = fits
        same = [e for e in flow.events if (e.site, e.name) == (place.event.site, place.event.name)]
        if len(same) == len(rounds):
            places = [place._replace(event=event) for event in same]
        else:
            places = fits
        return Poses(places, by_value(flow, place), None)
    if others := last.alike or fits or later:
        where = ", ".join(dict.fromkeys(one.event.where for one in others))
        what = "tensors parallel to them" if last.alike else "functions of them"
        doubt = f"{what} in {where} may be the poses: name them by poses="
    return Poses(places, [*by_value(flow, last.last), *masked], doubt)


def _functions(flow: Flow, turn: Round, poses: Place) -> list[Place]:
    """Return tensors (B, J, E) that are made of the sum of an iteration alone, after some poses.

    Squares that are only summed are left out: they give norms.
    """
    alone, result = {turn.total.index}, []
    for event in flow.events[turn.total.index + 1 :]:
        made = [source for source in flow.sources[event.index] if source is not None]
        made = [source for source in made if source[0] in flow.derived]
        if not made or not all(source[0] in alone for source in made):
            continue
        alone.add(event.index)
        roles = _as_poses(turn, event.outputs[0])
        if roles is None or is_view(event) or event.index <= poses.event.index:
            continue
        readers = {step.event.name for step in flow.readers.get((event.index, 0), [])}
        if readers and not (event.name in ("pow", "square", "mul", "abs") and readers <= {*SUMS}):
            result.append(Place(event, -1, roles))
    return result


def _returned(flow: Flow, turn: Round, output: list[Tensor]) -> list[Place]:
    """Return tensors (B, J, E) of the output that come from the sum of an iteration, not masked."""
    after, result = flow.descendants(turn.total.index), []
    for tensor in output:
        port, roles = flow.port(tensor), _as_poses(turn, tensor)
        if port is None or port[1] or port[0] not in after or roles is None:
            continue
        if bool(((rows(tensor, roles) != 0).any(2).sum(1) > 1).any()):
            result.append(Place(flow.events[port[0]], -1, roles))
    return result


def _is_stacked(place: Place, rounds: list[Round]) -> bool:
    """Return whether a tensor may hold a number (B, J) of each iteration instead of poses."""
    size = rows(place.tensor, place.roles).shape[2]
    return size == len(rounds) != rounds[-1].count("E")


def _as_poses(turn: Round, tensor: Tensor) -> Roles | None:
    """Return the roles of a tensor whose axes have the lengths of poses (B, J, E); else None."""
    roles, rest = ["."] * tensor.dim(), 1
    for axis, size in enumerate(tensor.shape):
        if size > 1:
            known = (role for role in "BJ" if role not in roles and turn.count(role) == size)
            roles[axis] = next(known, "E")
            rest *= size if roles[axis] == "E" else 1
    fits = {"B", "J"} <= set(roles) and 1 < rest < turn.count("I") and tensor.is_floating_point()
    return tuple(roles) if fits else None


def _fitting(last: Followed, scores: list[Tensor], output: list[Tensor]) -> list[Place]:
    """Return later tensors that fit scores or output better than the last one found by a rule."""
    if _are_lengths(last.last, scores):
        return []
    if scores:
        return [place for place in last.alike if _are_lengths(place, scores)]
    return [place for place in last.alike if any(_shows(place, one) for one in output)]


def _are_lengths(place: Place, scores: list[Tensor]) -> bool:
    norms = rows(place.tensor, place.roles).norm(dim=2)
    same = allowed([norms, *scores])
    return any(
        norms.shape == one.shape and float((norms - one).abs().max()) < same for one in scores
    )


def _shows(place: Place, output: Tensor) -> bool:
    """Return whether an output of the network holds these poses."""
    if output is place.tensor:
        return True
    roles = parallel(place, output)
    return roles is not None and torch.allclose(
        rows(output, roles), rows(place.tensor, place.roles).to(output)
    )


def _as(chosen: Place, turn: Round, one: Followed, other: Round) -> Place:
    """Return the counterpart of `chosen` in another iteration: by its site, or by its norms."""
    known = [one.last, *one.alike]
    same = (chosen.event.site, chosen.event.name)
    for place in known:
        if (place.event.site, place.event.name) == same and place.position == chosen.position:
            return place
    before, after = _norms(Place(turn.total, -1, turn.total_roles)), _norms(chosen)
    order = before.argsort()
    expected = np.interp(
        _norms(Place(other.total, -1, other.total_roles)), before[order], after[order]
    )
    return min(known, key=lambda place: float(np.median(np.abs(_norms(place) - expected))))


def _norms(place: Place) -> np.ndarray:
    return rows(place.tensor, place.roles).double().norm(dim=2).flatten().cpu().numpy()


class Path(NamedTuple):
    """Steps from a tensor whose axes are known; `by_value` if it was found by its values."""

    start: Tensor
    roles: Roles
    steps: list[Step]
    by_value: bool


def followed(flow: Flow, turn: Round, end: int) -> Followed:
    """Follow the sum of an iteration; by value, as far as the event of number `end`."""
    total, last = turn.total, Place(turn.total, -1, turn.total_roles)
    size = total.outputs[0].numel()
    paths: dict[Port | int, Path] = {
        (total.index, 0): Path(total.outputs[0], turn.total_roles, [], False)
    }
    reached: set[int] = {total.index}
    masked: list[Masked] = []
    alike: list[Place] = []

    def by_value(event: Event, position: int, key: Port | int) -> None:
        place = Place(event, position, ())
        if (roles := parallel(last, place.tensor)) is not None:
            alike.append(place._replace(roles=roles))
            paths.setdefault(key, Path(place.tensor, roles, [], True))

    for event in flow.events[total.index + 1 :]:
        sources = _sources(flow, event)
        if any(isinstance(source, tuple) and source[0] in reached for source in sources):
            reached.add(event.index)
        for position, key in enumerate(sources):  # inputs that no recorded function made
            if event.index < end and _hidden(flow, event, position, size):
                by_value(event, position, key)
        own, known = (event.index, 0), False
        for position, source in enumerate(sources):
            if source not in paths:
                continue
            path = paths[source]
            longer = path._replace(steps=[*path.steps, Step(event, position)])
            if event.outputs[0].numel() == size and _keeps(flow, event, position):
                if (roles := _along(longer)) is None:
                    continue
                known, fresh, place = True, not is_view(event), Place(event, -1, roles)
                if fresh and not _rewritten(flow, event) and _is_masked(event, position, roles):
                    masked.append(Masked(event, roles, alone=False))
                    continue
                paths[own] = longer
                if fresh and not path.by_value:
                    last = place
                elif fresh and event.index < end and parallel(last, place.tensor):
                    alike.append(place)
            elif _is_selected(flow, event, position, path):
                masked.append(Masked(event, (), alone=True))
                known = True
            break
        made = event.index in reached and not _is_allocation(event)
        if made and not known and event.index < end:
            by_value(event, -1, own)
    return Followed(last, alike, masked)


def _sources(flow: Flow, event: Event) -> list[Port | int]:
    """Return what made each input; the tensor's id where nothing recorded did."""
    sources = flow.sources[event.index]
    return [id(t) if s is None else s for t, s in zip(event.inputs, sources, strict=True)]


def _hidden(flow: Flow, event: Event, position: int, size: int) -> bool:
    """Return whether an input as large was made unrecorded: in a scripted function, or by index."""
    own = event.inputs[position]
    if own.numel() != size or isinstance(own, nn.Parameter):
        return False
    source = flow.sources[event.index][position]
    if source is None or not flow.from_images(event, position):
        return True
    return _is_allocation(flow.events[source[0]])


def _is_allocation(event: Event) -> bool:
    """Return whether an event allocates numbers that are written later."""
    return event.name.endswith("_like") or event.name.startswith("new_")


def parallel(place: Place, tensor: Tensor) -> Roles | None:
    """Return the roles of the axes of a tensor whose vectors are parallel to those of a place."""
    own = place.tensor
    if tensor is own or tensor.numel() != own.numel() or not tensor.is_floating_point():
        return None
    expected = rows(own, place.roles).double()
    if expected.shape[2] < 2 or not expected.isfinite().all():
        return None
    tolerance = max(PARALLEL, torch.finfo(own.dtype).eps)
    for roles in layouts(place, tensor):
        other = rows(tensor, roles).double()
        long, short = expected.norm(dim=2), other.norm(dim=2)
        alike = (other * expected).sum(2) >= (1 - tolerance) * long * short
        if bool(alike.all() and long.any() and ((long > 0) == (short > 0)).all()):
            return roles
    return None


def layouts(place: Place, tensor: Tensor) -> Iterator[Roles]:
    """Yield the roles that the axes of a tensor may have, if it is a rearrangement of a place."""
    wide = [(role, n) for role, n in zip(place.roles, place.tensor.shape, strict=True) if n > 1]
    for order in permutations(wide):
        if [n for _, n in order] == [n for n in tensor.shape if n > 1]:
            left = iter(role for role, _ in order)
            yield tuple(next(left) if n > 1 else "." for n in tensor.shape)


def _keeps(flow: Flow, event: Event, position: int) -> bool:
    """Return whether an event turns poses into poses."""
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


def _along(path: Path) -> Roles | None:
    """Return the roles at the end of a path; None if it mixes them."""
    own_roles = []
    for axes in axes_after(path.start, path.steps, path.steps[-1].event.outputs[0]):
        own = {path.roles[axis] for axis in axes}
        if len(own) > 1:
            return None
        own_roles.append(own.pop() if own else ".")
    return tuple(own_roles)


def rows(tensor: Tensor, roles: Roles) -> Tensor:
    """Arrange poses as (B, J, E)."""
    return arrange(tensor, roles, "BJE")


def _is_masked(event: Event, position: int, roles: Roles) -> bool:
    after = rows(event.outputs[0], roles).abs().sum(2)
    if after.shape[1] < 2 or not ((after > 0).sum(1) <= 1).all():
        return False
    own = event.inputs[position]
    if storage(own) == storage(event.outputs[0]):  # in place: what it was is overwritten
        return True
    before = rows(own.expand_as(event.outputs[0]), roles).abs().sum(2)
    return bool(((before > 0).sum(1) > 1).any())


def _rewritten(flow: Flow, event: Event) -> bool:
    """Return whether a later event overwrites the result of this one."""
    own = storage(event.outputs[0])
    return any(
        storage(later.outputs[0]) == own and not is_view(later)
        for later in flow.events[event.index + 1 :]
    )


def _is_selected(flow: Flow, event: Event, position: int, path: Path) -> bool:
    """Return whether an event picks one pose of each image, not the same class's for all."""
    roles = _along(path) if path.steps else path.roles
    if roles is None:
        return False
    own = rows(path.steps[-1].event.outputs[0] if path.steps else path.start, roles)
    others = [k for k in range(len(event.inputs)) if k != position]
    by_image = any(flow.from_images(event, k) for k in others)
    return picks(event.outputs[0], own, by_image=by_image)


def picks(tensor: Tensor, own: Tensor, *, by_image: bool = False) -> bool:
    """Return whether a tensor holds one of the poses (B, J, E) of each image.

    The class must differ between images, be that of the longest pose, or be chosen `by_image`.
    """
    batch, _, numbers = own.shape
    if tensor.numel() != batch * numbers or not tensor.is_floating_point():
        return False
    chosen = (own == tensor.to(own).reshape(batch, 1, numbers)).all(2)
    longest = chosen[torch.arange(batch), own.norm(dim=2).argmax(1)]
    several = by_image or not bool(chosen.all(0).any())
    return bool(chosen.any(1).all()) and (several or bool(longest.all()))


def by_value(flow: Flow, poses: Place) -> list[Masked]:
    """Return events whose result holds one of these poses of each image, the others 0 or left out.

    `kept[rows, classes] = v[rows, classes]` returns no tensor, so it is not recorded. The tensor
    that was allocated before it holds the kept poses afterwards.
    """
    own, result = rows(poses.tensor, poses.roles), []
    if own.shape[1] < 2:
        return []
    for event in flow.events:
        tensor = event.outputs[0]
        if not tensor.is_floating_point() or tensor is poses.tensor:
            continue
        if tensor.numel() == own.numel():
            roles = _masked(poses, own, tensor)
            result += [] if roles is None else [Masked(event, roles, alone=False)]
        elif picks(tensor, own):
            result.append(Masked(event, (), alone=True))
    return result


def _masked(poses: Place, own: Tensor, tensor: Tensor) -> Roles | None:
    """Return the roles of a tensor that is zero but for one pose of each image; else None."""
    for roles in layouts(poses, tensor):
        other = rows(tensor, roles).to(own)
        kept = (other != 0).any(2)
        if bool((kept.sum(1) == 1).all()) and torch.equal(other[kept], own[kept]):
            return roles
    return None
