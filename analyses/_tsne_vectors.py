"""Vectors for `tsne`: what the capsules say of each image, their map, and which images to show."""

from __future__ import annotations

import numpy as np

ANGLES_DEG = np.arange(-60.0, 61, 5)  # of trajectories; the middle one is 0
COMPONENTS = 50  # of the PCA before t-SNE
THUMBNAILS = 16  # at most


def features(model, images, of: str, progress=iter) -> tuple[np.ndarray, np.ndarray]:
    """Vectors (N, F) of images by one of `tsne.OF`, float32, and the predicted classes (N,)."""
    import torch

    from capsviz import memory
    from capsviz.functional import predict
    from capsviz.tracing import CHUNK_IMAGES, trace

    part = "poses" if of == "all-poses" else of
    vectors, predicted = [], []
    for start in progress(range(0, len(images), CHUNK_IMAGES)):
        seen = trace(model, images[start : start + CHUNK_IMAGES], keep=(part, "lengths"))
        winner = predict(seen.lengths)
        value = getattr(seen, part)
        value = value if part == "primary" else value[-1]
        if of == "poses":
            value = value[torch.arange(len(winner)), winner]
        vectors.append(value.flatten(1).clone())
        predicted.append(winner)
        if start == 0:
            size = vectors[0][0].numel() * 4 + len(images) * 8  # of a vector and its distances
            memory.require(
                4 * len(images) * size,
                f"a map of {len(images)} images by {of}",
                "use fewer images by --evaluate",
            )
    return torch.cat(vectors).numpy(), torch.cat(predicted).numpy()


def embed(vectors: np.ndarray, method: str, perplexity: float = 30.0, seed: int = 0) -> np.ndarray:
    """The map (N, 2) of vectors (N, F), by "tsne" after a PCA to 50 numbers, or by "pca"."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    count = 2 if method == "pca" else min(COMPONENTS, *vectors.shape)
    reduced = PCA(count, random_state=seed).fit_transform(vectors)
    if method == "pca":
        return reduced
    return TSNE(init="pca", perplexity=perplexity, random_state=seed).fit_transform(reduced)


def turn(images):
    """Images (K, C, H, W), K >= 1, at the A - 1 angles that are not 0: (K * (A - 1), C, H, W)."""
    import torch

    from capsviz.warps import rotate

    degrees = torch.from_numpy(ANGLES_DEG[ANGLES_DEG != 0])
    return torch.cat([rotate(image[None], degrees).clamp(0, 1) for image in images])


def along(values: np.ndarray, firsts, n: int) -> np.ndarray:
    """Values (n + K (A - 1), m) of images and then of turned ones -> (K, A, m) with 0° inside."""
    turned = values[n:].reshape(len(firsts), ANGLES_DEG.size - 1, values.shape[1])
    return np.insert(turned, ANGLES_DEG.size // 2, values[firsts], axis=1)


def thumbnails(positions, labels, predicted) -> np.ndarray:
    """Images to show: the one in the middle of each class's points, then misread ones."""
    chosen = []
    for k in np.unique(labels)[:THUMBNAILS]:
        own = np.flatnonzero(labels == k)
        centre = np.median(positions[own], axis=0)
        chosen.append(own[np.linalg.norm(positions[own] - centre, axis=1).argmin()])
    wrong = np.setdiff1d(np.flatnonzero(labels != predicted), chosen)
    return np.concatenate([chosen, wrong]).astype(int)[:THUMBNAILS]
