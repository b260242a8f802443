"""Measures of `equivariance`: vectors of images and warped images, and the errors of fits."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from capsviz import checkpoint
from capsviz.analyses.equivariance.fits import LEAST, explained
from capsviz.inputs.samples import halves, training_images
from capsviz.statistics.comparison import draw_resamples
from capsviz.statistics.intervals import require_two
from capsviz.statistics.words import untrained_of
from capsviz.tracing import features
from capsviz.transforms import Fill
from capsviz.transforms.warps import family, family_matrix, warp

WARPED = 512  # images per batch
PIXELS, RANDOM = None, "pixels along random directions"


class Data(NamedTuple):
    """Images to measure, followed by images to fit on, and the folds."""

    images: Tensor  # (X, C, H, W)
    labels: np.ndarray  # (X,)
    folds: list[tuple[np.ndarray, np.ndarray]]  # rows to measure, rows to fit on
    fit: int  # images per class to fit a map on
    notes: list[str]


@threadpool_limits.wrap(1, user_api="blas")  # BLAS threads spin while they wait for each other
def compare(
    networks: dict[str, Any],
    images: Tensor,
    labels: Tensor,
    inputs,
    by_size: dict[str, np.ndarray],
    errors_of: Callable[[np.ndarray, Data, np.ndarray, int], Any],
    over: Callable[[list, np.ndarray], dict],
    *,
    fit: int,
    seeds: int,
    seed: int,
    dataset: str,
    fill: Fill = "black",
    directions: bool = False,
    progress=iter,
) -> tuple[dict[str, Any], int, int]:
    """Compare K networks and the pixels on warps of N images (N, C, H, W), by fits on others.

    Parameters
    ----------
    by_size     sizes (1 + A,) of each warp by name, the neutral one first.
    errors_of   function from vectors (1 + A, X, F), data, sizes and dimensions of a pose to errors.
    over        function from the errors of S kinds of vectors and resamples to fields.
    fit         training images per class to fit on. Without training images, the halves of each
                class of the images take turns.
    seeds       untrained networks of each preset, and draws of random directions.
    directions  include pixels along random directions.

    Returns
    -------
    The fields that both results share and those of `over`, the number of dimensions of a pose, and
    the images per class that maps were fitted on.

    Raises
    ------
    ValueError  for a first network without capsules, fewer than 8 images of a class to fit on, or
                fewer than 2 to measure.
    """
    require_two(len(images))
    data = gather(images, labels, fit, **training_images(inputs, fit))
    (first, model), *others = networks.items()
    pose = features(model, images[:1], labels[:1]).shape[1]
    notes = list(data.notes)

    def untrained(seed):
        for name, one in checkpoint.controls(model, seed, images, notes=notes):
            yield f"{first} {name}", one
            del one  # only one network is in memory at a time

    def random(seed):
        draw, shape = np.random.default_rng(seed), (images[0].numel(), pose)
        yield RANDOM, draw.standard_normal(shape, np.float32)

    draws = range(seed, seed + (max(1, seeds) if directions else 0))
    jobs: list[Callable[[], Iterable[tuple[str, Any]]]] = [
        lambda: [("pixels", PIXELS)],  # the longest vectors, while no network holds memory
        *(partial(random, one) for one in draws),
        lambda: [(first, model)],
        *(partial(untrained, one) for one in range(seed, seed + seeds)),
        lambda: others,
    ]
    errors: dict[str, list[list]] = {}  # kind of vectors -> draws -> warps
    dimensions = {}
    for job in progress(jobs):
        for kind, source in job():
            own, dimensions[kind] = _errors(source, data, by_size, errors_of, pose, fill)
            errors.setdefault(kind, []).append(own)
            del source
    sources = sorted(errors, key={"pixels", RANDOM}.__contains__)  # networks first
    by_warp = [[[one[f] for one in errors[s]] for s in sources] for f in range(len(by_size))]
    counts = draw_resamples(len(images), seed=seed)
    fields = {
        **explained(by_warp, over, counts),
        "warps": list(by_size),
        "units": [family(name).unit for name in by_size],
        "sizes": np.stack([each[1:] for each in by_size.values()]),
        "sources": sources,
        "dimensions": [dimensions[kind] for kind in sources],
        "n": len(images),
        "fill": fill,
        "dataset": dataset,
        "fit_of": "training images" if len(data.folds) == 1 else "images (the halves take turns)",
        "seeds": seeds if untrained_of(sources) else 0,
        "notes": notes,
    }
    return fields, pose, data.fit


def _errors(source, data: Data, by_size, errors_of, pose: int, fill: Fill) -> tuple[list, int]:
    """Return the errors of a source's vectors by warp, and the dimensions of a vector."""
    before, errors = vectors(source, data.images, data.labels), []
    height, width = data.images.shape[2:]
    for name, sizes in by_size.items():
        values = np.empty((len(sizes), *before.shape), before.dtype)
        values[0] = before
        for row, one in zip(values[1:], sizes[1:], strict=True):
            by = family_matrix(name, one, (height, width))
            for start in range(0, len(data.images), WARPED):
                some = slice(start, start + WARPED)
                warped = warp(data.images[some], by, fill).clamp(0, 1)
                row[some] = vectors(source, warped, data.labels[some])
        errors.append(errors_of(values, data, sizes, pose))
    return errors, before.shape[1]


def gather(images, labels, fit: int, *, fit_images=None, fit_labels=None) -> Data:
    """Return the images to measure and to fit on.

    Raises ValueError for fewer than `LEAST` images of a class to fit on.
    """
    images, labels = images.cpu(), labels.cpu().numpy()
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
        return Data(images, labels, halves(labels), half, [f"{note}, not {fit}"])
    fit_labels = fit_labels.cpu().numpy()
    others = {k: np.flatnonzero(fit_labels == k) for k in own}
    rarest = min(own, key=lambda k: len(others[k]))
    fewest = min(fit, len(others[rarest]))
    if fewest < LEAST:
        raise ValueError(
            f"expected at least {LEAST} training images of a class to fit on, got {fewest} of "
            f"class {rarest}: use more (--fit)"
        )
    chosen = np.concatenate([rows[:fewest] for rows in others.values()])
    rows = np.arange(len(images) + len(chosen))
    note = f"class {rarest} has {fewest} training images: fits are on {fewest} of each class"
    return Data(
        torch.cat([images, fit_images.cpu()[chosen]]),
        np.concatenate([labels, fit_labels[chosen]]),
        [(rows[: len(images)], rows[len(images) :])],
        fewest,
        [f"{note}, not {fit}"] if fewest < fit else [],
    )


def vectors(source, images: Tensor, labels: np.ndarray) -> np.ndarray:
    """Return vectors (X, F): features of a network, pixels, or pixels along random directions."""
    if isinstance(source, torch.nn.Module):
        return features(source, images, torch.from_numpy(labels)).numpy()
    pixels = images.flatten(1).numpy()
    return pixels if source is PIXELS else pixels @ source
