"""Corruptions by name: of grey images MNIST-C's, of colour images ImageNet-C's, and plugins.

A plugin is a file with a function `corrupt(images, generator) -> images`, as those of `mnist_c`.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from capsviz import discovery
from capsviz.nn.computation import draws
from capsviz.nn.images import check_images
from capsviz.transforms import MNIST_C, imagenet_c, mnist_c

PACKAGE = "capsviz.transforms.corruptions"
CHUNK = 250  # images at a time; fixed, as the draws of an image depend on it


def names() -> list[str]:
    """Return the names of the corruptions of grey images, with plugins."""
    if both := {*MNIST_C} & {*(more := discovery.names(PACKAGE))}:
        raise ValueError(f"a plugin and MNIST-C both have the corruption '{min(both)}': rename it")
    return sorted((*MNIST_C, *more))


def choose(only, usual: Sequence[str] | None = None) -> list[str]:
    """Return the named corruptions, sorted; the usual ones for none; ValueError for an unknown one.

    The `usual` ones are MNIST-C's, or others in their place. Those of plugins are known, too.
    """
    usual = MNIST_C if usual is None else usual
    known = sorted(({*names()} - {*MNIST_C}) | {*usual})
    for name in only:
        discovery.require_known("corruption", name, known)
    return [name for name in known if name in (only or usual)]


def apply(name: str, images: Tensor, generator: torch.Generator, severity: int = 3) -> Tensor:
    """Corrupt images (N, C, H, W) in [0, 1], of at least 8 x 8 pixels, each by its own draw.

    MNIST-C's corruptions are of one channel, those of `imagenet_c` of three channels and a severity
    from 1 to 5. The generator is on the CPU: the same draws on every device. Results are float32 in
    [0, 1], in multiples of 1/255 as in the published files.

    ValueError for an unknown name, images of another shape or range, or a file without `corrupt`.
    """
    check_images(images)
    if (channels := images.shape[1]) not in (1, 3):
        raise ValueError(f"expected 1 or 3 channels, got {channels}")
    if min(images.shape[2:]) < 8:
        raise ValueError(f"expected at least 8 x 8 pixels, got {tuple(images.shape[2:])}")
    own: Mapping = mnist_c.KINDS if channels == 1 else imagenet_c.KINDS
    choose([name], [*own])  # refuses an unknown one
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
    with draws(generator.initial_seed()):  # that are not of the generator
        for part in images.detach().float().cpu().split(CHUNK):
            made = corrupt(part.clone(), generator)  # which it may write over
            if not isinstance(made, Tensor) or made.shape != part.shape:
                form = tuple(made.shape) if isinstance(made, Tensor) else f"a {type(made).__name__}"
                expected = f"expected a tensor {tuple(part.shape)}"
                raise ValueError(f"the corruption '{name}' gives {form}, {expected}")
            parts.append(made)
    corrupted = torch.cat(parts)
    return ((corrupted.clamp(0, 1) * 255).round() / 255).to(images.device)
