"""Where capsules lie: places of a grid, and on the image."""

from __future__ import annotations


def has_places(grid: tuple[int, int, int] | None) -> bool:
    """Whether children lie at several places, so that there is a map to draw."""
    return grid is not None and grid[1] * grid[2] > 1


def extent(model) -> list[float]:
    """Where the grid lies on the image: left, right, bottom and top in pixels, for `imshow`.

    Each place is drawn at the centre of its receptive field, the size of the step to the next.
    Where there is no step (one place, or all see the same), the field is divided evenly.
    """
    _, rows, columns = model.grid
    first, last = model.receptive_field(0, 0), model.receptive_field(rows - 1, columns - 1)
    edges = []
    for a, b, count in zip(first, last, (rows, columns), strict=True):
        low, high = (a.start + a.stop - 1) / 2, (b.start + b.stop - 1) / 2
        half = (high - low) / (count - 1) / 2 if high > low else (a.stop - a.start) / 2
        edges.append((low - half, high + half))
    (top, bottom), (left, right) = edges
    return [left, right, bottom, top]
