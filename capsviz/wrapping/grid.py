"""Find the grid of capsules by changing one row or column of an image at a time.

Capsules that depend on the same rows and columns share a position. They form a grid if the
positions are all pairs of some row ranges and column ranges, with equally many capsules at each.
"""

from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

CLOSE = 1e-5  # share of the largest change; smaller changes count as rounding
DRAWS = 4  # maximum number of noise images; a single one may not change every capsule
CAUSES = (
    "as where `view` goes across positions or padding follows the primary convolution: give "
    "grid=(types, rows, columns) in the second case"
)


class Places(NamedTuple):
    """The grid of capsules, and how to reorder capsules to match it."""

    grid: tuple[int, int, int] | None  # (types, rows, columns)
    order: Tensor | None  # (I,) index in the network of each grid capsule; None: unchanged
    rows: list[slice]  # image rows for each row of the grid
    columns: list[slice]
    evidence: str


NOWHERE = Places(None, None, [], [], "")
Capsules = Callable[[Tensor], Tensor]  # images (B, C, H, W) -> vectors (B, I, D)


def find(capsules: Capsules, images: Tensor, grid: tuple[int, int, int] | str, what: str) -> Places:
    """Find the grid, or compare a given one with the image lines that change each capsule.

    `grid` is (types, rows, columns), or "probe". `images` gives only shape, dtype and batch size.
    `what` names the capsules. ValueError if they do not form the given grid.
    """
    rows, columns = _ranges_of_sight(capsules, images)
    result = _arranged(rows, columns, images.shape[1:])
    if isinstance(grid, str):
        if result.grid is not None and (why := _blind_corner(capsules, result, images)) is not None:
            result = NOWHERE._replace(evidence=why)
        return result._replace(evidence=f"{result.evidence}; by impulses of {what}")
    if grid != result.grid:
        if prod(grid) != len(rows):
            raise ValueError(
                f"grid {grid} does not fit {len(rows)} children: expected (types, rows, columns) "
                "whose product is their number"
            )
        down, across = _fields(rows, grid, 1), _fields(columns, grid, 2)
        if down is None or across is None:
            raise ValueError(
                f"the capsules do not form the grid {grid}: those of one row or column see image "
                f"lines that are not one window; impulses of pixels show: {result.evidence}; give "
                "grid='probe', or None for no positions"
            )
        result = Places(grid, None, down, across, "")
    return result._replace(evidence=f"{grid}, as given; the fields of its positions by impulses")


