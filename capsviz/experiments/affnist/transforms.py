"""The transforms of each image of affnist_like: those of the first images are shipped.

How far an image may be shifted depends on its foreground, so they cannot be drawn without MNIST.
"""

from __future__ import annotations

import numpy as np

from capsviz import data, discovery
from capsviz.data import affnist_like

NAMES = affnist_like.Transforms._fields


def draw(n: int, root=None) -> dict[str, np.ndarray]:
    """Return fields of `affnist_like.Transforms` for the first n test images, each (n,) float32."""
    plain = data.load("mnist", "test", root, download=False)
    variants = [affnist_like.transforms(plain, v) for v in range(-(-n // len(plain)))]
    columns = zip(*variants, strict=True)
    return {
        name: np.concatenate(parts)[:n].astype(np.float32)
        for name, parts in zip(NAMES, columns, strict=True)
    }


def read(n: int, root=None) -> dict[str, np.ndarray]:
    """Return the first n transforms, as shipped or drawn; FileNotFoundError without MNIST."""
    with np.load(discovery.folder("capsviz.trained") / "affnist" / "transforms.npz") as stored:
        columns = {name: stored[name] for name in NAMES}
    return draw(n, root) if n > len(columns["shear"]) else {k: v[:n] for k, v in columns.items()}
