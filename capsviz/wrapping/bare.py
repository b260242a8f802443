"""How to run somebody's network, and what it says: scores of images in [0, 1]."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from capsviz.nn.models import Scores
from capsviz.wrapping.device import without_cuda
from capsviz.wrapping.layout import Roles
from capsviz.wrapping.report import Fact, written
from capsviz.wrapping.stdout import on_stderr
from capsviz.wrapping.taps import ChildEntry, Entry, PassEnd, Tap, TapPass
from capsviz.wrapping.variables import Variable


@dataclass
class Recipe:
    """What `wrap` found or was told: how to run a network, and where its parts are."""

    call: Callable
    image_shape: tuple[int, int, int]
    classes: int
    mean: Tensor | None = None
    std: Tensor | None = None
    smallest: int = 1  # images that it needs at least
    cuda: bool = False  # its code asks for a GPU
    aside: bool = False  # what its code prints belongs on stderr
    pair: str | None = None  # which softmax, as given
    scores: Callable | None = None  # of the output; None: norms of the poses
    taps: list[Tap] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    child_entry: ChildEntry | None = None  # None: children cannot be put in
    variables: dict[str, tuple[Variable, Roles]] = field(default_factory=dict)
    of_output: dict[str, Callable] = field(default_factory=dict)  # parts by a function
    of_modules: dict[str, nn.Module] = field(default_factory=dict)  # parts by a module's output
    children: int | None = None
    decode: Callable | None = None
    iterations: tuple[nn.Module, str, int] | None = None  # owner, attribute, its value for none
    passes: int | None = None  # of routing, that it makes as it is
    image_bytes: int = 1

    def expect(self, normalise) -> None:
        """Take the (mean, standard deviation) of the images that the network expects."""
        try:
            mean, std = (torch.tensor(v).reshape(-1, 1, 1).float() for v in normalise)
        except (TypeError, ValueError) as error:
            raise ValueError(
                "normalise= must be (mean, standard deviation), numbers or one a channel, got "
                f"{normalise!r}"
            ) from error
        if not bool((std > 0).all() and std.isfinite().all() and mean.isfinite().all()):
            raise ValueError(f"normalise= expects a deviation above 0, got {normalise!r}")
        self.mean, self.std = mean, std

    def normalised(self, images: Tensor) -> Tensor:
        """Images in [0, 1] as the network gets them."""
        if self.mean is None or self.std is None:
            return images
        return (images - self.mean.to(images)) / self.std.to(images)


class Bare(nn.Module):
    """A network without capsules, or of which only scores are known: it can be evaluated."""

    def __init__(self, network: nn.Module, recipe: Recipe, facts: list[Fact], card: Mapping):
        super().__init__()
        self.network, self.recipe, self.facts = network, recipe, facts
        self.card = dict(card)
        self.config = {"image_shape": recipe.image_shape, "classes": recipe.classes}

    @property
    def image_bytes(self) -> int:
        """Memory that one image takes on its way."""
        return self.recipe.image_bytes

    def forward(self, images: Tensor) -> Scores:
        """Images (B, C, H, W) in [0, 1] -> scores (B, J) in [0, 1]."""
        output, _ = self.passed(images)
        scores = self.recipe.scores(output)[: len(images)]
        return Scores(scores, scores.clamp_min(torch.finfo(scores.dtype).tiny).log())

    def report(self) -> str:
        """What was found, with its evidence, and what can be done with it."""
        return written(self)

    def passed(
        self, images: Tensor, taps=(), entries=(), couplings=None, until=None, children=None
    ):
        """The output of one pass, and what the taps took: too many where it needs more images."""
        recipe = self.recipe
        if tuple(images.shape[1:]) != recipe.image_shape:
            raise ValueError(
                f"expected images (B, {', '.join(map(str, recipe.image_shape))}), "
                f"got {tuple(images.shape)}"
            )
        if len(images) < recipe.smallest:
            images = images.repeat(recipe.smallest, 1, 1, 1)[: recipe.smallest]
        images = recipe.normalised(images)
        tapped = (list(taps), list(entries), couplings, until, children)
        mode, output = TapPass(self.network, *tapped), None
        with ExitStack() as stack:
            stack.enter_context(suppress(PassEnd))
            if recipe.cuda:
                stack.enter_context(without_cuda())
            if recipe.aside:
                stack.enter_context(on_stderr())
            output = mode.run(lambda: recipe.call(self.network, images))
        return output, mode


def whole_shape(image_shape, classes) -> tuple[int, int, int]:
    """(C, H, W) of images that are given so or as (H, W); ValueError for what is no shape, and for
    what is no number of classes.
    """
    shape = tuple(image_shape) if isinstance(image_shape, tuple | list) else ()
    if not (2 <= len(shape) <= 3 and all(isinstance(side, int) and side > 0 for side in shape)):
        raise ValueError(f"expected image_shape as (C, H, W), got {image_shape!r}")
    if isinstance(classes, bool) or not isinstance(classes, int) or classes < 2:
        raise ValueError(f"expected a number of classes, at least 2, got {classes!r}")
    channels, height, width = (1, *shape)[-3:]
    return channels, height, width
