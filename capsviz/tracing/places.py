"""Where the places of a grid of capsules lie on the image."""

from __future__ import annotations


def extent(model) -> list[float]:
    """Where the grid lies on the image: left, right, bottom and top in pixels, for `imshow`.

    Each place is drawn at the centre of its receptive field, the size of the step to the next.
    Where there is no step (one place, or all see the same), the field is divided evenly.

    Raises
    ------
    ValueError  for a network whose children have no places.
    """
    if model.grid is None:
        raise ValueError("the capsules of this network have no places: its grid is None")
    _, rows, columns = model.grid
    first, last = model.receptive_field(0, 0), model.receptive_field(rows - 1, columns - 1)
    edges = []
    for a, b, count in zip(first, last, (rows, columns), strict=True):
        low, high = (a.start + a.stop - 1) / 2, (b.start + b.stop - 1) / 2
        half = (high - low) / (count - 1) / 2 if high > low else (a.stop - a.start) / 2
        edges.append((low - half, high + half))
    (top, bottom), (left, right) = edges
    return [left, right, bottom, top]
