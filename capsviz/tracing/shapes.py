"""The shapes of what a network's `look` gives, each against what the others say of B, I, J, E."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

import torch
from torch import Tensor

from capsviz.tracing.record import last_activations

SAME = 1e-3  # of numbers near 1
STEPS = 4  # of the next number that a type can hold, where they are wider


def allowed(values: Iterable) -> float:
    """How far numbers near 1 may lie apart and be equal, in the coarsest type of these tensors."""
    floats = [v for v in values if isinstance(v, Tensor) and v.is_floating_point()]
    return max([SAME, *(STEPS * torch.finfo(v.dtype).eps for v in floats)])


def misshapen(model, traced: dict, images: int) -> Iterator[str]:
    """Each part against what the others say of B, I, J and E."""
    if not isinstance(traced.get("lengths"), Tensor) or traced["lengths"].dim() != 2:
        yield f"lengths are {shape_of(traced.get('lengths'))}, expected (B, J)"
        return
    B, J = traced["lengths"].shape
    if images != B:
        yield f"lengths are {shape_of(traced['lengths'])} for {images} images"
        return
    classes = getattr(model, "config", {}).get("classes", J)
    if classes != J:
        yield f"there are {J} scores for {classes} classes: lengths are (B, {J})"
    I = _children(model, traced, B, J)
    poses = traced.get("poses")
    if poses is not None:
        if poses.dim() == 3 and tuple(poses.shape[:2]) == (B, J):
            yield (
                f"poses are {shape_of(poses)}, without an axis of iterations: (R, B, J, E), "
                "poses[None] for one"
            )
        elif poses.dim() > 4 or (poses.dim() == 4 and poses.shape[:2] == (B, J)):
            yield (f"poses are matrices, {shape_of(poses)}: expected (R, B, J, E), flatten each")
        elif poses.dim() != 4 or tuple(poses.shape[1:3]) != (B, J):
            yield f"poses are {shape_of(poses)}, expected (R, {B}, {J}, E)"
    for name in ("couplings", "logits"):
        value = traced.get(name)
        if value is None:
            continue
        if value.dim() == 4 and tuple(value.shape[1:]) == (B, J, I) and I != J:
            yield f"{name} are transposed, {shape_of(value)}: expected (R, {B}, {I}, {J})"
        elif value.dim() == 3 and value.shape[0] == B:
            yield f"{name} are {shape_of(value)}, without the axis of iterations: (R, B, I, J)"
        elif value.dim() != 4 or tuple(value.shape[1:]) != (B, I, J):
            yield f"{name} are {shape_of(value)}, expected (R, {B}, {I}, {J})"
    votes = traced.get("votes")
    if votes is not None:
        if votes.dim() == 4 and tuple(votes.shape[:3]) == (B, J, I) and I != J:
            yield f"votes are transposed, {shape_of(votes)}: expected ({B}, {I}, {J}, E)"
        elif votes.dim() > 4:
            yield f"votes are matrices, {shape_of(votes)}: expected (B, I, J, E), flatten each"
        elif votes.dim() != 4 or tuple(votes.shape[:3]) != (B, I, J):
            yield f"votes are {shape_of(votes)}, expected ({B}, {I}, {J}, E)"
    primary = traced.get("primary")
    if primary is not None and (primary.dim() != 3 or tuple(primary.shape[:2]) != (B, I)):
        yield f"primary capsules are {shape_of(primary)}, expected ({B}, {I}, D)"
    grid = getattr(model, "grid", None)
    if grid is not None and I is not None and (len(grid) != 3 or prod(grid) != I):
        yield (
            f"the grid {tuple(grid)} has {prod(grid)} capsules, but there are {I}: expected "
            "(types, rows, columns) whose product they are, or None"
        )


def _children(model, traced, B: int, J: int) -> int | None:
    """The number of children, as most parts have it."""
    primary = traced.get("primary")
    if isinstance(primary, Tensor) and primary.dim() == 3 and primary.shape[0] == B:
        return primary.shape[1]
    votes, couplings = traced.get("votes"), traced.get("couplings")
    grid = getattr(model, "grid", None)
    sizes = [] if grid is None else [prod(grid)]
    if votes is not None and votes.dim() >= 3:
        sizes += [n for n in votes.shape[1:3] if n != J][:1]
    if couplings is not None and couplings.dim() >= 3:
        sizes += [n for n in couplings.shape[-2:] if n != J][:1]
    return max(sizes, key=sizes.count) if sizes else J if couplings is not None else None


def shape_of(value) -> str:
    """In words."""
    return str(tuple(value.shape)) if isinstance(value, Tensor) else "missing"


def named_parts(values: dict) -> dict:
    """What `look` gave, by the names that are verified."""
    names = {"children": "primary"}
    parts = {names.get(name, name): value for name, value in values.items()}
    if isinstance(parts.get("activations"), Tensor) or "poses" in parts:
        parts.setdefault("lengths", last_activations(parts))
    return parts
