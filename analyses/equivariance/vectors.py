"""Vectors of images for `equivariance`: poses, features, pixels; and which images are fitted on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsviz import checkpoint
from capsviz.analyses.equivariance.fits import LEAST
from capsviz.discovery import unknown
from capsviz.statistics.intervals import require_two
from capsviz.tracing import features
from capsviz.tracing.needs import missing
from capsviz.transforms.warps import family_matrix, warp

BLOCK = 2500  # images whose vectors are held at once, or those of one class
RANDOM = "pixels along random directions"


class Kinds(NamedTuple):
    """S kinds; those that are drawn, anew in each of the draws.

    Vectors are, in order, those of `networks`, the pixels, and these along each of `axes`.
    """

    names: list[str]  # S, the first network's first
    networks: list  # all that look at images, those of all draws
    axes: list[np.ndarray]  # (C·H·W, E) random directions, a draw each
    picked: list[list[int]]  # for each draw the number of the vectors of each kind
    seeds: int  # draws of untrained networks
    notes: list[str]  # what could not be had

    @property
    def count(self) -> int:
        """How many vectors there are."""
        return len(self.networks) + 1 + len(self.axes)


def kinds(models, names, images, seeds: int, seed: int) -> Kinds:
    """Return the network, untrained ones by preset, the others, pixels, and random directions.

    The random directions are as many as its pose has numbers.
    """
    fresh, missing = checkpoint.controls(models[0], range(seed, seed + seeds), images)
    draws, presets = max(1, seeds), len(fresh)
    networks = [models[0], *(one for some in fresh.values() for one in some), *models[1:]]
    count = features(models[0], images[:1], torch.zeros(1, dtype=torch.long)).shape[1]
    axes = [
        np.random.default_rng(seed + k).standard_normal((images[0].numel(), count), np.float32)
        for k in range(draws)
    ]
    same = range(1 + presets * seeds, len(networks) + 1)  # the others and the pixels
    return Kinds(
        [names[0], *(f"{names[0]} {one}" for one in fresh), *names[1:], "pixels", RANDOM],
        networks,
        axes,
        [
            [0, *(1 + preset * seeds + k for preset in range(presets)), *same, same.stop + k]
            for k in range(draws)
        ],
        seeds if fresh else 0,
        missing,
    )


def check(model, name: str, warps, known, seeds: int, fit: int, n: int) -> None:
    """ValueError for no capsules, an unknown warp, or a bad number of seeds or images."""
    require_two(n)
    if fit < 1:
        raise ValueError(f"expected at least 1 image to fit on, got --fit {fit}")
    if missing(model, ("poses",)):
        raise ValueError(
            f"{name} has no capsules: expected a capsule network first, those that it is "
            "compared with after it"
        )
    for one in warps:
        if one not in known:
            raise ValueError(unknown("warp", one, list(known)))
    if len(warps) == 0 or len(set(warps)) < len(warps):
        raise ValueError(f"expected different warps, got {list(warps)}")
    if seeds < 0:
        raise ValueError(f"expected 0 untrained networks or more, got --seeds {seeds}")


def groups(labels, fit_images, fit_labels, fit: int, fit_of: str):
    """Return which images are measured and which are fitted on, class by class.

    Parameters
    ----------
    labels                   (N,) of the images that are measured.
    fit_images, fit_labels   of others, or None.
    fit                      of each class, at most.
    fit_of                   what they are, in words.

    Returns
    -------
    (class, its rows among the measured, those among the others or None) for each class, how many
    a fit is on, and notes.

    Raises
    ------
    ValueError  for fewer than `LEAST` images to fit on.
    """
    own = {int(k): np.flatnonzero(labels == k) for k in np.unique(labels)}
    if fit_images is None:
        rarest = min(own, key=lambda k: len(own[k]))
        if len(own[rarest]) < LEAST:
            raise ValueError(
                f"class {rarest} has {len(own[rarest])} images, expected at least {LEAST} of "
                "each: use more images (--n)"
            )
        half = len(own[rarest]) // 2
        note = f"no training images: fits are on half of the images, {half} of a class or more"
        return [(k, places, None) for k, places in own.items()], half, [f"{note}, not {fit}"]
    fit_labels = fit_labels.cpu().numpy()
    others = {k: np.flatnonzero(fit_labels == k) for k in own}
    rarest = min(own, key=lambda k: len(others[k]))
    fewest = min(fit, len(others[rarest]))
    if fewest < LEAST:
        raise ValueError(
            f"expected at least {LEAST} {fit_of} of a class to fit on, got {fewest} of class "
            f"{rarest}: use more (--fit)"
        )
    note = f"class {rarest} has {fewest} {fit_of}: fits are on {fewest} of each class, not {fit}"
    chosen = [(k, places, others[k][:fewest]) for k, places in own.items()]
    return chosen, fewest, [note] if fewest < fit else []


def blocks(groups) -> list[list]:
    """Return the classes of `groups` in blocks of up to `BLOCK` images: memory holds one."""
    some: list[list] = [[]]
    count = 0
    for one in groups:
        size = sum(len(part) for part in one[1:] if part is not None)
        if some[-1] and count + size > BLOCK:
            some.append([])
            count = 0
        some[-1].append(one)
        count += size
    return some


def of_images(
    networks, images: Tensor, labels: np.ndarray, warps, axes=()
) -> Iterator[list[np.ndarray]]:
    """Yield vectors of X images of known classes, warp by warp: (1 + A, X, F), unwarped first.

    One for each network; after them come the pixels, and these along each set of axes. A network
    looks at all images before the next one does: its kernels are transformed once.

    Parameters
    ----------
    warps  name in `capsviz.transforms.warps.FAMILIES` -> sizes (1 + A,), the neutral one first.
    axes   (C·H·W, E) each.
    """
    classes, upright = torch.from_numpy(labels), {}
    for name, sizes in warps.items():
        matrices = [family_matrix(name, size, tuple(images.shape[2:])) for size in sizes[1:]]
        with torch.inference_mode():
            moved = [warp(images, matrix).clamp(0, 1) for matrix in matrices]
        poses = []
        for k, model in enumerate(networks):
            if k not in upright:
                upright[k] = features(model, images, classes).numpy()
            after = [features(model, one, classes).numpy() for one in moved]
            poses.append(np.stack([upright[k], *after]))
        pixels = np.stack([one.flatten(1).numpy() for one in (images, *moved)])
        yield [*poses, pixels, *(pixels @ one for one in axes)]
