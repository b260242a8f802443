"""Measures of `detect`: the sets of images, and their scores."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from capsviz import data, pictures
from capsviz.experiments import attacks
from capsviz.inputs.samples import other_images
from capsviz.nn.functional import predict
from capsviz.pictures.prediction import find
from capsviz.statistics.detection import told_apart
from capsviz.statistics.estimate import Estimate, less, stack
from capsviz.tracing import decode, trace
from capsviz.tracing.outputs import distance
from capsviz.transforms import Fill, warps
from capsviz.transforms.augment import to_uint8

ANGLES_DEG = (45, 315)  # of random rotations: far from upright


def sets(
    model,
    images: Tensor,
    labels: Tensor,
    others: Mapping[str, Tensor],
    eps,
    steps: int,
    fill: Fill,
    seed: int,
) -> dict[str, tuple[str, Callable[[], Tensor]]]:
    """Return name -> (kind, function that makes the N images), with the unchanged set first."""
    low, high = ANGLES_DEG
    draws = torch.Generator().manual_seed(seed)
    angles = low + (high - low) * torch.rand(len(images), generator=draws)
    how = {"steps": steps, "start": attacks.noise(images.shape, seed), "leave": False}

    def attacked(look, one):
        ball = attacks.Ball(one)
        return lambda: attacks.apgd(model, look, images, labels, ball, **how).images.to(images)

    kinds: dict = {"unchanged": ("clean", lambda: images)}
    by_score = attacks.on_scores(model, attacks.LOSSES["apgd-ce"])
    for one in eps:
        kinds[f"APGD {one:g}"] = "attack", attacked(by_score, one)
        kinds[f"adaptive {one:g}"] = "adaptive", attacked(attacks.on_detector(model), one)
    for name, by in (("90°", torch.full_like(angles, 90)), (f"{low}°–{high}°", angles)):
        rotated = partial(warps.rotate, images, by, fill)
        kinds[f"rotated {name}"] = "shifted", lambda rotated=rotated: rotated().clamp(0, 1)
    return kinds | {k: ("foreign", lambda other=other: other) for k, other in others.items()}


def of_validation(model, images: Tensor) -> tuple[np.ndarray, Tensor]:
    """Return distances (N,) to the winning capsule's reconstruction, and averages (J, C, H, W).

    The averages are over the images of each predicted class; for a class without any, over all.
    """
    traced = trace(model, images, keep=("reconstruction", "lengths"))
    far = distance(images, traced.require("reconstruction")).numpy()
    lengths = traced.require("lengths")
    won = predict(lengths)
    groups = [images[won == j] if (won == j).any() else images for j in range(lengths.shape[1])]
    return far, torch.stack([group.mean(0) for group in groups])


def score(model, images: Tensor, averages: Tensor, seed: int) -> tuple[np.ndarray, ...]:
    """Return distances (4, N), predicted classes (N,), first image and reconstruction (2, C, H, W).

    Distances are to four images: the reconstruction of the winning capsule, that of a random other
    capsule, that of the next image (the first follows the last), and the average of the predicted
    class in `averages` (J, C, H, W).
    """
    traced = trace(model, images, keep=("poses", "lengths"))
    poses, lengths = traced.require("poses")[-1], traced.require("lengths")
    J, won = lengths.shape[1], predict(lengths)
    offset = torch.randint(1, J, (len(won),), generator=torch.Generator().manual_seed(seed))
    own, other = decode(model, poses, won), decode(model, poses, (won + offset) % J)
    values = [distance(images, one) for one in (own, other, own.roll(-1, 0), averages[won])]
    example = to_uint8(torch.stack([images[0], own[0]]))
    return torch.stack(values).numpy(), won.numpy(), example


def beside(inputs, n: int, foreign: str | None = None) -> tuple[Tensor, dict, list[str]]:
    """Return validation images, n foreign images by name of the set, and missing sets.

    `foreign` names a data set, or a folder of pictures, which are prepared as in `predict`. Raises
    ValueError if it does not have n images that fit. None: another data set, if it is available.
    """
    held = other_images(inputs, attacks.HELD_OUT).images
    usual = "mnist" if inputs.dataset.name == "fashion_mnist" else "fashion_mnist"
    name, shape = foreign or usual, inputs.dataset.image_shape
    if name not in data.available() and Path(name).is_dir():
        paths = find([name])[0]
        _require_fit(name, n, len(paths), shape, shape)
        frame = pictures.frame(inputs.model)
        some = torch.cat([pictures.prepare(path, frame).image for path in paths[:n]])
        return held, {Path(name).resolve().name: some}, []
    own = inputs.dataset.loader in pictures.OWN  # then `data_dir` has the user's own images
    try:
        other = data.load(name, "test", None if own else inputs.data_dir, download=False)
        _require_fit(name, n, len(other), other.image_shape, shape)
    except (FileNotFoundError, ValueError) as error:
        if foreign is not None:
            raise
        return held, {}, [f"{name} is left out: {error}"]
    return held, {name: replace(inputs, dataset=other).images(n)[0]}, []


def _require_fit(name: str, n: int, there: int, own: tuple, shape: tuple) -> None:
    if own != shape or there < n:
        raise ValueError(f"'{name}' has {there} images {own}, expected {n} of {shape}")


def areas(values, foreign, seed: int) -> tuple[Estimate, Estimate]:
    """Return the AUROC (A - 1, S) of sets (A, S, N) against the first, and gains (A - 1, S - 1).

    A gain is the AUROC of the first score minus that of a control, on the same resamples. Images of
    `foreign` sets (A,) are resampled independently, others together with the unchanged image.
    """
    clean, *others = values
    each = zip(others, foreign[1:], strict=True)
    auroc = stack(told_apart(clean, one, paired=not far, seed=seed) for one, far in each)
    return auroc, less(auroc[:, :1], auroc[:, 1:], paired=True).undrawn()
