"""The 15 corruptions of MNIST-C (Mu & Gilmer 2019, arXiv:1906.02337): each file here is one.

A file has a function `corrupt(images, generator) -> images`, (B, 1, H, W) float32 on the CPU, with
the severity of the published data. Definitions and numbers are those of the authors' program
(google-research/mnist-c), implemented for batches in torch and kornia; a file's docstring says
where ours differs. The random numbers differ, so that the images are not those of MNIST-C, but
draws of the same distribution. Sizes in pixels are MNIST's, 28 x 28; for other image sizes,
positions at an edge move with it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from capsviz import discovery
from capsviz.nn.images import check_images

PACKAGE = "capsviz.transforms.corruptions"
CHUNK = 250  # images at a time; fixed, as the draws of an image depend on it


def names() -> list[str]:
    """Return the names of the corruptions, with plugins."""
    return discovery.names(PACKAGE)


def published() -> list[str]:
    """Return the names of MNIST-C's corruptions."""
    return sorted(name for name, entry in discovery.entries(PACKAGE).items() if entry.ours)


def choose(only) -> list[str]:
    """Return the named corruptions, sorted; MNIST-C's for none; ValueError for an unknown one."""
    known = names()
    for name in only:
        if name not in known:
            raise ValueError(discovery.unknown("corruption", name, known))
    return [name for name in known if name in (only or published())]


def apply(name: str, images: Tensor, generator: torch.Generator) -> Tensor:
    """Corrupt images (N, 1, H, W) in [0, 1], of at least 8 x 8 pixels, each by its own draw.

    The generator is on the CPU: the same draws on every device. Results are float32 in [0, 1], in
    multiples of 1/255 as in the files of MNIST-C.

    ValueError for an unknown name, images of another shape or range, or a file without `corrupt`.
    """
    module = discovery.load(PACKAGE, name, what="corruption")
    _check(images)
    if len(discovery.parameters(getattr(module, "corrupt", None))) != 2:
        raise ValueError(f"the corruption '{name}' has no function corrupt(images, generator)")
    parts = []
    for part in images.detach().float().cpu().split(CHUNK):
        parts.append(module.corrupt(part.clone(), generator))  # which it may write over
        if not isinstance(parts[-1], Tensor):
            kind = type(parts[-1]).__name__
            raise ValueError(f"the corruption '{name}' gives a {kind}, expected a tensor")
        if parts[-1].shape != part.shape:
            shapes = f"{tuple(parts[-1].shape)} of images {tuple(part.shape)}"
            raise ValueError(f"the corruption '{name}' gives {shapes}")
    corrupted = torch.cat(parts)
    return ((corrupted.clamp(0, 1) * 255).round() / 255).to(images.device)


def _check(images: Tensor) -> None:
    check_images(images)
    if images.shape[1] != 1:
        raise ValueError(
            f"MNIST-C's corruptions are defined for grey images, got {images.shape[1]} channels: "
            "expected (N, 1, H, W)"
        )
    if min(images.shape[2:]) < 8:
        raise ValueError(f"expected at least 8 x 8 pixels, got {tuple(images.shape[2:])}")
