"""Where capsules lie on the image, found by impulses: which capsules change with one row or column?

Capsules that change with the same rows and the same columns share a place. There is a grid where
the places are all pairs of some row ranges and some column ranges, with equally many capsules each.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
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
    """The grid, and how to bring capsules into its order."""

    grid: tuple[int, int, int] | None  # (types, rows, columns)
    order: Tensor | None  # (I,) theirs for each of the grid's, None where they are equal
    rows: list[slice]  # of the image, for each row of places
    columns: list[slice]
    evidence: str


def probe(capsules: Callable[[Tensor], Tensor], image_shape, batch: int, like: Tensor) -> Places:
    """Find the grid of capsules.

    Parameters
    ----------
    capsules     images (B, C, H, W) -> vectors (B, I, D).
    image_shape  (C, H, W).
    batch        images at a time, always as many.
    like         a tensor of the network's type and device.
    """
    rows, columns = ranges_of_sight(capsules, image_shape, batch, like)
    return arranged(rows, columns, image_shape)


def ranges_of_sight(capsules, image_shape, batch: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """First and last image row, then column, that change each capsule: (I, 2) each, -1 for none."""
    _, height, width = image_shape
    lines = [(1, row) for row in range(height)] + [(2, column) for column in range(width)]
    edges = [lines[0], lines[height - 1], lines[height], lines[-1]]
    at_edges = changed(capsules, edges, image_shape, batch, like, 0)
    if at_edges.all():  # each sees the whole image
        return tuple(
            torch.tensor([[0, n - 1]]).expand(len(at_edges[0]), 2) for n in (height, width)
        )
    result = changed(capsules, lines, image_shape, batch, like, 0)
    for seed in range(1, DRAWS):
        ranges = _range(result[:height]), _range(result[height:])
        if arranged(*ranges, image_shape).grid is not None:
            break
        result |= changed(capsules, lines, image_shape, batch, like, seed)
    return _range(result[:height]), _range(result[height:])


def changed(capsules, lines, image_shape, batch: int, like: Tensor, seed: int) -> Tensor:
    """Which capsules change with each line, (axis, number): (lines, I) truth values."""
    generator = torch.Generator().manual_seed(seed)
    base, noise = torch.rand((2, 1, *image_shape), generator=generator).to(like)
    images = base.repeat(1 + len(lines), 1, 1, 1)
    for image, (axis, line) in zip(images[1:], lines, strict=True):
        image.narrow(axis, line, 1).copy_(noise[0].narrow(axis, line, 1))
    images = torch.cat((images, images[:1].expand(-len(images) % batch, -1, -1, -1)))
    result = torch.cat([capsules(part) for part in images.split(batch)])[: 1 + len(lines)]
    result = (result - result[:1]).abs().flatten(2).amax(2)[1:]
    return result > CLOSE * result.amax().clamp_min(torch.finfo(result.dtype).tiny)


def arranged(rows: Tensor, columns: Tensor, image_shape) -> Places:
    """The grid of capsules that see these image rows and columns, each (I, 2)."""
    if (rows < 0).any() or (columns < 0).any():
        dead = int(((rows < 0).any(1) | (columns < 0).any(1)).sum())
        return Places(None, None, [], [], f"none: {dead} capsules change with no pixel")
    places = torch.cat((rows, columns), 1).tolist()
    by_row = sorted({tuple(place[:2]) for place in places})
    by_column = sorted({tuple(place[2:]) for place in places})
    members: dict[tuple, list[int]] = {}
    for child, place in enumerate(places):
        members.setdefault((tuple(place[:2]), tuple(place[2:])), []).append(child)
    counts = {len(m) for m in members.values()}
    if len(members) != len(by_row) * len(by_column) or len(counts) != 1:
        return Places(
            None, None, [], [],
            f"none: {len(places)} capsules see {len(members)} different patches, no full product "
            f"of {len(by_row)} rows and {len(by_column)} columns of places with equally many "
            f"capsules each, {CAUSES}",
        )  # fmt: skip
    (types,) = counts
    for ranges, size in ((by_row, image_shape[1]), (by_column, image_shape[2])):
        for (first, last), (after, end) in pairwise(ranges):
            if end < last or (first == after > 0) or (last == end < size - 1):
                return Places(
                    None, None, [], [],
                    f"none: image lines {first} to {last} and {after} to {end} that capsules see "
                    f"are no steps of one window, {CAUSES}",
                )  # fmt: skip
    whole = ((0, image_shape[1] - 1), (0, image_shape[2] - 1))
    if list(members) == [whole]:
        return Places(
            None, None, [], [],
            f"none: all {types} capsules see the whole image, which does not tell their places; "
            "give grid=(types, rows, columns) if they have any",
        )  # fmt: skip
    order = torch.tensor(
        [
            members[row, column][kind]
            for kind in range(types)
            for row in by_row
            for column in by_column
        ]
    )
    same = torch.equal(order, torch.arange(len(order)))
    grid = (types, len(by_row), len(by_column))
    by_place = torch.arange(len(order)).reshape(len(by_row), len(by_column), types)
    by_place = by_place.permute(2, 0, 1).flatten()
    how = "type by type" if same else "place by place" if torch.equal(order, by_place) else "mixed"
    vectors = (
        f"rows {by_row[0][0]} to {by_row[0][1]} and columns {by_column[0][0]} to {by_column[0][1]}"
    )
    evidence = f"{grid}, {how}; the first place sees {vectors}"
    return Places(grid, None if same else order, _slices(by_row), _slices(by_column), evidence)


def hollow(capsules, result: Places, image_shape, batch: int, like: Tensor) -> str | None:
    """Why what the places see are no patches: a corner of one that none of its capsules sees.

    As where a capsule is made of several positions that lie in more than one row.
    """
    types, rows, columns = result.grid
    sample = sorted({(r, c) for r in (0, rows // 2) for c in (0, columns // 2)})
    blind = {(place, corner) for place in sample for corner in range(4)}
    for seed in range(CORNER_DRAWS):
        generator = torch.Generator().manual_seed(100 + seed)
        base, noise = torch.rand((2, 1, *image_shape), generator=generator).to(like)
        pixels, pictures = sorted(blind), [base[0]]
        for (row, column), corner in pixels:
            picture, places = base[0].clone(), []
            for axis, field in ((1, result.rows[row]), (2, result.columns[column])):
                size = max(1, (field.stop - field.start) // 8)
                last = corner // axis % 2
                places.append(slice(field.stop - size, field.stop) if last else
                             slice(field.start, field.start + size))  # fmt: skip
            picture[(slice(None), *places)] = noise[0][(slice(None), *places)]
            pictures.append(picture)
        images = torch.stack(pictures)
        images = torch.cat((images, images[:1].expand(-len(images) % batch, -1, -1, -1)))
        vectors = torch.cat([capsules(part) for part in images.split(batch)])
        moved = (vectors - vectors[:1]).abs().flatten(2).amax(2)[1 : 1 + len(pixels)]
        order = torch.arange(types * rows * columns) if result.order is None else result.order
        moved = moved[:, order.to(moved.device)].unflatten(1, result.grid)
        limit = CLOSE * moved.amax()
        for k, (place, corner) in enumerate(pixels):
            if bool((moved[k, :, place[0], place[1]] > limit).any()):
                blind.discard((place, corner))
        if not blind:
            return None
    place, _ = min(blind)
    return (
        f"none: the capsules that would lie at {place} see no whole patch of the image, a corner "
        f"of it is blind, {CAUSES}"
    )


def torn(rows: Tensor, columns: Tensor, grid) -> str | None:
    """Why a grid, type by type, is none: a row or column of places whose capsules look elsewhere.

    Of two that are beside each other one may see more, as with a wider window, but all of it.
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
    """Image rows and columns that each place of a given grid sees, type by type."""
    result = []
    for ranges, axis in ((rows, 1), (columns, 2)):
        placed = ranges.reshape(*grid, 2).movedim(axis, 0).flatten(1, 2)
        first = [int(p[:, 0][p[:, 0] >= 0].min()) if (p >= 0).any() else 0 for p in placed]
        result.append(
            [slice(a, int(p[:, 1].max()) + 1) for a, p in zip(first, placed, strict=True)]
        )
    return result[0], result[1]


def _range(changed: Tensor) -> Tensor:
    """(lines, I) -> first and last line (I, 2)."""
    lines = torch.arange(len(changed), device=changed.device)[:, None]
    first = torch.where(changed, lines, len(changed)).amin(0)
    last = torch.where(changed, lines, -1).amax(0)
    return torch.stack((torch.where(last < 0, -1, first), last), 1).cpu()


def _slices(ranges) -> list[slice]:
    return [slice(first, last + 1) for first, last in ranges]
