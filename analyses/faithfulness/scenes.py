"""Scenes for `faithfulness`: an object alone, among pieces of others, or beside a second one."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from capsviz.data import Dataset
from capsviz.data.multimnist import partners
from capsviz.transforms.augment import to_float

PIECES = 8  # of other images in a cluttered scene
SIDE = 1 / 4  # of a piece, of the image's side
SHIFT = 1 / 5  # of each of two objects, of the image's side
WAYS = ((1, 0), (-1, 0), (0, 1), (0, -1))  # in which the first one is shifted


class Scene(NamedTuple):
    """N images, and what they show."""

    images: Tensor  # (N, C, H, W) in [0, 1]
    labels: Tensor  # (N, K) classes, that of the object in question first
    parts: Tensor | None  # (N, 2, C, H, W): the object, and all else; None: there is nothing else


def make(part: Dataset, scene: str, seed: int) -> Scene:
    """Make scenes of the images of a data set, from a seed.

    "clean" leaves them as they are. "cluttered" adds squares from other images of the data set at
    random places (after Mnih et al. 2014, arXiv:1406.6247). "two-digits" adds an image of another
    class, and shifts both apart along an axis; images that show two objects are left as they are.

    Raises
    ------
    ValueError  for images that show two objects, in another scene.
    """
    if part.parts is not None and scene == "two-digits":
        return Scene(to_float(part.images), part.labels, to_float(part.parts))
    generator, labels = torch.Generator().manual_seed(seed), part.labels
    images = to_float(part.single().images)
    if scene == "clean":
        return Scene(images, labels[:, None], None)
    if scene == "cluttered":
        parts = torch.stack([images, _pieces(images, generator)], 1)
        return Scene(parts.amax(1), labels[:, None], parts)
    other = partners(labels, generator=generator)
    ways = torch.randint(len(WAYS), (len(images),), generator=generator).tolist()
    parts = torch.stack([images, images[other]], 1)
    for pair, way in zip(parts, ways, strict=True):
        down, right = (round(SHIFT * pair.shape[2 + k]) * WAYS[way][k] for k in (0, 1))
        pair[0] = pad(pair[0], (right, -right, down, -down))
        pair[1] = pad(pair[1], (-right, right, -down, down))
    return Scene(parts.sum(1).clamp_max(1), torch.stack([labels, labels[other]], 1), parts)


def _pieces(images: Tensor, generator: torch.Generator) -> Tensor:
    """Draw squares from the middle of random other images at random places: (N, C, H, W)."""
    N, _, H, W = images.shape
    clutter, height, width = torch.zeros_like(images), round(SIDE * H), round(SIDE * W)
    for k in range(N):
        for donor in torch.randint(1, N, (PIECES,), generator=generator).tolist():
            y, x, top, left = torch.rand(4, generator=generator).tolist()
            y, x = int(H * (1 + 2 * y) / 4), int(W * (1 + 2 * x) / 4)
            top, left = int((H - height + 1) * top), int((W - width + 1) * left)
            piece = images[(k + donor) % N, :, y : y + height, x : x + width]
            clutter[k, :, top : top + height, left : left + width] = piece
    return clutter
