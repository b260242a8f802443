"""Find children before the votes of a layer, and poses after the sum over children.

A squash can be written in many ways, so the sum is followed by value: through numbers that are
parallel to it, capsule by capsule, however they were made.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from math import prod
from typing import NamedTuple

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
    varying,
)
from capsviz.wrapping.layers import Place, Round, product, summed_dims, voting
from capsviz.wrapping.recorder import Event

KEEPING = frozenset(
    ("relu", "leaky_relu", "elu", "gelu", "tanh", "layer_norm", "batch_norm", "instance_norm",
     "group_norm", "normalize", "nan_to_num", "clamp")
)  # fmt: skip
PARALLEL = 1e-5  # 1 - cosine, at most
TINY = 1e-9  # of norms


def children(flow: Flow, turn: Round) -> Place | str:
    """Return the children of a layer, before the product with matrices; or why none are found."""
    position = voting(flow, turn.event, turn.product)
    known = dict(zip(turn.product.frame, turn.roles, strict=True))
    letters = turn.product.operands[position]
    if len(turn.event.inputs) > 2:
        return Place(
            turn.event, position, tuple(known.get(k, "D").replace("E", "D") for k in letters)
        )
    sizes = turn.event.inputs[position].shape
    roles = [
        {known[k]} - {"."} if n > 1 and k in known else set()
        for k, n in zip(letters, sizes, strict=True)
    ]
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


def _before_matrices(event: Event, position: int, roles: list[set]) -> list[set] | None:
    """Return the roles of the input of a product with weights, given those of its result."""
    own = event.inputs[position]
    if event.name == "linear":
        return [*roles[:-1], {"D"}]
    how = product(event, position)
    if how is None:
        return None
    if how.summed:
        known = dict(zip(how.output, roles, strict=True))
        return [known.get(letter, {"D"}) for letter in how.operands[position]]
    differs = varying(own)  # where children are tiled, an axis holds repeats alone
    return [
        r if n > 1 and (r & {"B", "I"} or axis in differs) else set()
        for axis, (n, r) in enumerate(zip(own.shape, roles[-own.dim() :], strict=True))
    ]


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


class Poses(NamedTuple):
    """The poses of all iterations of a layer."""

    places: list[Place]
    masked: list[Masked]
    doubt: str | None  # why these may be no poses


def poses(flow: Flow, rounds: list[Round], scores: list[Tensor], output: list[Tensor]) -> Poses:
    """Find the poses of each iteration.

    They are the tensor, parallel to the sum over children or another function of it alone, whose
    norms are the scores, or that the network returns. If there is none they are the last that is
    parallel to the sum.

    Parameters
    ----------
    scores  (B, J), candidates for the scores of the recorded pass.
    output  all tensors that the network returned.
    """
    ends = [later.total.index for later in rounds[1:]] + [len(flow.events)]
    passes = [followed(flow, turn, end) for turn, end in zip(rounds, ends, strict=True)]
    last, doubt = passes[-1], None
    offs = {k: off for k, place in enumerate(last) if (off := _off(place, scores)) is not None}
    fits = [k for k, off in offs.items() if off <= 1.001 * min(offs.values()) + TINY]
    fits = fits or [k for k, p in enumerate(last) if any(_shows(p, one) for one in output)]
    chosen = (fits or [len(last) - 1])[-1]
    places = [one[min(chosen, len(one) - 1)] for one in passes[:-1]] + [last[chosen]]
    if not fits:
        masks = {mask.event.index for mask in masked(flow, last[-1])}
        later = [
            place
            for place in _functions(flow, rounds[-1], last[-1])
            if place.event.index not in masks and not _is_stacked(place, rounds)
        ]
        found = [place for place in later if _off(place, scores) is not None][:1]
        found = found or _returned(flow, rounds, output)
        if len(found) == 1:
            site = found[0].event.site, found[0].event.name
            same = [event for event in flow.events if (event.site, event.name) == site]
            places = [found[0]._replace(event=event) for event in same]
            places = places if len(places) == len(rounds) else found
        elif others := found or later:
            where = ", ".join(dict.fromkeys(one.event.where for one in others))
            doubt = f"functions of them in {where} may be the poses: name them by poses="
    return Poses(places, masked(flow, places[-1]), doubt)


def followed(flow: Flow, turn: Round, end: int) -> list[Place]:
    """Follow the sum of an iteration, as far as the event of number `end`.

    Returns
    -------
    The sum and every other tensor, in order, that is parallel to it, or made of such a one by a
    function that usually comes before a squash.
    """
    events = flow.events[turn.total.index + 1 : end]
    sites = [(event.site, event.name) for event in events]
    places = [Place(turn.total, -1, turn.total_roles)]
    known: dict[Port | None, Roles] = {(turn.total.index, 0): turn.total_roles}
    for event in events:
        once = sites.count((event.site, event.name)) == 1
        for position in (*range(len(event.inputs)), -1):
            last, place = places[-1], Place(event, position, ())
            if place.tensor.numel() != last.tensor.numel() or not once:
                continue
            if isinstance(place.tensor, nn.Parameter):
                continue
            roles = parallel(last, place.tensor)
            if roles is None and position < 0:
                roles = known.get(flow.sources[event.index][0]) if _keeps(flow, event) else None
            if roles is None:
                continue
            place = place._replace(roles=roles)
            if position < 0:
                known[event.index, 0] = roles
            if not torch.equal(rows(place.tensor, roles), rows(last.tensor, last.roles)):
                places.append(place)
    return places


def _keeps(flow: Flow, event: Event) -> bool:
    """Return whether an event makes poses of its first input, though of another direction."""
    if not event.inputs or event.inputs[0].shape != event.outputs[0].shape:
        return False
    own, *others = event.inputs
    fixed = not any(flow.from_images(event, k) for k in range(1, len(event.inputs)))
    scaled = all(t.numel() < own.numel() and bool(t.all()) for t in others)  # by no mask
    return (
        event.name in KEEPING
        or (event.name in ("add", "sub") and fixed)
        or (event.name in ("mul", "div") and (fixed or scaled))
    )


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


def _returned(flow: Flow, rounds: list[Round], output: list[Tensor]) -> list[Place]:
    """Return tensors (B, J, E) of the output that come from the last sum, and are not masked."""
    turn, result = rounds[-1], []
    after = flow.descendants(turn.total.index)
    for tensor in output:
        port, roles = flow.port(tensor), _as_poses(turn, tensor)
        if port is None or port[1] or port[0] not in after or roles is None:
            continue
        place = Place(flow.events[port[0]], -1, roles)
        several = bool(((rows(tensor, roles) != 0).any(2).sum(1) > 1).any())
        if several and not _is_stacked(place, rounds):
            result.append(place)
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


def _off(place: Place, scores: list[Tensor]) -> float | None:
    """Return how far the norms of a place are from the scores; None where these are others."""
    norms = rows(place.tensor, place.roles).norm(dim=2)
    offs = [float((norms - one).abs().max()) for one in scores if one.shape == norms.shape]
    return min((off for off in offs if off < allowed([norms, *scores])), default=None)


def _shows(place: Place, output: Tensor) -> bool:
    """Return whether an output of the network holds these poses."""
    roles = place.roles if output is place.tensor else parallel(place, output)
    return roles is not None and torch.allclose(
        rows(output, roles), rows(place.tensor, place.roles).to(output)
    )


def parallel(place: Place, tensor: Tensor) -> Roles | None:
    """Return the roles of the axes of a tensor whose vectors are parallel to those of a place."""
    own = place.tensor
    if tensor.numel() != own.numel() or not tensor.is_floating_point():
        return None
    expected = rows(own, place.roles).cpu().double()
    if expected.shape[2] < 2 or not expected.isfinite().all():
        return None
    tolerance = max(PARALLEL, torch.finfo(own.dtype).eps)
    for roles in layouts(place, tensor):
        other = rows(tensor, roles).cpu().double()
        long, short = expected.norm(dim=2), other.norm(dim=2)
        alike = (other * expected).sum(2) >= (1 - tolerance) * long * short
        if bool(alike.all() and long.any() and ((long > 0) == (short > 0)).all()):
            return roles
    return None


def layouts(place: Place, tensor: Tensor) -> Iterator[Roles]:
    """Yield the roles that the axes of a tensor may have, if it is a rearrangement of a place."""
    batch, parents, _ = rows(place.tensor, place.roles).shape
    wide = [axis for axis, n in enumerate(tensor.shape) if n > 1]
    for pair in permutations(wide, 2):
        if [tensor.shape[axis] for axis in pair] == [batch, parents]:
            roles = dict.fromkeys(wide, "E") | dict(zip(pair, "BJ", strict=True))
            yield tuple(roles.get(axis, ".") for axis in range(tensor.dim()))


def rows(tensor: Tensor, roles: Roles) -> Tensor:
    """Arrange poses as (B, J, E)."""
    return arrange(tensor, roles, "BJE")


def masked(flow: Flow, poses: Place) -> list[Masked]:
    """Return events whose result holds one of these poses of each image, the others 0 or left out.

    Where that one stands alone, its class must differ between images, or be that of the longest.
    """
    own, result = rows(poses.tensor, poses.roles), []
    if own.shape[1] < 2:
        return []
    batch, _, numbers = own.shape
    longest = own.norm(dim=2).argmax(1)
    for event in flow.events:
        tensor = event.outputs[0]
        if not tensor.is_floating_point() or tensor is poses.tensor:
            continue
        if tensor.numel() == own.numel():
            for roles in layouts(poses, tensor):
                other = rows(tensor, roles).to(own)
                kept = (other != 0).any(2)
                if bool((kept.sum(1) == 1).all()) and torch.equal(other[kept], own[kept]):
                    result.append(Masked(event, roles, alone=False))
                    break
        elif tensor.numel() == batch * numbers:
            chosen = (own == tensor.to(own).reshape(batch, 1, numbers)).all(2)
            of_longest = chosen[torch.arange(batch), longest]
            if bool(chosen.any(1).all() and (of_longest.all() or not chosen.all(0).any())):
                result.append(Masked(event, (), alone=True))
    return result
