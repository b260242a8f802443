"""Find the grid of capsules by changing one row or column of an image at a time.

Capsules that change with the same rows and the same columns share a position. They form a grid if
the positions are all pairs of some row ranges and some column ranges, with equally many capsules.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

CLOSE = 1e-5  # of the largest change: less is rounding
CORNER_DRAWS = 4
CAUSES = (
    "as where `view` goes across positions or padding follows the primary convolution: give "
    "grid=(types, rows, columns) in the second case"
)
DRAWS = 3  # pictures of noise at most, as one may leave a capsule at rest


class Places(NamedTuple):
    """The grid of capsules, and how to bring capsules into its order."""

    grid: tuple[int, int, int] | None  # (types, rows, columns)
    order: Tensor | None  # (I,) number in the network of each capsule of the grid; None: the same
    rows: list[slice]  # of the image, for each row of the grid
    columns: list[slice]
    evidence: str


NOWHERE = Places(None, None, [], [], "")
Capsules = Callable[[Tensor], Tensor]  # images (B, C, H, W) -> vectors (B, I, D)


def find(capsules: Capsules, images: Tensor, grid: tuple[int, int, int] | str, what: str) -> Places:
    """Find the grid, or compare a given one with the image lines that change each capsule.

    Parameters
    ----------
    images  as many are passed at a time as these, of their shape and type.
    grid    (types, rows, columns), or "probe".
    what    the name of the capsules.

    Raises
    ------
    ValueError  for a given grid that the capsules do not form.
    """
    rows, columns = ranges_of_sight(capsules, images)
    result = arranged(rows, columns, images.shape[1:])
    if isinstance(grid, str):
        if result.grid is not None and (why := hollow(capsules, result, images)) is not None:
            result = NOWHERE._replace(evidence=why)
        return result._replace(evidence=f"{result.evidence}; by impulses of {what}")
    if grid != result.grid:
        if prod(grid) != len(rows):
            raise ValueError(
                f"grid {grid} does not fit {len(rows)} children: expected (types, rows, columns) "
                "whose product is their number"
            )
        if (why := torn(rows, columns, grid)) is not None:
            raise ValueError(
                f"grid {grid} is none of these capsules: {why}; by impulses was found: "
                f"{result.evidence}; give grid='probe', or None for no positions"
            )
        result = Places(grid, None, *fields_of(rows, columns, grid), "")
    return result._replace(
        evidence=f"{result.grid}, as given; the fields of its positions by impulses"
    )


def ranges_of_sight(capsules: Capsules, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return first and last row, then column, that change each capsule: (I, 2), -1 for none."""
    height, width = images.shape[2:]
    lines = [(1, row) for row in range(height)] + [(2, column) for column in range(width)]
    edges = [lines[0], lines[height - 1], lines[height], lines[-1]]
    at_edges = changed(capsules, edges, images, 0)
    if at_edges.all():  # each depends on the whole image
        count = len(at_edges[0])
        return torch.tensor([[0, height - 1]] * count), torch.tensor([[0, width - 1]] * count)
    result = changed(capsules, lines, images, 0)
    for seed in range(1, DRAWS):
        ranges = _range(result[:height]), _range(result[height:])
        if arranged(*ranges, images.shape[1:]).grid is not None:
            break
        result |= changed(capsules, lines, images, seed)
    return _range(result[:height]), _range(result[height:])


def changed(capsules: Capsules, lines: list[tuple[int, int]], images: Tensor, seed: int) -> Tensor:
    """Return which capsules change with each line, (axis, number), as truth values (lines, I)."""
    base, noise = _noise(images, seed)
    pictures = base.repeat(1 + len(lines), 1, 1, 1)
    for image, (axis, line) in zip(pictures[1:], lines, strict=True):
        image.narrow(axis, line, 1).copy_(noise.narrow(axis, line, 1))
    result = _change(capsules, pictures, len(images))
    return result > CLOSE * result.amax().clamp_min(torch.finfo(result.dtype).tiny)


