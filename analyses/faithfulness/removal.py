"""Scenes, and removal of positions, capsules and pixels in the order of maps."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, max_pool2d

from capsviz.analyses.faithfulness import measures
from capsviz.data import Dataset, multimnist
from capsviz.experiments import maps
from capsviz.experiments.attacks import frozen
from capsviz.nn.images import like_of
from capsviz.statistics.detection import auroc
from capsviz.tracing import abilities, evidence, from_children, trace
from capsviz.transforms.augment import to_float

CHUNK = 64  # images of a pass with gradients
OF_ROUTING = (maps.CHILDREN, maps.COUPLING, maps.UNIFORM, maps.ROUTED)
PIECES = 8  # of other images in a cluttered scene
SIDE = 1 / 4  # of a piece, of the image's side


class Scene(NamedTuple):
    """N images, and what they show."""

    images: Tensor  # (N, C, H, W) in [0, 1]
    labels: Tensor  # (N, K) classes, that of the object in question first
    parts: Tensor | None  # (N, 2, C, H, W): the object, and all else; None: there is nothing else


def make(part: Dataset, scene: str, seed: int) -> Scene:
    """Make scenes of the images of a data set, from a seed.

    "clean" leaves them as they are. "cluttered" adds squares from other images of the data set at
    random places (after Mnih et al. 2014, arXiv:1406.6247). "two-digits" adds an image of another
    class as MultiMNIST does, within the frame; images that show two objects are left as they are.
    ValueError for those in another scene.
    """
    if scene == "two-digits":
        both, frame = part, slice(None)
        if part.parts is None:
            both = multimnist.make(part, seed=seed)
            frame = slice(multimnist.SHIFT_PX, -multimnist.SHIFT_PX)
        assert both.parts is not None
        images, parts = (to_float(one[..., frame, frame]) for one in (both.images, both.parts))
        return Scene(images, both.labels, parts)
    images, labels = to_float(part.single().images), part.labels[:, None]
    if scene == "clean":
        return Scene(images, labels, None)
    generator, clutter = torch.Generator().manual_seed(seed), torch.zeros_like(images)
    N, _, H, W = images.shape
    height, width = round(SIDE * H), round(SIDE * W)
    for k in range(N):
        for donor in torch.randint(1, N, (PIECES,), generator=generator).tolist():
            y, x, top, left = torch.rand(4, generator=generator).tolist()
            y, x = int(H * (1 + 2 * y) / 4), int(W * (1 + 2 * x) / 4)  # from the middle
            top, left = int((H - height + 1) * top), int((W - width + 1) * left)
            piece = images[(k + donor) % N, :, y : y + height, x : x + width]
            clutter[k, :, top : top + height, left : left + width] = piece
    parts = torch.stack([images, clutter], 1)
    return Scene(parts.amax(1), labels, parts)


def measured(model, scene: Scene, over: str, shares: Tensor, seed: int, progress):
    """Remove units of N images in the order of M maps, and show them alone.

    Return names of the maps; `curves` (2, 2, M, N, S) of activation and accuracy; AUROC (M, N') of
    the object's positions, in images that show both, or None; and which maps the network lacks.
    ValueError for capsules without positions, unless single ones are removed.
    """
    grid, generator = abilities(model).grid, torch.Generator().manual_seed(seed)
    placed = grid is not None and evidence.has_places(grid)
    if over != "capsules" and not placed:
        raise ValueError("the capsules of this network have no positions: take --over capsules")
    traced = trace(model, scene.images, keep=("children", "child_activations"))
    activations = traced.require("child_activations")[..., None]
    own = torch.cat([traced.require("children"), activations], 2)  # (N, I, D + 1)
    mean, capsules = own.mean(0, keepdim=True), own.shape[1]
    places = grid[1] * grid[2] if grid is not None and placed else capsules
    units = capsules if over == "capsules" else places

    def score(b: int, there: Tensor) -> Tensor:
        mixed = torch.where(there.repeat(1, capsules // units)[..., None], own[b], mean)
        classes = from_children(model, mixed[..., :-1], mixed[..., -1])
        return measures.outcome(classes, scene.labels[b])

    found, left_out = _of_capsules(model, scene, own, mean, gradients=over != "pixels")
    values = {name: one.unflatten(1, (-1, units)).sum(1) for name, one in found.items()}
    values = _controls(values[maps.ROUTED], places, generator) | values
    each = torch.cat([torch.ones(1, units), 1 - torch.eye(units)]).bool()
    fields = evidence.fields_of_places(model) if placed else torch.empty(0)
    drawn, apart = [], []
    for b in progress(range(len(own))):
        left = score(b, each)[:, 0].cpu().double()
        order = torch.stack([*(one[b] for one in values.values()), left[0] - left[1:]])
        if scene.parts is not None and placed:
            apart.append(_apart(order.unflatten(1, (-1, places)).sum(1), scene.parts[b], fields))
        if over == "pixels":
            image, label = scene.images[b : b + 1], scene.labels[b : b + 1]
            order = order.unflatten(1, fields.shape[:2])  # by brightness, and evenly
            both = (image.expand(len(order), -1, -1, -1), torch.ones(len(order), *image.shape[1:]))
            orders = torch.cat([evidence.in_pixels(order, one, fields) for one in both])[:, None]
            one = measures.of_pixels(model, image, orders, label, shares, generator)
            drawn.append(one[:, :, :, 0])
        else:
            rank = measures.ranks(order, generator)
            drawn.append(measures.curves(partial(score, b), rank, shares))
    names = [*values, maps.EFFECT]
    names += [name + maps.EVENLY for name in names] if over == "pixels" else []
    return names, torch.stack(drawn, 3), torch.cat(apart, 1) if apart else None, left_out


def _of_capsules(model, scene: Scene, own: Tensor, mean: Tensor, gradients: bool):
    """Return maps of capsules (N, I) by name, and in words those that the network lacks."""
    like, left_out, parts = like_of(model), [], []
    several = maps.convolutions(model, scene.images[:1].to(like)) if gradients else []
    if gradients and not (several and evidence.has_places(abilities(model).grid)):
        several, left_out = [], ["no Grad-CAM: its convolutions or capsules have no positions"]

    def ahead(children: Tensor) -> Tensor:
        return model.from_children(children[..., :-1], children[..., -1])[1]

    with frozen(model):
        for rows in torch.arange(len(own)).split(CHUNK):
            images, classes = scene.images[rows].to(like), scene.labels[rows, 0].to(like.device)
            found = {name: maps.of_capsules(model, images, classes, name) for name in OF_ROUTING}
            for name in (maps.GRADIENT, maps.INTEGRATED) if gradients else ():
                ends = mean.to(like), own[rows].to(like)
                found[name] = maps.on_the_way(ahead, *ends, classes, name).sum(2)
            for number in several[-1:]:
                types, *sides = model.grid
                coarse = adaptive_avg_pool2d(maps.grad_cam(model, number, images, classes), sides)
                found[maps.GRAD_CAM] = coarse.cpu().double().flatten(1).repeat(1, types)
            parts.append(found)
    return {name: torch.cat([one[name] for one in parts]) for name in parts[0]}, left_out


def _controls(routed: Tensor, places: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Return maps that know nothing of their image, after that of routing (N, U), by name."""
    grouped = routed.unflatten(1, (-1, places))
    order = torch.rand(len(routed), 1, places, generator=generator).argsort(2)
    random = torch.rand(routed.shape, generator=generator, dtype=torch.double)
    permuted = grouped.gather(2, order.expand_as(grouped)).flatten(1)
    each = (torch.ones_like(routed), random, permuted, routed.roll(1, 0))
    return dict(zip(maps.CONTROLS, each, strict=True))


def _apart(order: Tensor, parts: Tensor, fields: Tensor) -> Tensor:
    """Return AUROC of maps (M, P) for positions that see more of the first part: (M, 1) or (M, 0).

    `parts` (2, C, H, W) are the object and all else, seen in the middle half of a field.
    """
    quarter = int(fields.sum(2).max()) // 4
    middle = 1 - max_pool2d(1 - fields, 2 * quarter + 1, 1, quarter)
    first, other = torch.einsum("rchw,khw->krc", middle, parts.sum(1).double()).flatten(1)
    if not (first > other).any() or not (other > first).any():
        return torch.empty(len(order), 0)
    area = auroc(order[:, other > first].numpy(), order[:, first > other].numpy())
    return torch.from_numpy(area)[:, None]
