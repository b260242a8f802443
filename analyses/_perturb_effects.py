"""Effects for `perturb`: what a step of one dimension does to the decoded image, and its words."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsviz.intervals import mean_interval
from capsviz.moments import Moments, moments

DELTA = 0.1  # of a dimension: effects are per this much
WORDS = {  # for an increase and a decrease of each measure
    "slant_deg": ("leans right", "leans left"),
    "width_px": ("wider", "narrower"),
    "height_px": ("taller", "shorter"),
    "thickness_px": ("thicker", "thinner"),
    "x_px": ("moves right", "moves left"),
    "y_px": ("moves down", "moves up"),
}


class Statistics(NamedTuple):
    """Effects of E dimensions on M measures, N images of one class; intervals are 95 %, normal."""

    effect: np.ndarray  # (E, M) mean change per +0.1 of the dimension, units in `measures`
    effect_ci95: np.ndarray  # (E, M, 2)
    standardised: np.ndarray  # (E, M) effect over `spread`; 0 where the measure never varies
    spread: np.ndarray  # (M,) standard deviation over the undisturbed reconstructions
    difference: (
        np.ndarray
    )  # (E,) mean over pixels of |D(v + 0.1 e_d) - D(v)|, grey values in [0, 1]
    difference_ci95: np.ndarray  # (E, 2)
    quantiles: np.ndarray  # (E, 2) 5 % and 95 % of each dimension
    measures: list[str]  # (M,) names with units
    capsule: int  # class of the images and of the pose
    n: int
    classes: list[str]
    dataset: str


def evaluate(model, images, *, capsule, classes, dataset, progress=iter) -> Statistics:
    """Effects of each dimension of one class's pose on N images (N, C, H, W) of that class.

    Parameters
    ----------
    capsule   number of the class.
    classes   names of the classes.
    dataset   its name, for the record.
    progress  wraps the chunks of images, for a progress bar.

    Raises
    ------
    ValueError  without a decoder, or for fewer than 2 images whose reconstruction is not black.
    """
    from capsviz.tracing import CHUNK_IMAGES, trace

    images, parts = images.cpu(), []
    for start in progress(range(0, len(images), CHUNK_IMAGES)):
        poses = trace(model, images[start : start + CHUNK_IMAGES], keep=("poses",)).poses[-1]
        parts.append((poses[:, capsule].numpy(), *_changes(model, poses, capsule)))
    values, before, change, difference = map(np.concatenate, zip(*parts, strict=True))
    drawn = np.isfinite(change).all((1, 2)) & np.isfinite(before).all(1)
    if drawn.sum() < 2:
        raise ValueError(
            f"an interval needs at least 2 images with a visible reconstruction, got {drawn.sum()}"
        )
    before, change, difference = before[drawn], change[drawn], difference[drawn]
    spread = before.std(0, ddof=1)
    effect, interval = mean_interval(change)
    mean_difference, difference_interval = mean_interval(difference)
    return Statistics(
        effect=effect,
        effect_ci95=interval,
        standardised=np.divide(effect, spread, out=np.zeros_like(effect), where=spread > 0),
        spread=spread,
        difference=mean_difference,
        difference_ci95=difference_interval,
        quantiles=np.quantile(values, [0.05, 0.95], axis=0).T.astype(float),
        measures=list(Moments._fields),
        capsule=int(capsule),
        n=int(drawn.sum()),
        classes=list(classes),
        dataset=dataset,
    )


def _changes(model, poses, capsule: int):
    """Of B poses (B, J, E): measures (B, M), half differences (B, E, M), pixel change (B, E)."""
    import torch

    from capsviz.tracing import decode

    which = torch.full((len(poses),), capsule)
    itself = decode(model, poses, which).numpy()
    change, difference = [], []
    for d in range(poses.shape[2]):
        measured = []
        for sign in (1, -1):
            moved = poses.clone()
            moved[:, capsule, d] += sign * DELTA
            made = decode(model, moved, which).numpy()
            measured.append(np.stack(moments(made), 1))
            if sign == 1:
                difference.append(np.abs(made - itself).mean((1, 2, 3), dtype=float))
        change.append((measured[0] - measured[1]) / 2)
    return np.stack(moments(itself), 1), np.stack(change, 1), np.stack(difference, 1)


def captions(statistics: Statistics) -> list[str]:
    """For each dimension its largest standardised effect whose interval leaves out zero, ±95 %."""
    low, high = np.moveaxis(statistics.effect_ci95, 2, 0)
    size = np.where((low > 0) | (high < 0), np.abs(statistics.standardised), 0)
    texts = []
    for d, best in enumerate(size.argmax(1)):
        if size[d, best] == 0:
            texts.append("no clear effect")
            continue
        name, change = statistics.measures[best], statistics.effect[d, best]
        unit = "°" if name.endswith("_deg") else " px"
        size_and_half = plus_minus(abs(change), high[d, best] - change)
        texts.append(f"{WORDS[name][int(change < 0)]} by {size_and_half}{unit}")
    return texts


def plus_minus(mean: float, half: float, sign: str = "", gap: str = " ") -> str:
    """A mean and half its interval: "0.12 ±0.01", one place more where the half is small."""
    places = 2 if half >= 0.005 else 3
    return f"{mean:{sign}.{places}f}{gap}±{half:.{places}f}"
