"""Where capsules lie: places of a grid, and on the image."""

from __future__ import annotations

from functools import partial
from inspect import signature


def extent(model, layer: int = -1) -> list[float]:
    """Where the grid lies on the image: left, right, bottom and top in pixels, for `imshow`.

    Each place is drawn at the centre of its receptive field, the size of the step to the next.
    Where there is no step (one place, or all see the same), the field is divided evenly.

    Parameters
    ----------
    layer  number of the routed layer whose children are meant, as an index.

    Raises
    ------
    ValueError  for a network whose children have no places, or that does not tell those of a layer.
    """
    grids = getattr(model, "grids", None) or [getattr(model, "grid", None)]
    field = getattr(model, "receptive_field", None)
    if grids[layer] is None or field is None:
        raise ValueError("the capsules of this network have no places: its grid is None")
    if "layer" in signature(field).parameters:
        field = partial(field, layer=layer)
    elif layer not in (-1, len(grids) - 1):
        raise ValueError(f"this network tells the places of its last layer, not of {layer}")
    _, rows, columns = grids[layer]
    first, last = field(0, 0), field(rows - 1, columns - 1)
    edges = []
    for a, b, count in zip(first, last, (rows, columns), strict=True):
        low, high = (a.start + a.stop - 1) / 2, (b.start + b.stop - 1) / 2
        half = (high - low) / (count - 1) / 2 if high > low else (a.stop - a.start) / 2
        edges.append((low - half, high + half))
    (top, bottom), (left, right) = edges
    return [left, right, bottom, top]


def below_classes(model, layer: int | None) -> int | None:
    """A routed layer by its number from 0; None for that of the classes, by whatever index.

    A number that is not there is left as it is: `trace` refuses it.
    """
    count = len(getattr(model, "grids", None) or [None])
    if layer is None or layer in (-1, count - 1):
        return None
    return layer % count if -count <= layer < count else layer
