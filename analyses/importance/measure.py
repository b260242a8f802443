"""Measures of `importance`: a network without some of its children, or dimensions of their poses.

Where a network's children can be routed again (`tracing.routes_again`), those that are left out are
zero vectors with activation zero, and the others are routed without them. In other networks the
couplings of those left out are zero, and the others keep theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsviz.tracing import CHUNK_IMAGES, inference, routes_again, trace
from capsviz.tracing.many import winners
from capsviz.tracing.rerouting import chunks

TYPES, PLACES, CHILDREN, DIMENSIONS = "types", "places", "children", "dimensions"
ORDERS = ("random", "least important first", "most important first")
STEPS = np.arange(1, 8, 2) / 8  # shares of the groups that the curves remove
RANDOM = 2  # orders of each image that the random curve is the mean of
DRAWS = 4  # random removals from each image that the control is the mean of
MOST = 64  # groups of children that have no positions
ROUTED = "the others are routed again"
KEPT = "the others keep their couplings"


class State(NamedTuple):
    """A chunk of B images: its children, or its couplings where children cannot be routed again."""

    images: Tensor  # (B, C, H, W)
    primary: Tensor | None  # (B, I, D)
    active: Tensor | None  # (B, I)
    couplings: Tensor | None  # (B, I, J)
    norms: Tensor  # (B, I) of the children


class Outcomes(NamedTuple):
    """True activation and rightness, the axis of 2, of N images; G groups of a kind."""

    base: Tensor  # (2, N)
    single: dict[str, Tensor]  # (G, 2, N) without each group
    control: dict[str, Tensor]  # (2, N) without random ones of a random group's norm, mean of draws
    matched: dict[str, Tensor]  # (2, N) the same, of the norm of the group that ranks first
    curves: dict[str, Tensor]  # (3, S, 2, N) in the order of `ORDERS`


def how(model) -> str:
    """Return what the children that are left do."""
    return ROUTED if routes_again(model) else KEPT


def require_removable(model, images: Tensor) -> tuple[int, int, int] | None:
    """Return the grid of the children; ValueError if they can neither be routed nor uncoupled."""
    traced = trace(model, images[:1], keep=("couplings",))
    if traced.couplings.dim() != 4:
        raise ValueError("expected a last layer in which all parents see all children")
    if not routes_again(model):
        trace(model, images[:1], keep=("lengths",), couplings=traced.couplings[-1])
    return traced.grid


def states(model, images: Tensor, progress=iter) -> Iterator[tuple[slice, State]]:
    """Rows and state, a chunk after the other."""
    if routes_again(model):
        for rows, primary, active in chunks(model, images, progress):
            norms = primary.norm(dim=2)
            norms = norms if active is None else norms * active
            yield rows, State(images[rows], primary, active, None, norms)
        return
    for start in progress(range(0, len(images), CHUNK_IMAGES)):
        rows = slice(start, start + CHUNK_IMAGES)
        own = trace(model, images[rows], keep=("couplings",)).couplings[-1].clone()
        try:
            norms = trace(model, images[rows], keep=("child_activations",)).child_activations
        except ValueError:  # its children are not known: all count alike
            norms = torch.ones_like(own[..., 0])
        yield rows, State(images[rows], None, None, own, norms)


def without(model, state: State, kept: Tensor | None = None, primary: Tensor | None = None):
    """Activations (B, J) of the parents.

    Parameters
    ----------
    kept     (I,) or (B, I) in [0, 1]: how much of each child is left.
    primary  other children in place of the state's, where they can be routed again.
    """
    if state.primary is None:
        own = state.couplings if kept is None else state.couplings * kept[..., None]
        return trace(model, state.images, keep=("lengths",), couplings=own).lengths
    children, active = state.primary if primary is None else primary, state.active
    if kept is not None:
        kept = kept.to(children)
        children = children * kept[..., None]
        active = None if active is None else active * kept
    with inference(model):
        return model.capsules.couple(children, active).activations.cpu()


def groups(state: State, grid: tuple[int, int, int] | None) -> dict[str, Tensor]:
    """Members of each group, by kind: bool (G, I), of dimensions (D, D).

    Kinds of one group are left out; children without places are groups of consecutive numbers, at
    most `MOST`.
    """
    I = state.norms.shape[1]
    each = torch.arange(I)
    if grid is None:
        numbers = {CHILDREN: each * min(I, MOST) // I}
    else:
        places = grid[1] * grid[2]
        numbers = {TYPES: each // places, PLACES: each % places}
    members = {kind: torch.arange(int(of.max()) + 1)[:, None] == of for kind, of in numbers.items()}
    if state.primary is not None:
        members[DIMENSIONS] = torch.eye(state.primary.shape[2], dtype=torch.bool)
    return {kind: rows for kind, rows in members.items() if len(rows) > 1}


def removed(model, state: State, kind: str, some: Tensor) -> Tensor:
    """Activations (B, J) without some children (I,) or (B, I), or dimensions (D,) or (B, D)."""
    if kind == DIMENSIONS:
        return without(model, state, primary=state.primary * ~_each(some, state)[:, None])
    return without(model, state, (~some).to(state.norms))


def removed_at_random(model, state: State, kind: str, some: Tensor, generator) -> Tensor:
    """Activations (B, J) without as much norm, image by image, as the members of a group have.

    Of random children, the last of which in part; or, for a dimension, along a random direction.
    Each image has draws of its own, so that the chance of the draws is in intervals over images.

    Parameters
    ----------
    some  members (I,) or (B, I), of dimensions (D,) or (B, D).
    """
    some, B = _each(some, state), len(state.norms)
    if kind == DIMENSIONS:
        direction = torch.randn(B, 1, state.primary.shape[2], generator=generator)
        direction = (direction / direction.norm(dim=2, keepdim=True)).to(state.primary)
        along = torch.where((state.primary * direction).sum(2) < 0, -1.0, 1.0)
        size = (state.primary * some[:, None]).norm(dim=2)
        changed = state.primary - (size * along)[..., None] * direction
        return without(model, state, primary=changed)
    order = torch.rand(state.norms.shape, generator=generator).argsort(1)
    target = (state.norms * some.to(state.norms)).sum(1)
    return without(model, state, kept_of_norm(state.norms, target, order))


def _each(some: Tensor, state: State) -> Tensor:
    """(1, ·) of what is the same for all images, else (B, ·), on the state's device."""
    return (some if some.dim() == 2 else some[None]).to(state.norms.device)