def _noise(images: Tensor, seed: int) -> Tensor:
    """Return two pictures of noise (2, C, H, W)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand((2, *images.shape[1:]), generator=generator).to(images)


def _change(capsules: Capsules, pictures: Tensor, batch: int) -> Tensor:
    """Return how far each capsule changes from the first picture to each other one."""
    padding = pictures[:1].expand(-len(pictures) % batch, -1, -1, -1)
    passes = torch.cat((pictures, padding)).split(batch)
    vectors = torch.cat([capsules(part) for part in passes])[: len(pictures)]
    return (vectors - vectors[:1]).abs().flatten(2).amax(2)[1:]


def arranged(rows: Tensor, columns: Tensor, image_shape) -> Places:
    """Return the grid of capsules that depend on these image rows and columns, each (I, 2)."""
    if (rows < 0).any() or (columns < 0).any():
        dead = int(((rows < 0).any(1) | (columns < 0).any(1)).sum())
        return NOWHERE._replace(evidence=f"none: {dead} capsules change with no pixel")
    places = torch.cat((rows, columns), 1).tolist()
    by_row = sorted({tuple(place[:2]) for place in places})
    by_column = sorted({tuple(place[2:]) for place in places})
    members: dict[tuple, list[int]] = {}
    for child, place in enumerate(places):
        members.setdefault((tuple(place[:2]), tuple(place[2:])), []).append(child)
    counts = {len(m) for m in members.values()}
    why = None
    if len(members) != len(by_row) * len(by_column) or len(counts) != 1:
        why = (
            f"{len(places)} capsules see {len(members)} different patches, no full product of "
            f"{len(by_row)} rows and {len(by_column)} columns of positions with equally many "
            f"capsules each, {CAUSES}"
        )
    for ranges, size in ((by_row, image_shape[1]), (by_column, image_shape[2])):
        for (first, last), (after, end) in pairwise(ranges):
            if why is None and (end < last or (first == after > 0) or (last == end < size - 1)):
                why = (
                    f"image lines {first} to {last} and {after} to {end} that capsules see are no "
                    f"steps of one window, {CAUSES}"
                )
    (types, *_) = counts
    if why is None and list(members) == [((0, image_shape[1] - 1), (0, image_shape[2] - 1))]:
        why = (
            f"all {types} capsules see the whole image, which leaves their positions open; give "
            "grid=(types, rows, columns) if they have any"
        )
    if why is not None:
        return NOWHERE._replace(evidence=f"none: {why}")
    lists = [members[row, column] for row in by_row for column in by_column]
    order = torch.tensor(lists).T.flatten()
    same = torch.equal(order, torch.arange(len(order)))
    grid = (types, len(by_row), len(by_column))
    by_place = torch.arange(len(order)).reshape(len(by_row), len(by_column), types)
    by_place = by_place.permute(2, 0, 1).flatten()
    how = "type by type" if same else "place by place" if torch.equal(order, by_place) else "mixed"
    vectors = (
        f"rows {by_row[0][0]} to {by_row[0][1]} and columns {by_column[0][0]} to {by_column[0][1]}"
    )
    evidence = f"{grid}, {how}; the first position sees {vectors}"
    return Places(grid, None if same else order, _slices(by_row), _slices(by_column), evidence)


def hollow(capsules: Capsules, result: Places, images: Tensor) -> str | None:
    """Return why the fields of a grid are no patches: a corner that none of its capsules sees.

    An example is a capsule made of several positions that lie in more than one row.
    """
    assert result.grid is not None
    types, rows, columns = result.grid
    sample = sorted({(r, c) for r in (0, rows // 2) for c in (0, columns // 2)})
    blind = {(place, corner) for place in sample for corner in range(4)}
    order = torch.arange(types * rows * columns) if result.order is None else result.order
    for seed in range(CORNER_DRAWS):
        base, noise = _noise(images, 100 + seed)
        corners, pictures = sorted(blind), [base]
        for (row, column), corner in corners:
            picture, lines = base.clone(), []
            for axis, field in ((1, result.rows[row]), (2, result.columns[column])):
                size = max(1, (field.stop - field.start) // 8)
                last = corner // axis % 2
                lines.append(slice(field.stop - size, field.stop) if last else
                             slice(field.start, field.start + size))  # fmt: skip
            picture[(slice(None), *lines)] = noise[(slice(None), *lines)]
            pictures.append(picture)
        moved = _change(capsules, torch.stack(pictures), len(images))
        moved = moved[:, order.to(moved.device)].unflatten(1, result.grid)
        limit = CLOSE * moved.amax()
        for k, (place, corner) in enumerate(corners):
            if bool((moved[k, :, place[0], place[1]] > limit).any()):
                blind.discard((place, corner))
        if not blind:
            return None
    place, _ = min(blind)
    return (
        f"none: the capsules that would lie at {place} see no whole patch of the image, one corner "
        f"of it is blind, {CAUSES}"
    )


def torn(rows: Tensor, columns: Tensor, grid) -> str | None:
    """Return why a given grid, type by type, is none: capsules of one row that see other lines.

    One capsule may see more lines than another, as with a wider window, but all of the other's.
    """
    for ranges, axis, name in ((rows, 1, "row"), (columns, 2, "column")):
        placed = ranges.reshape(*grid, 2).movedim(axis, 0).flatten(1, 2)
        for number, own in enumerate(placed.tolist()):
            windows = sorted({(first, -last) for first, last in own if first >= 0})
            for (first, last), (after, end) in pairwise(windows):
                if end < last:
                    return (
                        f"its {name} {number} would hold capsules that see image {name}s {first} "
                        f"to {-last}, and others that see {after} to {-end}"
                    )
    return None


def fields_of(rows: Tensor, columns: Tensor, grid) -> tuple[list[slice], list[slice]]:
    """Return image rows and columns that each position of a given grid sees, type by type."""
    result = []
    for ranges, axis in ((rows, 1), (columns, 2)):
        placed = ranges.reshape(*grid, 2).movedim(axis, 0).flatten(1, 2)
        first = [int(p[:, 0][p[:, 0] >= 0].min()) if (p >= 0).any() else 0 for p in placed]
        result.append(
            [slice(a, int(p[:, 1].max()) + 1) for a, p in zip(first, placed, strict=True)]
        )
    return result[0], result[1]


def _range(changed: Tensor) -> Tensor:
    """Return first and last line (I, 2) of truth values (lines, I)."""
    lines = torch.arange(len(changed), device=changed.device)[:, None]
    first = torch.where(changed, lines, len(changed)).amin(0)
    last = torch.where(changed, lines, -1).amax(0)
    return torch.stack((torch.where(last < 0, -1, first), last), 1).cpu()


def _slices(ranges) -> list[slice]:
    return [slice(first, last + 1) for first, last in ranges]
