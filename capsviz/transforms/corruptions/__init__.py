"""Corrupt images, by name: MNIST-C for grey images, ImageNet-C for colour images, and plugins.

A plugin is a file with a function `corrupt(images, generator) -> images`, like those in `mnist_c`.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from capsviz import discovery
from capsviz.nn.computation import draws
from capsviz.nn.images import check_images
from capsviz.transforms import MNIST_C, imagenet_c, mnist_c

PACKAGE = "capsviz.transforms.corruptions"
CHUNK = 250  # images at a time; fixed, because the draws of an image depend on it


def names() -> list[str]:
    """Return the names of the corruptions of grey images, including plugins."""
    if both := {*MNIST_C} & {*(more := discovery.names(PACKAGE))}:
        raise ValueError(f"a plugin and MNIST-C both have the corruption '{min(both)}': rename it")
    return sorted((*MNIST_C, *more))


def choose(only, usual: Sequence[str] | None = None) -> list[str]:
    """Return the corruptions named in `only`, sorted; if it is empty, the `usual` ones.

    The `usual` ones are by default MNIST-C's. Plugins may be named, too. ValueError for an unknown
    name.
    """
    usual = MNIST_C if usual is None else usual
    known = sorted(({*names()} - {*MNIST_C}) | {*usual})
    for name in only:
        discovery.require_known("corruption", name, known)
    return [name for name in known if name in (only or usual)]


def apply(name: str, images: Tensor, generator: torch.Generator, severity: int = 3) -> Tensor:
    """Corrupt images (N, C, H, W) in [0, 1], of at least 8 x 8 pixels, each by its own draw.

    MNIST-C's corruptions are for one channel. Those of `imagenet_c` are for three channels and take
    a severity from 1 to 5. The generator is on the CPU, so that the draws are the same on every
    device. Results are float32 in [0, 1], in multiples of 1/255 as in the published files.

    ValueError for an unknown name, images of another shape or range, or a file without `corrupt`.
    """
    check_images(images)
    if (channels := images.shape[1]) not in (1, 3):
        raise ValueError(f"expected 1 or 3 channels, got {channels}")
    if min(images.shape[2:]) < 8:
        raise ValueError(f"expected at least 8 x 8 pixels, got {tuple(images.shape[2:])}")
    own: Mapping = mnist_c.KINDS if channels == 1 else imagenet_c.KINDS
    choose([name], [*own])  # raises for an unknown one
    if name not in own:
        corrupt = getattr(discovery.load(PACKAGE, name, what="corruption"), "corrupt", None)
        if len(discovery.parameters(corrupt)) != 2:
            raise ValueError(f"the corruption '{name}' has no function corrupt(images, generator)")
    elif channels == 1:
        corrupt = own[name]
    else:
        corrupt = imagenet_c.of_severity(name, severity)
    assert corrupt is not None  # it has two parameters
    parts = []
    with draws(generator.initial_seed()):  # for plugins that draw without the generator
        for part in images.detach().float().cpu().split(CHUNK):
            made = corrupt(part.clone(), generator)  # a copy, as it may work in place
            if not isinstance(made, Tensor) or made.shape != part.shape:
                form = tuple(made.shape) if isinstance(made, Tensor) else f"a {type(made).__name__}"
                expected = f"expected a tensor {tuple(part.shape)}"
                raise ValueError(f"the corruption '{name}' gives {form}, {expected}")
            parts.append(made)
    corrupted = torch.cat(parts)
    return ((corrupted.clamp(0, 1) * 255).round() / 255).to(images.device)
