"""Whose axis is whose: somebody's layout to B, I, J, E and back.

Roles are one letter for each axis: B image, I child, J parent, E number of a parent's pose, D
number of a child's, "." an axis of size 1 or of repeated numbers. Several may share I, E or D.
"""

from __future__ import annotations

from math import prod

from torch import Tensor

Roles = tuple[str, ...]


def arrange(tensor: Tensor, roles: Roles, target: str, sizes: dict[str, int]) -> Tensor:
    """A tensor with axes of these roles -> one axis for each letter of `target`, in its order.

    Axes that the target does not name hold repeated numbers, of which the first is taken; a letter
    that no axis has is a new axis; both are expanded to `sizes` where it names them.
    """
    tensor = tensor.reshape((1,) * (len(roles) - tensor.dim()) + tuple(tensor.shape))
    for axis in reversed(range(len(roles))):
        if roles[axis] not in target:
            tensor = tensor.select(axis, 0)
    kept = [role for role in roles if role in target]
    order = [axis for letter in target for axis, role in enumerate(kept) if role == letter]
    tensor = tensor.permute(order)
    shape, at = [], 0
    for letter in target:
        count = kept.count(letter)
        shape.append(prod(tensor.shape[at : at + count]))
        at += count
    tensor = tensor.reshape(shape)
    return tensor.expand([sizes.get(k, n) for k, n in zip(target, shape, strict=True)])


def embed(tensor: Tensor, source: str, roles: Roles, shape: tuple[int, ...]) -> Tensor:
    """The way back: axes in the order of `source` -> axes of these roles; others of size 1.

    `shape` says how the axes of a letter that several share are split.
    """
    split: list[int] = []
    for letter, size in zip(source, tensor.shape, strict=True):
        own = [n for role, n in zip(roles, shape, strict=True) if role == letter]
        split += own if len(own) > 1 else [size] * (len(own) or 1)
    tensor = tensor.reshape(split)
    places = [axis for letter in source for axis, role in enumerate(roles) if role == letter]
    tensor = tensor.permute(sorted(range(len(places)), key=places.__getitem__))
    for axis, role in enumerate(roles):
        if role not in source:
            tensor = tensor.unsqueeze(axis)
    return tensor
