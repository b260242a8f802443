"""Images that are probed, what is measured in them, and their vectors, kind by kind."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsviz import checkpoint
from capsviz.analyses.probes.paths import poses_and_classes
from capsviz.statistics.moments import Moments, moments, on_dark
from capsviz.tracing import features
from capsviz.transforms.warps import matrix, warp

AGAIN = 50  # images of a class that are fitted on and shown once more: tokens of the control task
MEASURES = Moments._fields


class Data(NamedTuple):
    """X images: the n that are measured, those fitted on, and some of these shifted anew."""

    images: Tensor  # (X, C, H, W), shifted
    factors: np.ndarray  # (X, M) measures
    classes: np.ndarray  # (X,) predicted; of an image shown again, its first prediction
    poses: np.ndarray  # (X, E) of that class
    folds: list[tuple[np.ndarray, np.ndarray]]  # rows measured, rows of their fits
    again: dict[int, int]  # row shown once more -> the row of that image in the fits
    n: int
    notes: list[str]


def gather(model, images: Tensor, fit_images: Tensor | None, *, shift_px: int, seed: int) -> Data:
    """Shift images, measure them, and trace the pose of the predicted class.

    Images in which nothing is drawn are left out.
    """
    generator = torch.Generator().manual_seed(seed)
    images, notes = images.cpu(), []
    if not on_dark(images.numpy()):
        notes.append(
            "the images have no dark ground: measures are moments of brightness, not the shape of "
            "a thing"
        )
    whole = images if fit_images is None else torch.cat([images, fit_images.cpu()])
    moving = shifted(whole, shift_px, generator)
    factors = np.stack(moments(moving.numpy()), 1)
    drawn = np.isfinite(factors).all(1)
    if not drawn.all():
        notes.append(f"{int((~drawn).sum())} images in which nothing is drawn are left out")
    n = int(drawn[: len(images)].sum())
    whole, moving, factors = whole[drawn], moving[drawn], factors[drawn]
    poses, read = poses_and_classes(model, moving)
    own, read = poses[torch.arange(len(read)), read].double().numpy(), read.numpy()
    rows = np.arange(len(read))
    if fit_images is None:
        sides = [_side(read, side) for side in (0, 1)]
        folds = [tuple(sides), tuple(sides[::-1])]
        notes.append("no training images: fits are on half of the images, in turn")
    else:
        folds = [(rows[:n], rows[n:])]
    first = [
        fit[read[fit] == k][:AGAIN] for _, fit in folds for k in np.unique(read[fit])
    ]  # a label of the control task belongs to an image, however it is shifted
    tokens = np.concatenate(first)
    anew = shifted(whole[tokens], shift_px, generator)
    poses, _ = poses_and_classes(model, anew)
    poses = poses[torch.arange(len(tokens)), torch.from_numpy(read[tokens])].double().numpy()
    return Data(
        torch.cat([moving, anew]),
        factors,
        np.concatenate([read, read[tokens]]),
        np.concatenate([own, poses]),
        folds,
        dict(zip(range(len(read), len(read) + len(tokens)), tokens.tolist(), strict=True)),
        n,
        notes,
    )


def _side(read: np.ndarray, side: int) -> np.ndarray:
    """Every second image of each class."""
    return np.sort(np.concatenate([np.flatnonzero(read == k)[side::2] for k in np.unique(read)]))


def shifted(images: Tensor, shift_px: int, generator: torch.Generator) -> Tensor:
    """Return images shifted by whole pixels, up to `shift_px` along each axis, at random."""
    if shift_px == 0:
        return images
    moves = torch.randint(-shift_px, shift_px + 1, (2, len(images)), generator=generator).double()
    by = matrix(tuple(images.shape[2:]), shift_x_px=moves[0], shift_y_px=moves[1])
    with torch.inference_mode():
        return torch.cat(
            [
                warp(some, which).clamp(0, 1)
                for some, which in zip(images.split(512), by.split(512), strict=True)
            ]
        ).clone()


def kinds(model, name: str, baselines: dict, data: Data, *, seeds, progress=iter):
    """Return vectors (X, F) of every kind, by name, the pose first; and notes on missing ones.

    Of each kind there is a list: of untrained networks one for each seed, else of one.
    Pixels are left whole here: their components are of the fits.
    """
    fresh, notes = checkpoint.controls(model, seeds, data.images)
    classes = torch.from_numpy(data.classes)
    networks = {f"{name} {what}": some for what, some in fresh.items()}
    networks |= {what: [one] for what, one in baselines.items()}
    looked = {
        what: [features(one, data.images, classes).numpy() for one in some]
        for what, some in progress(list(networks.items()))
    }
    return {name: [data.poses], **looked, "pixels": [data.images.flatten(1).numpy()]}, notes
