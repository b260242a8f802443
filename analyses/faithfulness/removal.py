"""Removal of positions, capsules and pixels in the order of maps, for `faithfulness`."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, max_pool2d

from capsviz.analyses.faithfulness import curves, maps
from capsviz.analyses.faithfulness.scenes import Scene
from capsviz.analyses.faithfulness.units import CONTROLS, EFFECT, EVENLY
from capsviz.experiments.attacks import frozen
from capsviz.nn.images import like_of
from capsviz.statistics.detection import auroc
from capsviz.tracing import abilities, evidence, from_children, trace

CHUNK = 64  # images of a pass with gradients
OF_ROUTING = (maps.CHILDREN, maps.COUPLING, maps.UNIFORM, maps.ROUTED)


class Removal(NamedTuple):
    """What removing units of N images in the order of M maps does."""

    names: list[str]  # (M,)
    drawn: Tensor  # (2, 2, M, N, S): activation and accuracy; deletion and insertion
    apart: Tensor | None  # (M, N) AUROC of the object's positions; NaN: all are of one kind
    left_out: list[str]  # what the network has no map for, and why


def measured(model, scene: Scene, over: str, shares: Tensor, seed: int, progress) -> Removal:
    """Remove units in the order of every map, and show them alone.

    Raises
    ------
    ValueError  for capsules without positions, unless single ones are removed; a layer whose
                positions see only some capsules; or scores without a gradient.
    """
    grid, generator = abilities(model).grid, torch.Generator().manual_seed(seed)
    placed = evidence.has_places(grid)
    if over != "capsules" and not placed:
        raise ValueError("the capsules of this network have no positions: take --over capsules")
    traced = trace(model, scene.images, keep=("children", "child_activations"))
    own = [traced.require(part).clone() for part in ("children", "child_activations")]
    mean = [one.mean(0, keepdim=True) for one in own]
    places = grid[1] * grid[2] if grid and placed else own[1].shape[1]
    units = own[1].shape[1] if over == "capsules" else places

    def score(b: int, there: Tensor) -> Tensor:
        there = there.repeat(1, own[1].shape[1] // units)
        mixed = torch.where(there[..., None], own[0][b], mean[0])
        active = torch.where(there, own[1][b], mean[1])
        return curves.outcome(from_children(model, mixed, active), scene.labels[b])

    found, left_out = _of_capsules(model, scene, own, mean, gradients=over != "pixels")
    values = {name: one.unflatten(1, (-1, units)).sum(1) for name, one in found.items()}
    values = _controls(values[maps.ROUTED], places, generator) | values
    each = torch.cat([torch.ones(1, units), 1 - torch.eye(units)]).bool()
    fields = evidence.fields_of_places(model) if placed else None
    drawn, apart = [], []
    for b in progress(range(len(scene.images))):
        left = score(b, each)[:, 0].double()
        order = torch.stack([*(one[b] for one in values.values()), left[0] - left[1:]])
        if scene.parts is not None and fields is not None:
            apart.append(_apart(order.unflatten(1, (-1, places)).sum(1), scene.parts[b], fields))
        if over == "pixels" and fields is not None:
            image, label = scene.images[b : b + 1], scene.labels[b : b + 1]
            pixels = _in_pixels(order, image, fields)
            drawn.append(
                curves.of_pixels(model, image, pixels, label, shares, generator)[:, :, :, 0]
            )
        else:
            drawn.append(curves.curves(partial(score, b), curves.ranks(order, generator), shares))
    names = [*values, EFFECT]
    names += [name + EVENLY for name in names] if over == "pixels" else []
    return Removal(names, torch.stack(drawn, 3), torch.stack(apart, 1) if apart else None, left_out)


def _of_capsules(model, scene: Scene, own, mean, gradients: bool):
    """Return the maps of a network, of capsules (N, I), and in words those that it lacks."""
    like, grid, left_out = like_of(model), abilities(model).grid, []
    several = maps.convolutions(model, scene.images[:1].to(like)) if gradients else []
    if gradients and not (several and grid and evidence.has_places(grid)):
        several, left_out = [], ["no Grad-CAM: its convolutions or capsules have no positions"]
    elif gradients:
        try:
            captum = maps.require_captum()
        except ImportError as error:
            several, left_out = [], [f"no Grad-CAM: {error}"]
    starts, parts = [one.to(like) for one in mean], []
    with frozen(model):
        for rows in torch.arange(len(scene.images)).split(CHUNK):
            images, classes = scene.images[rows].to(like), scene.labels[rows, 0].to(like.device)
            found = {name: maps.of_capsules(model, images, classes, name) for name in OF_ROUTING}
            ends = [one[rows].to(like) for one in own]
            for name in (maps.GRADIENT, maps.INTEGRATED) if gradients else ():
                found[name] = maps.by_gradient(model, ends, starts, classes, name)
            if several and grid:
                watched = maps.Explained(model, several[-1])
                coarse = maps.grad_cam(captum, watched, images, classes)
                placed = adaptive_avg_pool2d(coarse, grid[1:]).cpu().double().flatten(1)
                found[maps.GRAD_CAM] = placed.repeat(1, grid[0])
            parts.append(found)
    return {name: torch.cat([one[name] for one in parts]) for name in parts[0]}, left_out


def _controls(routed: Tensor, places: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Return maps that know nothing of their image, after that of routing (N, U), by name."""
    grouped = routed.unflatten(1, (-1, places))
    order = torch.rand(len(routed), 1, places, generator=generator).argsort(2)
    random = torch.rand(routed.shape, generator=generator, dtype=torch.double)
    permuted = grouped.gather(2, order.expand_as(grouped)).flatten(1)
    each = (torch.ones_like(routed), random, permuted, routed.roll(1, 0))
    return dict(zip(CONTROLS, each, strict=True))


def _in_pixels(order: Tensor, image: Tensor, fields: Tensor) -> Tensor:
    """Divide maps of positions (M, P) among pixels by brightness, and evenly: (2 M, 1, H, W)."""
    order = order.unflatten(1, fields.shape[:2])
    images = image.expand(len(order), -1, -1, -1)
    both = [evidence.in_pixels(order, one, fields) for one in (images, torch.ones_like(images))]
    return torch.cat(both)[:, None]


def _apart(order: Tensor, parts: Tensor, fields: Tensor) -> Tensor:
    """Return AUROC (M,) of maps (M, P) for positions that see more of the first part; or NaN.

    `parts` (2, C, H, W) are the object and all else, seen in the middle half of a field.
    """
    quarter = int(fields.sum(2).max()) // 4
    middle = 1 - max_pool2d(1 - fields, 2 * quarter + 1, 1, quarter)
    first, other = torch.einsum("rchw,khw->krc", middle, parts.sum(1).double()).flatten(1)
    if not (first > other).any() or not (other > first).any():
        return torch.full((len(order),), torch.nan, dtype=torch.double)
    area = auroc(order[:, other > first].numpy(), order[:, first > other].numpy())
    return torch.from_numpy(area)
