"""Compute additive maps of the evidence for a class, over positions and in pixels."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from capsviz.nn.quantity import ALONG_POSE, Quantity
from capsviz.tracing.network import abilities
from capsviz.tracing.record import PER_ITERATION, Trace

PARTS = ("votes", "couplings", "weights", "evidence", "poses")  # of a trace, for these maps
# if the network gives evidence without a `quantity`
OWN = Quantity("evidence", "the network's own evidence", "its sum", "its sum")


def has_places(grid: tuple[int, int, int] | None) -> bool:
    """Return whether children lie at several positions, so that a map can be drawn."""
    return grid is not None and grid[1] * grid[2] > 1


def quantity(traced: Trace) -> Quantity:
    """Return a description of the evidence of a trace; by default, the length along a pose."""
    if traced.evidence is None:
        return ALONG_POSE
    return OWN if traced.quantity is None else traced.quantity


def of_image(traced: Trace, index: int) -> Trace:
    """Return a trace with the `PARTS` of one image alone, as views."""
    some = slice(index, index + 1)
    pieces = {name: getattr(traced, name) for name in PARTS}
    for name, value in pieces.items():
        if value is not None:
            pieces[name] = value[:, some] if name in PER_ITERATION else value[some]
    return replace(traced, **pieces)


def of_children(traced: Trace, iteration: int = -1) -> Tensor:
    """Return the evidence that each child adds to each parent, in float64.

    The shape is (N, I, J), or (N, Q, I, J) for a layer with Q positions that see some children.
    By default it is c_ij (û_ij · v̂_j), with the factor c_ij of the votes and v̂_j = v_j / |v_j|;
    its sum over children is (Σ_i c_ij û_ij) · v̂_j. A routing may define another decomposition.
    """
    if traced.evidence is not None:
        return traced.evidence[iteration].double()
    assert traced.factors is not None
    direction = normalize(traced.require("poses")[iteration].double(), dim=-1)
    along = torch.einsum("...ije,...je->...ij", traced.require("votes").double(), direction)
    return traced.factors[iteration].double() * along


def additive_map(traced: Trace, iteration: int = -1, *, position: int | None = None) -> Tensor:
    """Return the evidence of each child position for each parent, summed over types.

    Parameters
    ----------
    traced     with `PARTS`, of a layer whose children have a grid.
    iteration  index of the routing iteration.
    position   number of one position of the parents, row by row, if they see only some children;
               None: the sum over all positions.

    Returns
    -------
    (N, J, rows, columns) double. The sum over child positions is the total evidence for a parent.

    Raises
    ------
    ValueError  if the children have no positions, or the position does not exist.
    """
    if traced.grid is None:
        raise ValueError("the children of this layer have no positions: there is no map")
    parts = of_children(traced, iteration)
    if traced.links is not None:
        parts = at_children(parts, traced.links, position)
    elif position not in (None, 0):
        raise ValueError(f"all parents of this layer are at one position, got position {position}")
    return parts.unflatten(1, traced.grid).sum(1).movedim(-1, 1)


def at_children(parts: Tensor, links, position: int | None = None) -> Tensor:
    """Sum parts of slots (N, Q, I, J) by child, over all positions or at one: (N, count, J)."""
    child = links.child.to(parts.device)
    if position is not None:
        if not 0 <= position < len(child):
            raise ValueError(f"position {position}: expected 0 to {len(child) - 1}")
        parts, child = parts[:, position : position + 1], child[position : position + 1]
    mask = child.flatten() >= 0
    total = parts.new_zeros(len(parts), links.count, parts.shape[-1])
    return total.index_add_(1, child.flatten()[mask], parts.flatten(1, 2)[:, mask])


def in_pixels(maps: Tensor, images: Tensor, fields: Tensor) -> Tensor:
    """Convert maps over positions (B, rows, columns) to pixels: (B, H, W) double.

    The value of a position is divided among the pixels of its receptive field (`fields_of_places`)
    in proportion to their brightness, summed over the channels of the images (B, C, H, W). If all
    are black, it is divided equally. The total stays the same.
    """
    maps, brightness = maps.double(), images.double().sum(1)
    total = torch.einsum("rchw,bhw->brc", fields, brightness)
    lit = total > 0
    weights = torch.where(lit, maps / total.where(lit, total.new_ones(())), 0.0)
    by_brightness = torch.einsum("brc,rchw->bhw", weights, fields) * brightness
    evenly = fields / fields.sum((2, 3), keepdim=True).clamp_min(1)
    return by_brightness + torch.einsum("brc,rchw->bhw", maps * ~lit, evenly)


def fields_of_places(model) -> Tensor:
    """Return masks of the receptive fields of all positions: (rows, columns, H, W) double, 0 or 1.

    ValueError if the network does not declare its grid, receptive fields, or image shape.
    """
    able = abilities(model)
    if able.grid is None or able.image_shape is None or not able.has_receptive_fields:
        raise ValueError("this network does not say where its capsules lie on an image")
    (_, rows, columns), (_, height, width) = able.grid, able.image_shape
    fields = torch.zeros(rows, columns, height, width, dtype=torch.double)
    for r in range(rows):
        for c in range(columns):
            down, across = model.receptive_field(r, c)
            top, left = max(0, down.start), max(0, across.start)
            fields[r, c, top : max(top, down.stop), left : max(left, across.stop)] = 1
    return fields
