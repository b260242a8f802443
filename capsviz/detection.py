"""Detecting images that a capsule network was not made for, by their reconstruction.

Frosst, Sabour & Hinton (2018), arXiv:1811.06969: the winning capsule reconstructs the image as its
class; where that is far from the image, the image is suspect.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

PERCENTILE = 95.0  # of the distances of validation images: the threshold of the paper
RESAMPLES = 1000
RANKED = 1 << 20  # distances ranked at a time, over resamples


def distance(images: Tensor, reconstructions: Tensor) -> Tensor:
    """L2 norm (N,) of the pixel difference of images and reconstructions, both (N, C, H, W)."""
    return (images - reconstructions).flatten(1).norm(dim=1)


def threshold(distances: np.ndarray, percentile: float = PERCENTILE) -> float:
    """The distance above which an image is flagged: a percentile of those of validation images.

    Raises
    ------
    ValueError  for no distances, or a percentile outside 0 to 100.
    """
    if not 0 < percentile < 100:
        raise ValueError(f"expected a percentile between 0 and 100, got {percentile:g}")
    if len(distances) == 0:
        raise ValueError("a threshold needs the distances of validation images, got none")
    return float(np.percentile(distances, percentile))


def auroc(clean: np.ndarray, suspect: np.ndarray) -> np.ndarray:
    """Chance that a suspect image scores above a clean one, ties counting half.

    Parameters
    ----------
    clean, suspect  (..., N) and (..., M) scores; the leading axes are the same.

    Returns
    -------
    (...,) area under the ROC curve in [0, 1], by ranks (Mann-Whitney).
    """
    from scipy.stats import rankdata

    n, m = clean.shape[-1], suspect.shape[-1]
    ranks = rankdata(np.concatenate([clean, suspect], -1), axis=-1)[..., n:].sum(-1)
    return (ranks - m * (m + 1) / 2) / (n * m)


def auroc_resampled(
    clean: np.ndarray, suspect: np.ndarray, *, paired: bool, seed: int = 0
) -> np.ndarray:
    """AUROC of S scores on bootstrap resamples of the images, the same ones for every score.

    Parameters
    ----------
    clean, suspect  (S, N) and (S, M).
    paired          suspect image i was made from clean image i, and is drawn together with it.

    Returns
    -------
    (RESAMPLES, S).
    """
    draws = np.random.default_rng(seed)
    n, m = clean.shape[-1], suspect.shape[-1]
    step = max(1, RANKED // (len(clean) * (n + m)))
    found = []
    for start in range(0, RESAMPLES, step):
        count = min(step, RESAMPLES - start)
        here = draws.integers(n, size=(count, n))
        there = here if paired else draws.integers(m, size=(count, m))
        found.append(auroc(clean[:, here], suspect[:, there]).T)
    return np.concatenate(found)


def look(model: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """Lengths (N, J) and the distance (N,) to the winning capsule's reconstruction.

    Gradients reach the images, unless they are switched off.

    Raises
    ------
    ValueError  for a network without capsules or without a decoder.
    """
    require_capsules(model)
    seen = model.look(images, keep=("lengths", "reconstruction"))
    made = require_decoder(seen.get("reconstruction"))
    return seen["lengths"], distance(images, made)


def require_capsules(model: nn.Module) -> None:
    """ValueError for a network without capsules."""
    if not hasattr(model, "look"):
        raise ValueError(
            "this network has no capsules, so none can win: expected a capsule network"
        )


def require_decoder(reconstruction: Tensor | None) -> Tensor:
    """The reconstruction, if a network made one; ValueError otherwise."""
    if reconstruction is None:
        raise ValueError("this network has no decoder, so there is no reconstruction to compare")
    return reconstruction