def kept_of_norm(norms: Tensor, target: Tensor, order: Tensor) -> Tensor:
    """What is left of each child (B, I) if `target` (B,) of the norms go, by an order (B, I)."""
    order = order.to(norms.device)
    sizes = norms.gather(1, order)
    before = sizes.cumsum(1) - sizes
    removal = ((target[:, None] - before) / sizes.clamp_min(1e-12)).clamp(0, 1)
    return torch.empty_like(norms).scatter_(1, order, 1 - removal)


def outcome(activations: Tensor, labels: Tensor) -> Tensor:
    """True activation, and whether it is the largest: (2, B)."""
    true = activations.gather(1, labels[:, None])[:, 0]
    return torch.stack([true, (winners(activations) == labels).to(true)])


def plans(members: Tensor, importance: Tensor) -> Tensor:
    """What goes at each step, least and most important first: bool (2, S, I or D).

    Of groups (G, I or D) with importance (G,).
    """
    least = importance.argsort()
    return torch.stack([
        torch.stack([members[order[:m]].any(0) for m in steps(len(members))])
        for order in (least, least.flip(0))
    ])  # fmt: skip


def random_plan(members: Tensor, count: int, generator) -> Iterator[Tensor]:
    """What goes at each step in an order of each of `count` images: bool (count, I or D)."""
    order = torch.rand(count, len(members), generator=generator).argsort(1)
    for m in steps(len(members)):
        yield members[order[:, :m]].any(1)


def steps(count: int) -> list[int]:
    """How many of `count` groups the curves remove."""
    return sorted({min(max(1, round(share * count)), count - 1) for share in STEPS})


def measure(
    model, images, labels, kinds, generator, *, planned=None, first=None, progress=iter
) -> Outcomes:
    """Remove each group; if planned, along curves, with random ones of equal norm as controls.

    Parameters
    ----------
    kinds    of `groups`.
    planned  what curves remove, by kind (`plans`); None: neither curves nor controls.
    first    number of the group that ranks first, by kind.
    """
    base, parts = [], {name: {kind: [] for kind in kinds} for name in Outcomes._fields[1:]}
    for rows, state in states(model, images, progress):
        truth, B = labels[rows], len(state.norms)
        base.append(outcome(without(model, state), truth))

        for kind, members in kinds.items():
            one = [outcome(removed(model, state, kind, some), truth) for some in members]
            parts["single"][kind].append(torch.stack(one))
            if planned is None:
                continue
            drawn = [members[torch.randint(len(members), (B,), generator=generator)]
                     for _ in range(DRAWS)]  # fmt: skip
            for name, groups_of in (
                ("control", drawn), ("matched", [members[first[kind]]] * DRAWS)
            ):  # fmt: skip
                each = [removed_at_random(model, state, kind, g, generator) for g in groups_of]
                outcomes = torch.stack([outcome(activations, truth) for activations in each])
                parts[name][kind].append(outcomes.mean(0))
            orders = [list(random_plan(members, B, generator)) for _ in range(RANDOM)]
            curves = [
                torch.stack([outcome(removed(model, state, kind, s), truth) for s in order])
                for order in (*orders, *planned[kind])
            ]
            random = torch.stack(curves[:RANDOM]).mean(0)
            parts["curves"][kind].append(torch.stack([random, *curves[RANDOM:]]))
    joined = {
        name: {kind: torch.cat(some, -1) for kind, some in by_kind.items() if some}
        for name, by_kind in parts.items()
    }
    return Outcomes(torch.cat(base, 1), **joined)
