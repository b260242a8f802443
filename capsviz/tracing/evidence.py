"""Where the evidence for a class comes from: additive maps over places, and in pixels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize


def has_places(grid: tuple[int, int, int] | None) -> bool:
    """Whether children lie at several places, so that there is a map to draw."""
    return grid is not None and grid[1] * grid[2] > 1


def additive_map(
    votes: Tensor, factors: Tensor, poses: Tensor, grid: tuple[int, int, int]
) -> Tensor:
    """What each place adds to each parent: Σ over types of c_ij (û_ij · v̂_j), in float64.

    Parameters
    ----------
    votes    (B, I, J, E).
    factors  (B, I, J) of one iteration: the couplings c_ij, or what stands in their place.
    poses    (B, J, E) after it; v̂_j is v_j / |v_j|.
    grid     (types, rows, columns).

    Returns
    -------
    (B, J, rows, columns). The sum over places is (Σ_i c_ij û_ij) · v̂_j exactly, by linearity.
    """
    direction = normalize(poses.double(), dim=-1)
    parts = factors.double() * torch.einsum("bije,bje->bij", votes.double(), direction)
    return parts.unflatten(1, grid).sum(1).movedim(-1, 1)


def in_pixels(maps: Tensor, images: Tensor, fields: Tensor) -> Tensor:
    """Place maps (B, rows, columns) in pixels: (B, H, W) double.

    Each place's value is divided among the pixels that it sees, in proportion to how far they are
    from black, summed over channels; evenly where all that it sees is black. The sum is kept.

    Parameters
    ----------
    images  (B, C, H, W) in [0, 1].
    fields  of `seen_by_places`.
    """
    maps, ink = maps.double(), images.double().sum(1)
    total = torch.einsum("rchw,bhw->brc", fields, ink)
    inked = total > 0
    weights = torch.where(inked, maps / total.where(inked, total.new_ones(())), 0.0)
    by_ink = torch.einsum("brc,rchw->bhw", weights, fields) * ink
    evenly = fields / fields.sum((2, 3), keepdim=True).clamp_min(1)
    return by_ink + torch.einsum("brc,rchw->bhw", maps * ~inked, evenly)


def seen_by_places(model) -> Tensor:
    """Which pixels each place of a network's grid sees: (rows, columns, H, W) double, 0 or 1."""
    _, rows, columns = model.grid
    _, height, width = model.config["image_shape"]
    fields = torch.zeros(rows, columns, height, width, dtype=torch.double)
    for r in range(rows):
        for c in range(columns):
            down, across = model.receptive_field(r, c)
            top, left = max(0, down.start), max(0, across.start)
            fields[r, c, top : max(top, down.stop), left : max(left, across.stop)] = 1
    return fields
