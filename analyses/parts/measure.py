"""Broken images with their controls, scores of them by networks and by pixels, and their AUROC.

Quarters and halves are cut at the image's centre.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from capsviz.statistics import detection
from capsviz.statistics.estimate import less, stack, to_first
from capsviz.tracing import reconstructs, scores, trace
from capsviz.tracing.outputs import distance

Broken = tuple[Tensor, Tensor | None]  # images, and from which other image (N,) a part was taken
MOVE = 1 / 14  # of the image's width: 2 px of 28, as far as training images are usually shifted
LONGEST, RECONSTRUCTION = "largest score", "reconstruction error"
PIXELS = ("pixels: edges", "pixels: brightness", "pixels: nearest image")


def quarters_exchanged(images: Tensor, labels: Tensor, generator) -> Broken:
    """Exchange upper left with lower right, upper right with lower left."""
    top, left = images.shape[2] // 2, images.shape[3] // 2
    result = torch.zeros_like(images)
    upper, lower, before, after = slice(top), slice(-top, None), slice(left), slice(-left, None)
    for rows, others in ((upper, lower), (lower, upper)):
        result[:, :, rows, before] = images[:, :, others, after]
        result[:, :, rows, after] = images[:, :, others, before]
    return result, None


def halves_joined(images: Tensor, labels: Tensor, generator, *, alike: bool) -> Broken:
    """Join the upper half and the lower half of another image, of the same class or of another."""
    donors = partners(labels, generator, alike=alike)
    return _with_lower_half(images, images[donors]), donors


def half_moved(images: Tensor, labels: Tensor, generator) -> Broken:
    """Shift the lower half to the left or the right."""
    return _with_lower_half(images, whole_moved(images, labels, generator)[0]), None


def whole_moved(images: Tensor, labels: Tensor, generator) -> Broken:
    """Shift the whole image as far, on black."""
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
    "lower half moved": half_moved,
    "halves of one class": partial(halves_joined, alike=True),
    "whole moved": whole_moved,
}


def broken(images: Tensor, labels: Tensor, *, seed: int) -> dict[str, Broken]:
    """Return the images (N, C, H, W), broken in each way, and as the controls have them."""
    return {
        name: make(images, labels, torch.Generator().manual_seed(seed))
        for name, make in KINDS.items()
    }


def partners(labels: Tensor, generator: torch.Generator, *, alike: bool) -> Tensor:
    """Return another image (N,) for each, of the same class or of another, at random."""
    same = labels[:, None] == labels
    allowed = same & ~torch.eye(len(labels), dtype=torch.bool) if alike else ~same
    if not allowed.any(1).all():
        raise ValueError(
            "halves are joined of images of two classes and of two images of each class: expected "
            f"at least 2 images of each of 2 classes or more, got {len(labels)} of the classes "
            f"{labels.unique().tolist()}: take more images"
        )
    return torch.multinomial(allowed.double(), 1, generator=generator)[:, 0]


def suspicion(networks: Mapping, images: Tensor):
    """Return scores (S, N) of images (N, C, H, W), higher if more suspicious, and their names.

    They are 1 minus the largest score of each network, and the distance to its reconstruction, if
    it has a decoder.
    """
    values, labels = [], []
    for name, model in networks.items():
        if reconstructs(model):
            traced = trace(model, images, keep=("lengths", "reconstruction"))
            values.append(1 - traced.require("lengths").amax(1))
            values.append(distance(images, traced.require("reconstruction")))
            labels += [f"{name}: {LONGEST}", f"{name}: {RECONSTRUCTION}"]
        else:
            values.append(1 - scores(model, images).amax(1))
            labels.append(f"{name}: {LONGEST}")
    return torch.stack([one.double() for one in values]).numpy(), labels


def of_pixels(images: Tensor, intact: Tensor, donors: Tensor | None = None) -> np.ndarray:
    """Return the scores PIXELS (3, N) of images, higher for more suspicious ones.

    The length of all edges; the distance of the brightness from the mean of the intact images; the
    distance to the nearest intact image, other than its own and that of its donor (N,).
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

    Return names of the S scores; AUROC (S, B), and that minus the control's (S, K) by `controls`.
    """
    clean, labels = suspicion(networks, images)
    intact, suspect = [], []
    for changed, donors in forms.values():
        intact.append(np.concatenate([clean, of_pixels(images, images, donors)]))
        own = suspicion(networks, changed)[0]
        suspect.append(np.concatenate([own, of_pixels(changed, images, donors)]))
    areas, kinds = told_apart(intact, suspect, seed=seed), list(forms)
    places, others = (
        [kinds.index(one) for one in side] for side in zip(*controls.items(), strict=True)
    )
    gain = less(areas[:, places], areas[:, others], paired=True)
    return [*labels, *PIXELS], areas.undrawn(), gain.undrawn()


def told_apart(clean: Sequence[np.ndarray], suspect: Sequence[np.ndarray], *, seed: int):
    """Return the AUROC (S, B) of each of B kinds of suspect images (S, N) against clean ones.

    An image and what was made of it are resampled together, alike for every kind. The difference is
    to the first score.
    """
    pairs = zip(clean, suspect, strict=True)
    areas = stack([detection.told_apart(*pair, paired=True, seed=seed) for pair in pairs], 1)
    return replace(areas, difference=to_first(areas))
