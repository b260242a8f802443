"""Relevance mass of units on strokes and on their halves, for `parts`.

After Tawalbeh & Oramas 2023 (arXiv:2305.05349), applied to the halves of digits. The measure is
relevance mass accuracy (Arras, Osman & Samek 2022, arXiv:2003.07258): the share of a map's mass
that lies in a mask. Selection by explained variance, halves and controls are ours.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from capsviz.statistics.comparison import compare_means, draw_resamples
from capsviz.statistics.estimate import Estimate, stack
from capsviz.tracing import abilities, decode, evidence, reconstructs, trace

STROKE = 0.25  # of full brightness: what a pixel of the stroke has at least
SELECTED = 4  # one unit of as many in the layer below
DRAWS = 3  # sets of random directions, over which a control is averaged


def relevance(model, images: Tensor, *, seed: int) -> dict[str, Any]:
    """Return fields of a result about perturbed and selected units, on images (N, C, H, W).

    Of the estimates the control is first, then the units: mass on the stroke, in one half of that,
    and overlap of perturbed units. None: the network lacks what is needed.
    """
    found: dict[str, Any] = {"perturbed": None, "selected": None, "chosen": []}
    strokes = images.mean(1) > STROKE
    some = strokes.flatten(1).sum(1) > 1
    images, strokes = images[some], strokes[some]
    if not abilities(model).has_capsules or len(images) < 2:
        return found
    counts, halves = draw_resamples(len(images), seed=seed), upper_and_lower(strokes)

    def compared(pairs) -> Estimate:
        pairs = [torch.stack(pair).numpy() for pair in zip(*pairs, strict=True)]
        return stack([compare_means(pair, counts, shares=False) for pair in pairs], axis=1)

    if reconstructs(model):
        traced = trace(model, images, keep=("poses", "lengths"))
        winner, poses = traced.require("lengths").argmax(1), traced.require("poses")[-1]
        own = poses[torch.arange(len(poses)), winner]
        generator, E = torch.Generator().manual_seed(seed), own.shape[1]
        axes = [torch.linalg.qr(torch.randn(E, E, generator=generator)).Q for _ in range(DRAWS)]
        *random, units = (
            _measured(changes(model, poses, own, winner, one), strokes, halves)
            for one in (*axes, torch.eye(E))
        )
        control = [torch.stack(one).mean(0) for one in zip(*random, strict=True)]
        found["perturbed"] = compared([control, units])
    if evidence.has_places(abilities(model).grid):
        norms = trace(model, images, keep=("children",)).require("children").norm(dim=2)
        places = norms.unflatten(1, model.grid)
        count = max(1, model.grid[0] // SELECTED)
        chosen, found["explained"] = forward_selection(places.flatten(2).mean(2), count)
        fields = evidence.fields_of_places(model)
        fields = (fields / fields.sum((2, 3), keepdim=True).clamp_min(1)).float()
        maps = torch.einsum("btrc,rchw->bthw", places[:, chosen], fields)
        other = torch.arange(len(images)).roll(1)
        pair = [_measured(maps, strokes[k], halves[k])[:2] for k in (other, slice(None))]
        found |= {"selected": compared(pair), "chosen": chosen}
    return found


def changes(model, poses: Tensor, own: Tensor, winner: Tensor, axes: Tensor) -> Tensor:
    """Return how reconstructions change (N, U, H, W) as directions go from lowest to highest.

    Lowest and highest values are those of the images with the same prediction; the change is
    absolute, the mean over channels. Of the `winner` (N,) the pose (N, E) is its `own`; axes (U, E)
    are orthonormal directions, the identity for the units themselves.
    """
    along = own @ axes.T
    low, high = torch.empty_like(along), torch.empty_like(along)
    for k in winner.unique():
        low[winner == k], high[winner == k] = along[winner == k].aminmax(dim=0)
    maps = []
    for u, axis in enumerate(axes):
        ends = []
        for end in (low, high):
            moved = poses.clone()
            moved[torch.arange(len(poses)), winner] = (
                own + (end[:, u] - along[:, u])[:, None] * axis
            )
            ends.append(decode(model, moved, winner))
        maps.append((ends[1] - ends[0]).abs().mean(1))
    return torch.stack(maps, 1)


def upper_and_lower(strokes: Tensor) -> Tensor:
    """Halves (N, 2, H, W) of strokes (N, H, W), cut where half of their pixels lie above."""
    rows = strokes.sum(2).cumsum(1)
    upper = (rows <= rows[:, -1:] / 2)[:, :, None]
    return torch.stack([strokes & upper, strokes & ~upper], 1)


def _measured(maps: Tensor, strokes: Tensor, halves: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Means (N,) over the maps (N, U, H, W): mass on the stroke, in one half, overlap of two."""
    flat = maps.flatten(2)
    tiny = torch.finfo(flat.dtype).tiny
    on = torch.einsum("nup,np->nu", flat, strokes.flatten(1).to(flat))
    half = torch.einsum("nup,nhp->nuh", flat, halves.flatten(2).to(flat)).amax(2)
    unit = flat / flat.norm(dim=2, keepdim=True).clamp_min(tiny)
    U = flat.shape[1]
    overlap = (unit.sum(1).square().sum(1) - unit.square().sum((1, 2))) / max(1, U * (U - 1))
    whole = on / flat.sum(2).clamp_min(tiny)
    return whole.mean(1), (half / on.clamp_min(tiny)).mean(1), overlap


def forward_selection(activations: Tensor, count: int) -> tuple[list[int], float]:
    """Return up to `count` of the units (N, U), each the one that explains most of what is left of
    their variance, and the share that all of them explain.
    """
    left = activations.double() - activations.double().mean(0)
    total = left.square().sum()
    chosen: list[int] = []
    while len(chosen) < count and left.square().sum() > 1e-9 * total:
        products = left.T @ left
        own = products.diag()
        gains = torch.where(own > 1e-12 * total, products.square().sum(0) / own, 0.0)
        best = int(gains.argmax())
        chosen.append(best)
        axis = left[:, best] / own[best].sqrt()
        left = left - axis[:, None] * (axis @ left)
    return chosen, float(1 - left.square().sum() / total) if chosen else float("nan")
