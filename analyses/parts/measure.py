"""Break images, measure scores that detect them, and measure the relevance mass of units.

Quarters and halves of images are cut at the centre.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capsviz.statistics import detection
from capsviz.statistics.comparison import compare_means, draw_resamples
from capsviz.statistics.estimate import Estimate, less, stack, to_first
from capsviz.tracing import abilities, decode, evidence, scores, trace
from capsviz.tracing.outputs import distance

Broken = tuple[Tensor, Tensor | None]  # images, and the donor image (N,) of a part, if any
MOVE = 1 / 14  # share of the image's width: 2 px of 28, the usual training shift
LONGEST, RECONSTRUCTION = "largest score", "reconstruction error"
PIXELS = ("pixels: edges", "pixels: brightness", "pixels: nearest image")
STROKE = 0.25  # least brightness of a pixel of the stroke
SELECTED = 4  # one of so many lower-level capsule types is selected
DRAWS = 3  # sets of random directions, averaged as a control


def quarters_exchanged(images: Tensor, labels: Tensor, generator) -> Broken:
    """Exchange the upper left and lower right quarters, and the other two."""
    top, left = images.shape[2] // 2, images.shape[3] // 2
    result = images.clone()  # an odd middle row or column stays
    upper, lower, before, after = slice(top), slice(-top, None), slice(left), slice(-left, None)
    for rows, others in ((upper, lower), (lower, upper)):
        result[:, :, rows, before] = images[:, :, others, after]
        result[:, :, rows, after] = images[:, :, others, before]
    return result, None


def halves_joined(images: Tensor, labels: Tensor, generator, *, alike: bool) -> Broken:
    """Join the upper half to the lower half of an image of the same class or of another one."""
    donors = partners(labels, generator, alike=alike)
    return _with_lower_half(images, images[donors]), donors


def half_shifted(images: Tensor, labels: Tensor, generator) -> Broken:
    """Shift the lower half to the left or the right."""
    return _with_lower_half(images, whole_shifted(images, labels, generator)[0]), None


def whole_shifted(images: Tensor, labels: Tensor, generator) -> Broken:
    """Shift the whole image to the left or the right, filled with black."""
    by = max(1, round(MOVE * images.shape[3]))
    right = torch.rand(len(images), generator=generator) < 0.5
    result = torch.zeros_like(images)
    result[right, :, :, by:] = images[right, :, :, :-by]
    result[~right, :, :, :-by] = images[~right, :, :, by:]
    return result, None


def _with_lower_half(images: Tensor, others: Tensor) -> Tensor:
    top = images.shape[2] // 2
    return torch.cat([images[:, :, :top], others[:, :, top:]], 2)


KINDS: dict[str, Callable[..., Broken]] = {  # the last two are the controls
    "quarters exchanged": quarters_exchanged,
    "halves of two classes": partial(halves_joined, alike=False),
    "lower half shifted": half_shifted,
    "halves of one class": partial(halves_joined, alike=True),
    "whole shifted": whole_shifted,
}


def broken(images: Tensor, labels: Tensor, *, seed: int) -> dict[str, Broken]:
    """Return the images (N, C, H, W), changed in each of the `KINDS`."""
    return {
        name: make(images, labels, torch.Generator().manual_seed(seed))
        for name, make in KINDS.items()
    }


def partners(labels: Tensor, generator: torch.Generator, *, alike: bool) -> Tensor:
    """Return a random donor image (N,) for each, of the same class or of another one."""
    same = labels[:, None] == labels
    allowed = same & ~torch.eye(len(labels), dtype=torch.bool) if alike else ~same
    if not allowed.any(1).all():
        classes, counts = labels.unique(return_counts=True)
        raise ValueError(
            "halves of images are joined, across classes and within each class: expected 2 classes "
            f"or more, each with at least 2 images, got {counts.tolist()} images of the classes "
            f"{classes.tolist()}: take more images"
        )
    return torch.multinomial(allowed.double(), 1, generator=generator)[:, 0]


def suspicion(networks: Mapping, images: Tensor):
    """Return scores (S, N) of images (N, C, H, W), higher if more suspicious, and their names.

    The scores are 1 minus each network's largest score and, if it has a decoder, the distance to
    its reconstruction.
    """
    values, labels = [], []
    for name, model in networks.items():
        if abilities(model).decodes:
            traced = trace(model, images, keep=("lengths", "reconstruction"))
            values.append(1 - traced.require("lengths").amax(1))
            values.append(distance(images, traced.require("reconstruction")))
            labels += [f"{name}: {LONGEST}", f"{name}: {RECONSTRUCTION}"]
        else:
            values.append(1 - scores(model, images).amax(1))
            labels.append(f"{name}: {LONGEST}")
    return torch.stack([one.double() for one in values]).numpy(), labels


def of_pixels(images: Tensor, intact: Tensor, donors: Tensor | None = None) -> np.ndarray:
    """Return the scores `PIXELS` (3, N) of images, higher if more suspicious.

    They are the length of all edges, the distance of the brightness from the mean of the intact
    images, and the distance to the nearest intact image. The latter excludes the original image
    and the one of `donors` (N,).
    """
    images, intact = images.double(), intact.double()
    down, right = (images.diff(dim=axis).abs().flatten(1).sum(1) for axis in (2, 3))
    away = (images.flatten(1).sum(1) - intact.flatten(1).sum(1).mean()).abs()
    apart = torch.cdist(images.flatten(1), intact.flatten(1)).fill_diagonal_(torch.inf)
    if donors is not None:
        apart[torch.arange(len(images)), donors] = torch.inf
    return torch.stack([down + right, away, apart.amin(1)]).numpy()


def compare(networks: Mapping, images: Tensor, forms, controls: Mapping, *, seed: int):
    """Measure how well each score separates the images from what `broken` made of them.

    Return the names of the S scores, the AUROC (S, B), and the AUROC minus the control's (S, K),
    by `controls`.
    """
    clean, labels = suspicion(networks, images)
    intact, suspect = [], []
    for changed, donors in forms.values():
        intact.append(np.concatenate([clean, of_pixels(images, images, donors)]))
        own = suspicion(networks, changed)[0]
        suspect.append(np.concatenate([own, of_pixels(changed, images, donors)]))
    areas, kinds = aurocs(intact, suspect, seed=seed), list(forms)
    places, others = (
        [kinds.index(one) for one in side] for side in zip(*controls.items(), strict=True)
    )
    gain = less(areas[:, places], areas[:, others], paired=True)
    return [*labels, *PIXELS], areas.undrawn(), gain.undrawn()


def aurocs(clean: Sequence[np.ndarray], suspect: Sequence[np.ndarray], *, seed: int):
    """Return the AUROC (S, B) of each of B kinds of suspect images (S, N) against clean ones.

    An image and its broken copy are resampled together, in the same way for every kind. Differences
    are to the first score.
    """
    pairs = zip(clean, suspect, strict=True)
    areas = stack([detection.told_apart(*pair, paired=True, seed=seed) for pair in pairs], 1)
    return replace(areas, difference=to_first(areas))


def relevance(model, images: Tensor, *, seed: int) -> dict[str, Any]:
    """Return the fields of a result about perturbed and selected units, on images (N, C, H, W).

    The first row of an estimate is the control, the second the units. Columns are the mass on the
    stroke, in one half of it and, for perturbed units, the overlap of two units. Images whose
    prediction no other image shares are left out, because their units have no range. An estimate
    is None if the network lacks capsules, decoder or grid, or if fewer than 2 images remain.

    The method follows Tawalbeh & Oramas 2023 (arXiv:2305.05349), applied to halves of digits. The
    measure is relevance mass accuracy (Arras, Osman & Samek 2022, arXiv:2003.07258): the share of a
    map's mass inside a mask. Selection by explained variance, halves and controls are ours.
    """
    found: dict[str, Any] = {"perturbed": None, "selected": None, "chosen": []}
    strokes = images.mean(1) > STROKE
    some = strokes.flatten(1).sum(1) > 1
    images, strokes = images[some], strokes[some]
    if not abilities(model).has_capsules or len(images) < 2:
        return found
    halves = upper_and_lower(strokes)

    def compared(pairs) -> Estimate | None:
        values = torch.stack([torch.stack(pair) for pair in zip(*pairs, strict=True)])
        values = values[..., ~values.isnan().any(0).any(0)]  # (measures, 2, N)
        if values.shape[2] < 2:
            return None
        counts = draw_resamples(values.shape[2], seed=seed)
        means = [compare_means(one, counts, shares=False) for one in values.numpy()]
        return stack(means, axis=1).undrawn()  # another training run may leave out other images

    if abilities(model).decodes:
        traced = trace(model, images, keep=("poses", "lengths"))
        winner, poses = traced.require("lengths").argmax(1), traced.require("poses")[-1]
        own = poses[torch.arange(len(poses)), winner]
        generator, E = torch.Generator().manual_seed(seed), own.shape[1]
        axes = [torch.linalg.qr(torch.randn(E, E, generator=generator)).Q for _ in range(DRAWS)]
        *random, units = (
            _masses(changes(model, poses, own, winner, one), strokes, halves)
            for one in (*axes, torch.eye(E))
        )
        control = [torch.stack(one).mean(0) for one in zip(*random, strict=True)]
        found["perturbed"] = compared([control, units])
    grid = abilities(model).grid
    if grid is not None and evidence.has_places(grid):
        below = trace(model, images, keep=("child_activations",)).require("child_activations")
        places = below.unflatten(1, grid)
        count = max(1, grid[0] // SELECTED)
        chosen, found["explained"] = forward_selection(places.flatten(2).mean(2), count)
        fields = evidence.fields_of_places(model)
        fields = (fields / fields.sum((2, 3), keepdim=True).clamp_min(1)).float()
        maps = torch.einsum("btrc,rchw->bthw", places[:, chosen], fields)
        other = torch.arange(len(images)).roll(1)
        pair = [_masses(maps, strokes[k], halves[k])[:2] for k in (other, slice(None))]
        found |= {"selected": compared(pair), "chosen": chosen}
    return found


def changes(model, poses: Tensor, own: Tensor, winner: Tensor, axes: Tensor) -> Tensor:
    """Return the change of reconstructions (N, U, H, W) from lowest to highest value of directions.

    The lowest and highest values are those among images with the same prediction. The change is
    absolute, averaged over channels.

    Parameters
    ----------
    poses   (N, J, E) of all classes.
    own     (N, E) pose of the predicted class.
    winner  (N,) predicted class.
    axes    (U, E) orthonormal directions; the identity for the units themselves.
    """
    axes = axes.to(own)
    along = own @ axes.T
    low, high = torch.empty_like(along), torch.empty_like(along)
    for k in winner.unique():
        low[winner == k], high[winner == k] = along[winner == k].aminmax(dim=0)
    maps = []
    for u, axis in enumerate(axes):
        ends = []
        for end in (low, high):
            moved = poses.clone()
            by = (end[:, u] - along[:, u])[:, None] * axis
            moved[torch.arange(len(poses)), winner] = own + by
            ends.append(decode(model, moved, winner))
        maps.append((ends[1] - ends[0]).abs().mean(1))
    return torch.stack(maps, 1)


def upper_and_lower(strokes: Tensor) -> Tensor:
    """Return the upper and lower half (N, 2, H, W) of strokes (N, H, W), with about equal area."""
    rows = strokes.sum(2).cumsum(1)
    upper = (rows <= rows[:, -1:] / 2)[:, :, None]
    return torch.stack([strokes & upper, strokes & ~upper], 1)


def _masses(maps: Tensor, strokes: Tensor, halves: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return means (N,) over maps (N, U, H, W): mass on the stroke, in one half, overlap of two.

    The half is the one with more mass. Maps without mass are left out; NaN if all are.
    """
    flat = maps.flatten(2)
    tiny = torch.finfo(flat.dtype).tiny
    on = torch.einsum("nup,np->nu", flat, strokes.flatten(1).to(flat))
    half = torch.einsum("nup,nhp->nuh", flat, halves.flatten(2).to(flat)).amax(2)
    unit = flat / flat.norm(dim=2, keepdim=True).clamp_min(tiny)
    U = (flat > 0).any(2).sum(1)
    overlap = (unit.sum(1).square().sum(1) - unit.square().sum((1, 2))) / (U * (U - 1)).clamp_min(1)
    return (on / flat.sum(2)).nanmean(1), (half / on).nanmean(1), overlap


def forward_selection(activations: Tensor, count: int) -> tuple[list[int], float]:
    """Return up to `count` of the units (N, U), and the share of variance that they explain.

    Each step chooses the unit that explains most of the remaining variance of all units.
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
