"""Scenes for `faithfulness`: an object alone, among pieces of others, or beside a second one."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from capsviz.data import Dataset, multimnist
from capsviz.transforms.augment import to_float

PIECES = 8  # of other images in a cluttered scene
SIDE = 1 / 4  # of a piece, of the image's side


class Scene(NamedTuple):
    """N images, and what they show."""

    images: Tensor  # (N, C, H, W) in [0, 1]
    labels: Tensor  # (N, K) classes, that of the object in question first
    parts: Tensor | None  # (N, 2, C, H, W): the object, and all else; None: there is nothing else


def make(part: Dataset, scene: str, seed: int) -> Scene:
    """Make scenes of the images of a data set, from a seed.

    "clean" leaves them as they are. "cluttered" adds squares from other images of the data set at
    random places (after Mnih et al. 2014, arXiv:1406.6247). "two-digits" adds an image of another
    class as MultiMNIST does, within the frame; images that show two objects are left as they are.

    Raises
    ------
    ValueError  for images that show two objects, in another scene.
    """
    if scene == "two-digits":
        both, frame = part, slice(None)
        if part.parts is None:
            both = multimnist.make(part, seed=seed)
            frame = slice(multimnist.SHIFT_PX, -multimnist.SHIFT_PX)
        assert both.parts is not None
        images, parts = (to_float(one[..., frame, frame]) for one in (both.images, both.parts))
        return Scene(images, both.labels, parts)
    images, labels = to_float(part.single().images), part.labels[:, None]
    if scene == "clean":
        return Scene(images, labels, None)
    generator, clutter = torch.Generator().manual_seed(seed), torch.zeros_like(images)
    N, _, H, W = images.shape
    height, width = round(SIDE * H), round(SIDE * W)
    for k in range(N):
        for donor in torch.randint(1, N, (PIECES,), generator=generator).tolist():
            y, x, top, left = torch.rand(4, generator=generator).tolist()
            y, x = int(H * (1 + 2 * y) / 4), int(W * (1 + 2 * x) / 4)  # from the middle
            top, left = int((H - height + 1) * top), int((W - width + 1) * left)
            piece = images[(k + donor) % N, :, y : y + height, x : x + width]
            clutter[k, :, top : top + height, left : left + width] = piece
    parts = torch.stack([images, clutter], 1)
    return Scene(parts.amax(1), labels, parts)
