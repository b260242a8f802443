"""Scores for `tsne`: how far a map keeps neighbours and classes, each a mean over images."""

from __future__ import annotations

import numpy as np

NEIGHBOURS = 10
NAMES = (
    "trustworthiness of the map",
    "kNN accuracy in the map",
    "kNN accuracy in the full space",
    "silhouette in the map",
    "silhouette in the full space",
)


def scores(features: np.ndarray, positions: np.ndarray, labels: np.ndarray):
    """The scores of `NAMES` for features (N, F), their map (N, 2) and the true classes (N,).

    Returns
    -------
    values (5,) and 95 % intervals (5, 2): Wilson for the accuracies, else normal. They hold for
    this one map and treat images as independent, so they leave out the chance in t-SNE itself.
    """
    from sklearn.metrics import pairwise_distances, silhouette_samples

    from capsviz.intervals import mean_interval, wilson

    full, flat = (pairwise_distances(part.astype(float)) for part in (features, positions))
    each = (
        trustworthiness(full, flat),
        neighbours_agree(flat, labels),
        neighbours_agree(full, labels),
        silhouette_samples(flat, labels, metric="precomputed"),
        silhouette_samples(full, labels, metric="precomputed"),
    )
    values, intervals = mean_interval(np.stack(each, 1))
    for row in (1, 2):
        intervals[row] = wilson(int(each[row].sum()), len(labels))
    return values, intervals


def trustworthiness(full: np.ndarray, flat: np.ndarray, k: int = NEIGHBOURS) -> np.ndarray:
    """Trustworthiness of each image (N,), from distances (N, N) in the full space and in the map.

    One less the ranks, beyond k in the full space, of an image's k neighbours in the map, scaled so
    that the worst map has 0 (Venna & Kaski 2001). The mean is `sklearn.manifold.trustworthiness`.
    """
    n = len(full)
    ranks = _order(full).argsort(1)  # 0: the nearest other image, n - 1: itself
    near = _order(flat)[:, :k]
    beyond = np.clip(np.take_along_axis(ranks, near, 1) + 1 - k, 0, None).sum(1)
    return 1 - beyond * 2 / (k * (2 * n - 3 * k - 1))


def neighbours_agree(distances: np.ndarray, labels: np.ndarray, k: int = NEIGHBOURS) -> np.ndarray:
    """Whether most of each image's k nearest others are of its class (N,); ties go to the lower."""
    votes = np.eye(labels.max() + 1)[labels[_order(distances)[:, :k]]].sum(1)
    return votes.argmax(1) == labels


def _order(distances: np.ndarray) -> np.ndarray:
    """Images by distance from each image (N, N), itself last."""
    apart = distances.copy()
    np.fill_diagonal(apart, np.inf)
    return apart.argsort(1)
