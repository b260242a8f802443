"""Measures of `tsne`: vectors of images, their map, thumbnails, and scores of the map."""

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.metrics import pairwise_distances, silhouette_samples

from capsviz import memory
from capsviz.nn.functional import predict
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import mean_interval, wilson
from capsviz.tracing import CHUNK_IMAGES, trace
from capsviz.transforms.warps import rotate

ANGLES_DEG = np.arange(-60.0, 61, 5)  # of trajectories; the middle one is 0
COMPONENTS = 50  # of the PCA before t-SNE
THUMBNAILS = 16  # at most
NEIGHBOURS = 10
NAMES = (
    "trustworthiness of the map",
    "kNN accuracy in the map",
    "kNN accuracy in the full space",
    "silhouette in the map",
    "silhouette in the full space",
)
NOTHING = 1e-6  # relative to the largest number: smaller differences are rounding errors


def check(labels, method, trajectories, perplexity) -> None:
    """Raise ValueError for too few images or classes, or a bad perplexity or trajectory number."""
    neighbours = perplexity if method == "tsne" else 0
    least = 3 * max(NEIGHBOURS, neighbours)
    if len(labels) < least:
        raise ValueError(
            f"{len(labels)} images are too few, expected at least {least:g}: use more by "
            f"--n{', or a smaller --perplexity' * (neighbours > NEIGHBOURS)}"
        )
    if not perplexity > 1:
        raise ValueError(f"the perplexity must be above 1, got {perplexity:g}")
    present = len(np.unique(labels))
    if present < 2:
        raise ValueError(f"expected images of at least 2 classes, got {present}")
    if not 0 <= trajectories <= present:
        raise ValueError(f"expected 0 to {present} trajectories, got {trajectories}")


def features(model, images, of: str, progress=iter) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors (N, F) of images, from the part `of` the trace, and predicted classes (N,).

    Raise ValueError if all vectors are equal up to rounding.
    """
    part = "poses" if of == "all-poses" else of
    vectors, predicted = [], []
    for start in progress(range(0, len(images), CHUNK_IMAGES)):
        traced = trace(model, images[start : start + CHUNK_IMAGES], keep=(part, "lengths"))
        winner = predict(traced.require("lengths"))
        value = getattr(traced, part)
        value = value if part == "primary" else value[-1]
        if of == "poses":
            value = value[torch.arange(len(winner)), winner]
        vectors.append(value.flatten(1).float().clone())
        predicted.append(winner)
        if start == 0:
            size = vectors[0][0].numel() * 4 + len(images) * 8  # bytes per image
            memory.require(
                4 * len(images) * size,
                f"a map of {len(images)} images by {of}",
                "use fewer images by --n",
            )
    every = torch.cat(vectors)
    low, high = every.aminmax(dim=0)  # not all differences: these need much memory
    away = float(torch.maximum(high - every[0], every[0] - low).max())
    if away <= NOTHING * float(torch.maximum(high, -low).max()):
        raise ValueError(
            f"the {of} of all {len(images)} images are the same: there is nothing to map"
        )
    return every.numpy(), torch.cat(predicted).numpy()


def embed(vectors: np.ndarray, method: str, perplexity: float = 30.0, seed: int = 0) -> np.ndarray:
    """Return the map (N, 2) of vectors (N, F), by "pca", or by "tsne" after a PCA to 50 numbers."""
    if vectors.shape[1] == 1:
        vectors = np.pad(vectors, ((0, 0), (0, 1)))
    count = 2 if method == "pca" else min(COMPONENTS, *vectors.shape)
    reduced = PCA(count, random_state=seed).fit_transform(vectors)
    if method == "pca":
        return reduced
    return TSNE(init="pca", perplexity=perplexity, random_state=seed).fit_transform(reduced)


def rotated(images, fill):
    """Rotate images (K, C, H, W) by the A - 1 angles that are not 0: (K * (A - 1), C, H, W)."""
    degrees = torch.from_numpy(ANGLES_DEG[ANGLES_DEG != 0])
    return torch.cat([rotate(image[None], degrees, fill).clamp(0, 1) for image in images])


def along(values: np.ndarray, firsts, n: int) -> np.ndarray:
    """Return values (K, A, m) along the trajectories of the images `firsts` (K,).

    `values` (n + K (A - 1), m) are those of n images, followed by those of the rotated ones.
    """
    rotated = values[n:].reshape(len(firsts), ANGLES_DEG.size - 1, values.shape[1])
    return np.insert(rotated, ANGLES_DEG.size // 2, values[firsts], axis=1)


def thumbnails(positions, labels, predicted) -> np.ndarray:
    """Return images to show: the nearest to the median of each class, then misclassified ones."""
    chosen = []
    for k in np.unique(labels)[:THUMBNAILS]:
        own = np.flatnonzero(labels == k)
        centre = np.median(positions[own], axis=0)
        chosen.append(own[np.linalg.norm(positions[own] - centre, axis=1).argmin()])
    wrong = np.setdiff1d(np.flatnonzero(labels != predicted), chosen)
    return np.concatenate([chosen, wrong]).astype(int)[:THUMBNAILS]


def scores(features: np.ndarray, positions: np.ndarray, labels: np.ndarray) -> Estimate:
    """Return the scores (5,) of `NAMES` for features (N, F), map (N, 2) and true classes (N,).

    Intervals are Wilson's for the accuracies and Student's t for the others. They treat images as
    independent and the map as fixed, so they do not include the randomness of t-SNE.
    """
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
    return Estimate(values, intervals.clip(-1, 1), len(labels))  # no score is above 1


def trustworthiness(full: np.ndarray, flat: np.ndarray, k: int = NEIGHBOURS) -> np.ndarray:
    """Return the trustworthiness (N,) of each image, from distances (N, N) in full space and map.

    The k neighbours in the map are ranked by distance in the full space. Trustworthiness is 1 minus
    the scaled sum by which the ranks exceed k, so that the worst map has 0 (Venna & Kaski 2001).
    The mean equals `sklearn.manifold.trustworthiness`.
    """
    n = len(full)
    ranks = _order(full).argsort(1)  # 0: the nearest other image, n - 1: itself
    near = _order(flat)[:, :k]
    beyond = np.clip(np.take_along_axis(ranks, near, 1) + 1 - k, 0, None).sum(1)
    return 1 - beyond * 2 / (k * (2 * n - 3 * k - 1))


def neighbours_agree(distances: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return whether `NEIGHBOURS` vote for each image's class (N,); the lowest class wins ties."""
    votes = np.eye(labels.max() + 1)[labels[_order(distances)[:, :NEIGHBOURS]]].sum(1)
    return votes.argmax(1) == labels


def _order(distances: np.ndarray) -> np.ndarray:
    """Return all images by distance from each image (N, N), itself last."""
    apart = distances.copy()
    np.fill_diagonal(apart, np.inf)
    return apart.argsort(1)
