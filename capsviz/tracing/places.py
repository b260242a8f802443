"""Where capsules lie: places of a grid, and on the image."""

from __future__ import annotations

from functools import partial
from inspect import signature


def grids(model) -> list[tuple[int, int, int] | None]:
    """Types, rows and columns of the children of every routed layer; None where they have none."""
    return getattr(model, "grids", None) or [getattr(model, "grid", None)]


def extent(model, layer: int = -1) -> list[float]:
    """Where the grid lies on the image: left, right, bottom and top in pixels, for `imshow`.

    Each place is drawn at the centre of its receptive field, the size of the step to the next.
    Where its field is cut off at the border, that of the whole one is meant.
    Where there is no step (one place, or all see the same), the field is divided evenly.

    Parameters
    ----------
    layer  number of the routed layer whose children are meant, as an index.

    Raises
    ------
    ValueError  for a network whose children have no places, or that does not tell those of a layer.
    """
    every = grids(model)
    grid, field = every[layer], getattr(model, "receptive_field", None)
    if grid is None or field is None:
        raise ValueError("the capsules of this network have no places: its grid is None")
    if "layer" in signature(field).parameters:
        field = partial(field, layer=layer)
    elif layer not in (-1, len(every) - 1):
        raise ValueError(f"this network tells the places of its last layer, not of {layer}")
    _, rows, columns = grid
    top, bottom = _ends([field(row, 0)[0] for row in range(rows)])
    left, right = _ends([field(0, column)[1] for column in range(columns)])
    return [left, right, bottom, top]


def _ends(fields: list[slice]) -> tuple[float, float]:
    """Outer edges of places in a row that see these pixels.

    Fields that are shorter than others are cut off at the border of the image: where their places
    lie is told by those that are whole.
    """
    centres = [(one.start + one.stop - 1) / 2 for one in fields]
    low, high, count = centres[0], centres[-1], len(fields)
    sizes = [one.stop - one.start for one in fields]
    whole = [k for k, size in enumerate(sizes) if size == max(sizes)]
    if 1 < len(whole) < count and (span := centres[whole[-1]] - centres[whole[0]]) > 0:
        step = span / (whole[-1] - whole[0])
        low = centres[whole[0]] - step * whole[0]
        high = low + step * (count - 1)
    half = (high - low) / (count - 1) / 2 if high > low else sizes[0] / 2
    return low - half, high + half


def children_words(model) -> str:
    """What the children of the classes are called: the primary ones where one layer is routed."""
    return "capsules below the classes" if len(grids(model)) > 1 else "primary capsules"


def below_classes(model, layer: int | None) -> int | None:
    """A routed layer by its number from 0; None for that of the classes, by whatever index.

    A number that is not there is left as it is: `trace` refuses it.
    """
    count = len(grids(model))
    if layer is None or layer in (-1, count - 1):
        return None
    return layer % count if -count <= layer < count else layer
