"""Find the children that a layer makes votes of, and the poses after the sum over children.

A squash can be written in many ways. The sum is therefore followed by its values: through tensors
whose vectors are parallel to it, capsule by capsule, whatever functions made them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

import torch
from torch import Tensor, nn

from capsviz.tracing import verification
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
from capsviz.wrapping.layers import (
    Layer,
    Place,
    Round,
    product,
    size_of,
    votes_base,
    voting,
)
from capsviz.wrapping.recorder import Event

SQUARES = ("pow", "square", "mul", "abs")
PARALLEL = 1e-5  # largest 1 - cosine of parallel vectors
TINY = 1e-6  # norms that differ by less are equal


def children(flow: Flow, turn: Round) -> Place | str:
    """Return the children of a layer, the input of its product with weight matrices.

    If none are found, return the reason.
    """
    position = voting(flow, turn)
    known = dict(zip(turn.product.frame, turn.roles, strict=True))
    letters = turn.product.operands[position]
    if len(turn.event.inputs) > 2:
        return Place(
            turn.event, position, tuple(known.get(k, "D").replace("E", "D") for k in letters)
        )
    votes, path = turn.event.inputs[position], list[Step]()
    source = flow.sources[turn.event.index][position]
    while source is not None and source[0] in flow.derived:
        event = flow.events[source[0]]
        at = [k for k in range(len(event.inputs)) if flow.from_images(event, k)]
        if not at:
            break
        at.sort(key=lambda k: -event.inputs[k].numel() if event.name in ("add", "sub") else k)
        scaled = event.name in ("mul", "div") and len(event.inputs) == 1  # by a Python number
        before = [Step(event, at[0]), *path], flow.sources[event.index][at[0]]
        if is_view(event) or scaled or event.name in ("add", "sub", *SUMS):
            path, source = before
            continue
        made = event.outputs[source[1]]
        roles = [{"D"} if n > 1 else set() for n in made.shape]  # D for axes that are summed
        for letter, axes in zip(letters, axes_after(made, path, votes), strict=True):
            for axis in axes:
                roles[axis] = roles[axis] - {"D"} | ({known.get(letter, ".")} - {"."})
        own = _before_matrices(event, at[0], roles) if len(at) == 1 else None
        if own is None:
            return f"votes come from {event.name} in {event.place}"
        if any("J" in own[axis] for axis in varying(event.inputs[at[0]])):  # still votes
            path, source = before
            continue
        place = Place(event, at[0], _letters(own))
        if size_of("I", place.tensor.shape, place.roles) == turn.count("I"):
            return place
        return f"votes are combined from several products, as {event.name} in {event.place}"
    return "votes come from no product with weights"


def _before_matrices(event: Event, position: int, roles: list[set]) -> list[set] | None:
    """Return the axis roles of an input of a product with weights, given those of its result."""
    own = event.inputs[position]
    if event.name == "linear":
        return [*roles[:-1], {"D"}]
    how = product(event, position)
    if how is None:
        return None
    if how.summed:
        known = dict(zip(how.output, roles, strict=True))
        return [known.get(letter, {"D"}) for letter in how.operands[position]]
    differs = varying(own)  # if children are tiled, an axis holds only repeats
    return [
        r if n > 1 and (r & {"B", "I"} or axis in differs) else set()
        for axis, (n, r) in enumerate(zip(own.shape, roles[-own.dim() :], strict=True))
    ]


def _letters(roles: list[set]) -> Roles:
    """Return one letter for each axis: B for images, I for children, "." for parents, else D."""

    def letter(own: set) -> str:
        if own <= {"J"}:
            return "."
        return own.pop() if len(own) == 1 and own <= {"B", "I"} else "D"

    return tuple(letter(set(own)) for own in roles)


class Masked(NamedTuple):
    """An event that selects one pose of each image, as the input of a decoder."""

    event: Event
    roles: Roles
    alone: bool  # the other poses are left out; else they are set to 0


def poses(
    flow: Flow, rounds: list[Round], scores: list[Tensor], output: list[Tensor],
    others: Iterable[Layer] = (),
) -> tuple[list[Place], str | None]:  # fmt: skip
    """Find the poses of each routing iteration.

    Candidates are made of the sum over children, first those that are made of nothing else. The
    poses are the candidate whose norms are the scores, or that the network returns. Without one,
    they are the last candidate. They are then in doubt if several candidates are returned, or if
    they are not parallel to the tensor that the routing compares with the votes (or else to the
    sum).

    Parameters
    ----------
    scores  (B, J), candidates for the scores of the recorded pass.
    output  all tensors that the network returned.
    others  further layers; the search ends where one of them makes votes of its children.

    Returns
    -------
    The places of the poses, the last iteration's last, and a warning if they are in doubt, or None.
    """
    made = [children(flow, one.rounds[0]) for one in others]
    after = [one.event.index for one in made if isinstance(one, Place)]
    after = [index for index in after if index > rounds[-1].total.index]
    ends = [*(later.total.index for later in rounds[1:]), min(after, default=len(flow.events))]
    passes = [followed(flow, turn, end) for turn, end in zip(rounds, ends, strict=True)]
    masks = {mask.event.index for place in passes[-1] for mask in masked(flow, place)}
    masks |= {later for index in masks for later in flow.descendants(index)}
    last, doubt = [place for place in passes[-1] if place.event.index not in masks], None
    offs = {
        k: off for k, place in enumerate(last) if (off := _difference(place, scores)) is not None
    }
    fits = [k for k, off in offs.items() if off <= 1.001 * min(offs.values()) + TINY]
    fits = fits or [k for k, p in enumerate(last) if any(_holds(p, one) for one in output)]
    returned = [] if fits else _with_norms(flow, rounds[-1], ends[-1], scores)
    returned = returned if fits or returned else _in_output(flow, rounds, output)
    if len(returned) == 1:
        return returned, None
    chosen = (fits or [len(last) - 1])[-1]
    if not fits:
        compared = _compared_with_votes(flow, rounds[-1], passes[-1])
        compared = compared or _compared_with_votes(flow, rounds[-1], passes[0])
        rivals = returned or [last[min(compared or 0, chosen)]]
        if returned or parallel(rivals[0], last[chosen].tensor) is None:
            listed = "; or ".join(one.made for one in rivals)
            doubt = (
                f"in doubt: or {listed}; neither has the scores as norms, and the output does not "
                "decide: name the poses by poses='method:variable'"
            )
    numbers, whole = rounds[-1].count("E"), rows(last[chosen].tensor, last[chosen].roles).shape[2]
    if doubt is None and last[chosen].event.name in ("cat", "stack") and whole > numbers:
        doubt = (
            f"in doubt: {last[chosen].event.name} gives poses of {whole} numbers, but votes have "
            f"{numbers}: if one of them is an activation, give poses= and scores="
        )
    before = [one[chosen] for one in passes[:-1] if len(one) > chosen]
    alike = all(_function_name(one) == _function_name(last[chosen]) for one in before)
    return [*(before if alike else []), last[chosen]], doubt


def followed(flow: Flow, turn: Round, end: int) -> list[Place]:
    """Follow the sum of an iteration up to the event with index `end`.

    Returns
    -------
    The sum, and in order every other tensor that is parallel to an earlier one or is a function
    (B, J, E) of the sum alone. Squares that are only summed, to give norms, are left out.
    """
    events = flow.events[turn.total.index + 1 : end]
    once = _outside_loops(events)
    places = [Place(turn.total, -1, turn.total_roles)]
    alone = {turn.total.index}
    for event in events:
        made = [source for source in flow.sources[event.index] if source is not None]
        made = [source for source in made if source[0] in flow.derived]
        if made and all(source[0] in alone for source in made):
            alone.add(event.index)
        if event.index not in once:
            continue
        for position in (*range(len(event.inputs)), -1):
            place, port = Place(event, position, ()), _source(flow, event, position)
            if isinstance(place.tensor, nn.Parameter) or _is_part(flow, place):
                continue
            fits = (parallel(earlier, place.tensor) for earlier in reversed(places))
            roles = next((one for one in fits if one is not None), None)
            if roles is None and port is not None and port[0] in alone:
                readers = {step.event.name for step in flow.readers.get(port, [])}
                squares = flow.events[port[0]].name in SQUARES and readers <= {*SUMS}
                roles = None if squares and readers else _as_poses(turn, place.tensor)
            if roles is None:
                continue
            own, place = rows(place.tensor, roles), place._replace(roles=roles)
            if not any(torch.equal(own, rows(one.tensor, one.roles)) for one in places):
                places.append(place)
    return places


def _outside_loops(events: Sequence[Event]) -> set[int]:
    """Return the indices of events whose call runs once, so not in a loop (over classes, say)."""
    counts = Counter(event.site for event in events)
    return {event.index for event in events if counts[event.site] == 1}


def _function_name(place: Place) -> str | None:
    """Return the name of the function that made a place; None if it is an input of an event."""
    return place.event.name if place.position < 0 else None


def _source(flow: Flow, event: Event, position: int) -> Port | None:
    """Return the port that made an input of an event; for position -1, its own first output."""
    return (event.index, 0) if position < 0 else flow.sources[event.index][position]


def _is_part(flow: Flow, place: Place) -> bool:
    """Return whether a tensor is a view of a part of a larger tensor."""
    if place.position < 0 and not is_view(place.event):
        return False
    base = flow.base(place.event, max(place.position, 0))
    if isinstance(base, int):
        return False
    return flow.events[base[0]].outputs[base[1]].numel() > place.tensor.numel()


def _compared_with_votes(flow: Flow, turn: Round, places: list[Place]) -> int | None:
    """Return the index of the last place that the routing compares with the votes, or None."""
    base = votes_base(flow, turn)
    for k, place in reversed(list(enumerate(places))):
        port = _source(flow, place.event, place.position)
        for event, _ in flow.steps_from([] if port is None else [port]):
            if any(flow.base(event, n) == base for n in range(len(event.inputs))):
                return k
    return None


def bias(flow: Flow, turn: Round, poses: Tensor) -> Event | None:
    """Return the event that adds a bias to the sum over children, or None.

    A bias does not depend on the images. The result must be parallel to these poses (B, J, E).
    """
    for event, position in flow.steps_from(flow.ports(turn.total)):
        others = (k for k in range(len(event.inputs)) if k != position)
        if event.name in ("add", "sub") and not any(flow.from_images(event, k) for k in others):
            roles = _as_poses(turn, event.outputs[0])
            if roles and parallel(Place(event, -1, roles), poses):
                return event
    return None


def _with_norms(flow: Flow, turn: Round, end: int, scores: list[Tensor]) -> list[Place]:
    """Return the tensor (B, J, E) whose norms are the scores, made of the sum and other tensors."""
    events, found = flow.events[turn.total.index + 1 : end], []
    for k in sorted(_outside_loops(events) & flow.descendants(turn.total.index)):
        roles = _as_poses(turn, flow.events[k].outputs[0])
        if roles is not None:
            place = Place(flow.events[k], -1, roles)
            if (off := _difference(place, scores)) is not None:
                found.append((off, k, place))
    return [place for _, _, place in sorted(found)[:1]]


def _in_output(flow: Flow, rounds: list[Round], output: list[Tensor]) -> list[Place]:
    """Return tensors (B, J, E) of the output that are made of the last sum and are not masked."""
    turn, result = rounds[-1], []
    after = flow.descendants(turn.total.index)
    for tensor in output:
        port, roles = flow.port(tensor), _as_poses(turn, tensor)
        if port is None or port[1] or port[0] not in after or roles is None:
            continue
        place = Place(flow.events[port[0]], -1, roles)
        several = bool(((rows(tensor, roles) != 0).any(2).sum(1) > 1).any())
        size = rows(place.tensor, place.roles).shape[2]
        own = rounds[-1].count("E")  # numbers or poses of all iterations may be stacked
        stacked = size == len(rounds) != own or size == len(rounds) * own != own
        if several and not stacked:
            result.append(place)
    return result


def _as_poses(turn: Round, tensor: Tensor) -> Roles | None:
    """Return the axis roles of a tensor whose shape fits poses (B, J, E); else None.

    An axis that only repeats numbers has no role, unless all images have the same numbers.
    """
    roles, differs = ["."] * tensor.dim(), varying(tensor)
    if turn.count("B") not in {tensor.shape[axis] for axis in differs}:
        differs = {axis for axis, size in enumerate(tensor.shape) if size > 1}
    for axis in sorted(differs):
        sizes = (role for role in "BJ" if role not in roles)
        roles[axis] = next((role for role in sizes if turn.count(role) == tensor.shape[axis]), "E")
    return tuple(roles) if {"B", "J", "E"} <= set(roles) and tensor.is_floating_point() else None


def _difference(place: Place, scores: list[Tensor]) -> float | None:
    """Return the least relative difference between the norms of a place and candidate scores.

    None if no candidate agrees with the norms within the allowed difference.
    """
    norms = rows(place.tensor, place.roles).norm(dim=2)
    offs = [
        float((norms - one).abs().max() / one.abs().max())
        for one in scores
        if one.shape == norms.shape
    ]
    return min((off for off in offs if off < allowed([norms, *scores])), default=None)


def _holds(place: Place, output: Tensor) -> bool:
    """Return whether an output of the network holds these poses."""
    roles = place.roles if output is place.tensor else parallel(place, output)
    return roles is not None and torch.allclose(
        rows(output, roles), rows(place.tensor, place.roles).to(output)
    )


def parallel(place: Place, tensor: Tensor) -> Roles | None:
    """Return the axis roles by which a tensor's vectors are parallel to those of a place.

    None if they are not parallel.
    """
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


def is_made(flow: Flow, total: Tensor, children: int) -> bool:
    """Return whether an event of the pass made this sum (B, J, E) over children, or the mean."""
    orders = [total.permute(axes).flatten() for axes in permutations(range(3))]
    return any(
        verification.apart(tensor.flatten().to(one) * size, one) == 0
        for event in flow.events
        for tensor in event.outputs
        if tensor.numel() == total.numel() and tensor.is_floating_point()
        for size in (1, children)
        for one in orders
    )


def layouts(place: Place, tensor: Tensor) -> Iterator[Roles]:
    """Yield all axis roles that a tensor may have if it is a rearrangement of a place."""
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
    """Return the events that select one of these poses for each image.

    The other poses are 0 or left out. If they are left out, the class must differ between images or
    be that of the longest pose.
    """
    own, result = rows(poses.tensor, poses.roles), []
    if own.shape[1] < 2:
        return []
    batch, _, numbers = own.shape
    longest = own.norm(dim=2).argmax(1)
    for event in flow.events[poses.event.index :]:
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
