"""A network that can be called: with images in [0, 1], in evaluation mode, under a mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from capsviz.checks import manner
from capsviz.checks.verdict import UnseenError
from capsviz.nn.computation import literal
from capsviz.nn.images import check_images, like_of
from capsviz.tracing import evaluating
from capsviz.wrapping.environment import as_written
from capsviz.wrapping.given import mean_and_deviation
from capsviz.wrapping.network import Bare
from capsviz.wrapping.recorder import Pass
from capsviz.wrapping.taps import Recipe, TapPass


class Caller:
    """How to call a network; the options are those of `Candidate`."""

    def __init__(
        self,
        network: nn.Module,
        image_shape=None,
        classes: int | None = None,
        *,
        images: Tensor | None = None,
        normalise=None,
        call: Callable | None = None,
    ):
        network = as_written(network)
        image_shape, classes = manner.of_images(network, image_shape, classes)
        recipe = Recipe(call or manner.images_alone, image_shape, classes)
        self.network: Any = network  # somebody's module: what it has is looked for
        self.wrapper: Bare | None = None
        if isinstance(network, Bare):
            own = network.recipe
            self.network, self.wrapper, call = network.network, network, own.call
            recipe = replace(own, smallest=1, aside=False, pair=None)
        elif normalise is not None:
            mean, std = mean_and_deviation(normalise)
            recipe = replace(recipe, mean=mean, std=std)
        self.recipe, self.image_shape, self.classes = recipe, image_shape, classes
        if images is not None:
            check_images(images)
            if tuple(images.shape[1:]) != image_shape:
                expected = f"(N, {', '.join(map(str, image_shape))})"
                raise ValueError(f"expected images {expected}, got {tuple(images.shape)}")
        self.own_images, self.normalise = images, normalise
        self.name = manner.name_of(network)
        with self.still():
            found = manner.find(self.network, recipe, self.images(2), call)
        self.manner, self.recipe = found

    def images(self, count: int, seed: int = 0) -> Tensor:
        """That many of its images, or noise, on the network's device; other seeds, other ones.

        Where fewer are given, they are repeated.
        """
        like = like_of(self.network)
        generator = torch.Generator().manual_seed(1000 * seed + 1)
        own = self.own_images
        if own is not None:
            drawn = torch.randperm(len(own), generator=generator)
            return own[drawn.repeat(-(-count // len(own)))[:count]].to(like)
        return torch.rand(count, *self.image_shape, generator=generator).to(like)

    def require_different(self) -> None:
        """UnseenError where all images that are given are the same one."""
        own = self.own_images
        if own is not None and bool((own == own[:1]).all()):
            raise UnseenError("it compares different images, and one alone is given: images=")

    def inside(self, images: Tensor) -> Tensor:
        """Images as the network gets them."""
        return self.recipe.normalised(images)

    def call(self, images: Tensor, network: nn.Module | None = None):
        """What the network returns for images in [0, 1]."""
        network = self.network if network is None else network
        return self.run(TapPass(network, []), images, network)

    def output(self, images: Tensor):
        """What a loss gets: of `forward`, also where the checks look by `look`."""
        if self.manner == "look":
            return self.network(self.inside(images))
        return self.call(images)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Inside: evaluation mode, no gradients, and capsviz's own layers in PyTorch's words."""
        with ExitStack() as stack:
            stack.enter_context(evaluating(self.network))
            stack.enter_context(torch.no_grad())
            stack.enter_context(literal())
            yield

    def run(self, mode: Pass, images: Tensor, network: nn.Module | None = None):
        """What a pass under a mode returns; None where the mode ends it."""
        network = self.network if network is None else network
        inside = self.inside(images)
        return self.recipe.run(mode, network, inside)