def _ranges_of_sight(capsules: Capsules, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first and last row and column that change each capsule: 2 x (I, 2), -1: none."""
    height, width = images.shape[2:]
    lines = [(1, row) for row in range(height)] + [(2, column) for column in range(width)]
    edges = [lines[0], lines[height - 1], lines[height], lines[-1]]
    at_edges = _changed(capsules, edges, images, 0)
    if at_edges.all():  # each capsule depends on the whole image
        count = len(at_edges[0])
        return torch.tensor([[0, height - 1]] * count), torch.tensor([[0, width - 1]] * count)
    result = _changed(capsules, lines, images, 0)
    for seed in range(1, DRAWS):
        ranges = _range(result[:height]), _range(result[height:])
        if _arranged(*ranges, images.shape[1:]).grid is not None:
            break
        result |= _changed(capsules, lines, images, seed)
    return _range(result[:height]), _range(result[height:])


def _changed(capsules: Capsules, lines: list[tuple[int, int]], images: Tensor, seed: int) -> Tensor:
    """Return whether each line, (axis, index), changes each capsule: booleans (lines, I)."""
    base, noise = _noise(images, seed)
    pictures = base.repeat(1 + len(lines), 1, 1, 1)
    for image, (axis, line) in zip(pictures[1:], lines, strict=True):
        image.narrow(axis, line, 1).copy_(noise.narrow(axis, line, 1))
    return _differ(capsules, pictures, len(images))


def _noise(images: Tensor, seed: int) -> Tensor:
    """Return two noise images (2, C, H, W)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand((2, *images.shape[1:]), generator=generator).to(images)


def _differ(capsules: Capsules, pictures: Tensor, batch: int) -> Tensor:
    """Return whether each capsule differs between the first and each other picture: (P - 1, I)."""
    padding = pictures[:1].expand(-len(pictures) % batch, -1, -1, -1)
    passes = torch.cat((pictures, padding)).split(batch)
    vectors = torch.cat([capsules(part) for part in passes])[: len(pictures)]
    change = (vectors - vectors[:1]).abs().flatten(2).amax(2)[1:]
    return change > CLOSE * change.amax().clamp_min(torch.finfo(change.dtype).tiny)


def _range(changed: Tensor) -> Tensor:
    """Return the first and last true line (I, 2) of booleans (lines, I); -1 if none is."""
    lines = torch.arange(len(changed), device=changed.device)[:, None]
    first = torch.where(changed, lines, len(changed)).amin(0)
    last = torch.where(changed, lines, -1).amax(0)
    return torch.stack((torch.where(last < 0, -1, first), last), 1).cpu()


def _arranged(rows: Tensor, columns: Tensor, image_shape) -> Places:
    """Return the grid of capsules that depend on these image rows and columns, each (I, 2)."""
    members: dict[tuple, list[int]] = {}
    for child, place in enumerate(torch.cat((rows, columns), 1).tolist()):
        members.setdefault((tuple(place[:2]), tuple(place[2:])), []).append(child)
    by_row, by_column = (sorted({place[k] for place in members}) for k in (0, 1))
    counts = {len(m) for m in members.values()}
    grid, why = (max(counts), len(by_row), len(by_column)), None
    for ranges, size in ((by_row, image_shape[1]), (by_column, image_shape[2])):
        for (first, last), (after, end) in pairwise(ranges):
            if end < last or (first == after > 0) or (last == end < size - 1):
                why = (
                    f"capsules see image lines {first} to {last} and {after} to {end}, which are "
                    f"not steps of one window, {CAUSES}"
                )
    if len(members) != len(by_row) * len(by_column) or len(counts) != 1:
        why = (
            f"{len(rows)} capsules see {len(members)} different patches, no full product of "
            f"{len(by_row)} rows and {len(by_column)} columns of positions with equally many "
            f"capsules each, {CAUSES}"
        )
    elif list(members) == [((0, image_shape[1] - 1), (0, image_shape[2] - 1))]:
        why = (
            f"all {grid[0]} capsules see the whole image, which leaves their positions open; give "
            "grid=(types, rows, columns) if they have any"
        )
    if dead := int(((rows < 0).any(1) | (columns < 0).any(1)).sum()):
        why = f"{dead} capsules change with no pixel"
    if why is not None:
        return NOWHERE._replace(evidence=f"none: {why}")
    order = torch.tensor([members[row, column] for row in by_row for column in by_column])
    order = order.T.flatten()
    same = torch.equal(order, torch.arange(len(order)))
    evidence = (
        f"{grid}, {'type by type' if same else 'in another order'}; the first position sees rows "
        f"{by_row[0][0]} to {by_row[0][1]} and columns {by_column[0][0]} to {by_column[0][1]}"
    )
    down, across = ([slice(a, b + 1) for a, b in one] for one in (by_row, by_column))
    return Places(grid, None if same else order, down, across, evidence)


def _blind_corner(capsules: Capsules, result: Places, images: Tensor) -> str | None:
    """Return an error text if some capsules ignore a corner of their patch; None if none do.

    This happens if a capsule combines positions from more than one row, for example.
    """
    assert result.grid is not None
    types, rows, columns = result.grid
    sample = sorted({(r, c) for r in (0, rows // 2) for c in (0, columns // 2)})
    blind = [(place, down, across) for place in sample for down in (0, 1) for across in (0, 1)]
    order = torch.arange(types * rows * columns) if result.order is None else result.order
    for seed in range(DRAWS):
        base, noise = _noise(images, 100 + seed)
        pictures = [base]
        for (row, column), *ends in blind:
            corner = [slice(None)]
            for field, last in zip((result.rows[row], result.columns[column]), ends, strict=True):
                size = max(1, (field.stop - field.start) // 8)
                first = field.stop - size if last else field.start
                corner.append(slice(first, first + size))
            picture = base.clone()
            picture[tuple(corner)] = noise[tuple(corner)]
            pictures.append(picture)
        moved = _differ(capsules, torch.stack(pictures), len(images))
        moved = moved[:, order.to(moved.device)].unflatten(1, result.grid).any(1)
        blind = [one for k, one in enumerate(blind) if not moved[(k, *one[0])]]
        if not blind:
            return None
    return (
        f"none: the capsules that would lie at {blind[0][0]} do not depend on one corner of their "
        f"patch of the image, {CAUSES}"
    )


def _fields(ranges: Tensor, grid: tuple[int, int, int], axis: int) -> list[slice] | None:
    """Return the image lines that affect each row (axis 1) or column (2) of a given grid.

    Capsules of one row or column may have windows of different widths, but the windows must be
    nested; otherwise return None.
    """
    result = []
    for own in ranges.reshape(*grid, 2).movedim(axis, 0).flatten(1, 2).tolist():
        windows = sorted({(first, -last) for first, last in own if first >= 0})
        if any(end < last for (_, last), (_, end) in pairwise(windows)):
            return None
        result.append(slice(windows[0][0], 1 - windows[0][1]) if windows else slice(0, 0))
    return result
