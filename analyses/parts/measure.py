"""Scores of intact and broken images, by networks and by pixels, and their AUROC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from capsviz.analyses.parts.broken import KINDS, Broken
from capsviz.statistics import detection
from capsviz.statistics.estimate import less, stack, to_first
from capsviz.tracing import reconstructs, scores, trace
from capsviz.tracing.outputs import distance

LONGEST, RECONSTRUCTION = "largest score", "reconstruction error"
PIXELS = ("pixels: edges", "pixels: brightness", "pixels: nearest image")


def suspicion(networks: Mapping, images: Tensor):
    """Return scores (S, N) of images (N, C, H, W), higher if more suspicious, and their names.

    They are 1 minus the largest score of each network, and the distance to its reconstruction, if
    it has a decoder.
    """
    values, labels = [], []
    for name, model in networks.items():
        if reconstructs(model):
            traced = trace(model, images, keep=("lengths", "reconstruction"))
            values += [1 - traced.lengths.amax(1), distance(images, traced.reconstruction)]
            labels += [f"{name}: {LONGEST}", f"{name}: {RECONSTRUCTION}"]
        else:
            values.append(1 - scores(model, images).amax(1))
            labels.append(f"{name}: {LONGEST}")
    return torch.stack([one.double() for one in values]).numpy(), labels


def of_pixels(images: Tensor, intact: Tensor, donors: Tensor | None = None) -> np.ndarray:
    """Return the scores PIXELS (3, N) of images, higher for more suspicious ones.

    The length of all edges; the distance of the brightness from the mean of the intact images; the
    distance to the nearest intact image, other than its own and that of its donor (N,), which is
    near because a half was taken from it.
    """
    images, intact = images.double(), intact.double()
    edges = sum(images.diff(dim=axis).abs().flatten(1).sum(1) for axis in (2, 3))
    brightness = images.flatten(1).sum(1)
    away = (brightness - intact.flatten(1).sum(1).mean()).abs()
    apart = torch.cdist(images.flatten(1), intact.flatten(1)).fill_diagonal_(torch.inf)
    if donors is not None:
        apart[torch.arange(len(images)), donors] = torch.inf
    return torch.stack([edges, away, apart.amin(1)]).numpy()


def compare(networks: Mapping, images: Tensor, forms, controls: Mapping, *, seed: int):
    """Measure how well each score separates the images from what `broken` made of them.

    Returns
    -------
    Names of the S scores; AUROC (S, B), and that minus the control's (S, K) for each of `controls`,
    which is kind -> its control.
    """
    clean, labels = suspicion(networks, images)
    intact, suspect = [], []
    for changed, donors in forms.values():
        intact.append(np.concatenate([clean, of_pixels(images, images, donors)]))
        scores = suspicion(networks, changed)[0]
        suspect.append(np.concatenate([scores, of_pixels(changed, images, donors)]))
    areas = told_apart(intact, suspect, seed=seed)
    kinds = list(forms)
    own, control = (
        [kinds.index(one) for one in side] for side in zip(*controls.items(), strict=True)
    )
    gain = less(areas[:, own], areas[:, control], paired=True)
    return [*labels, *PIXELS], areas.undrawn(), gain.undrawn()


def told_apart(clean: Sequence[np.ndarray], suspect: Sequence[np.ndarray], *, seed: int):
    """Return the AUROC (S, B) of each of B kinds of suspect images (S, N) against clean ones.

    An image and what was made of it are resampled together, alike for every kind. The difference is
    to the first score.
    """
    pairs = zip(clean, suspect, strict=True)
    areas = stack([detection.told_apart(*pair, paired=True, seed=seed) for pair in pairs], 1)
    return replace(areas, difference=to_first(areas))


def broken(images: Tensor, labels: Tensor, *, seed: int) -> dict[str, Broken]:
    """The images (N, C, H, W), broken in each way, and as the controls have them."""
    return {
        name: make(images, labels, torch.Generator().manual_seed(seed))
        for name, make in KINDS.items()
    }
