"""Call a network under test: with images in [0, 1], with labels if needed, or by its `look`."""

import copy
import inspect
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from capsviz.checks.verdict import SkippedError
from capsviz.nn.computation import draws, literal
from capsviz.nn.images import check_images, like_of, require_shape
from capsviz.tracing import abilities, evaluating
from capsviz.wrapping.environment import ANY, as_written, beside_images
from capsviz.wrapping.given import recipe_of
from capsviz.wrapping.layers import BATCHES, Recorded, layers
from capsviz.wrapping.leaves import tensors
from capsviz.wrapping.network import Bare
from capsviz.wrapping.recorder import Pass
from capsviz.wrapping.taps import Recipe, Tap, TapPass, called, of_outputs
from capsviz.wrapping.wrapping import first_pass

PARTS = ("primary", "votes", "logits", "couplings", "poses", "lengths")
LABELS = ("y", "label", "labels", "target", "targets", "t", "one_hot", "onehot", "classes",
          "y_true", "y_onehot", "truth", "true_labels", "gt", "ground_truth")  # fmt: skip
SECONDS = 90  # CPU time for all checks of one network
SINGLE, DOUBLE = 1e-5, 1e-12  # rounding error of results in float32 and float64


class Caller:
    """A network, and how to call it.

    `way` is "given" (by the user's `call`), "look" (a network of capsviz), "images", "example"
    (inputs that are not images), or "one-hot" or "index" (`forward` needs labels of that form).
    A `recipe` of another network makes this one be called in the same way.
    """

    def __init__(
        self,
        network: nn.Module,
        image_shape=None,
        classes: int | None = None,
        *,
        capsules: int | None = None,
        example=None,
        images: Tensor | None = None,
        normalise=None,
        call: Callable | None = None,
        recipe: Recipe | None = None,
    ):
        network = as_written(network)
        self.network: Any = network  # a user's module may have any attributes
        self.wrapper: Bare | None = None
        self.of_classes = capsules is None
        if isinstance(network, Bare):
            self.network, self.wrapper = network.network, network
            if network.recipe.example is None or network.recipe.call is not called:
                call = network.recipe.call
            self.of_classes = network.config["classes"] is not None
            recipe = replace(network.recipe, smallest=1, aside=False, pair=None)
        elif recipe is None:
            config = abilities(network).config
            if image_shape is None and example is None:
                image_shape = config.get("image_shape")
            if classes is None and capsules is None:
                classes = config.get("classes")
            given = {"capsules": capsules, "example": example, "normalise": normalise}
            recipe = recipe_of(network, image_shape, classes, call=call, **given)
        self.recipe, self.image_shape, self.classes = recipe, recipe.image_shape, recipe.classes
        if images is not None and recipe.example is not None:
            images = recipe.example.rows(images)
        elif images is not None:
            check_images(images)
            require_shape(images, self.image_shape)
        self.own_images = images
        self.end = time.thread_time() + SECONDS
        self.name = abilities(network).card.get("name") or type(self.network).__name__
        with self.evaluating():
            self.way, self.recipe = _find(self.network, recipe, self.images(2), call)

    def images(self, count: int, seed: int = 0) -> Tensor:
        """Draw from the given images, repeated if too few, or noise; on the network's device."""
        own, seed = self.own_images, 1000 * seed + 1
        if own is None:
            return self.recipe.draw(count, seed).to(like_of(self.network))
        drawn = torch.randperm(len(own), generator=torch.Generator().manual_seed(seed))
        return own[drawn.repeat(-(-count // len(own)))[:count]].to(like_of(self.network))

    def require_images(self) -> None:
        """Raise SkippedError if the network takes other inputs."""
        if self.recipe.example is not None:
            raise SkippedError("it needs images, and the inputs of this network are none")

    def require_different(self) -> None:
        """Raise SkippedError if all given images are the same."""
        own = self.own_images
        if own is not None and bool((own == own[:1]).all()):
            raise SkippedError("it compares different images, and images= holds only one")

    def call(self, images: Tensor, network: nn.Module | None = None):
        """Return the output for images in [0, 1], of this network or of a copy of it."""
        return self.run(Pass(self.network if network is None else network), images)

    def require_time(self) -> None:
        """Raise SkippedError if the time limit of all checks is exceeded."""
        if time.thread_time() > self.end:
            raise SkippedError(
                f"the network is slow, and {SECONDS} s of computing are over: make this check "
                "alone, by only="
            )

    def floats(self, images: Tensor, network: nn.Module | None = None) -> list[Tensor]:
        """Return the floating-point tensors in the output of `call` that are not random."""
        outputs = enumerate(tensors(self.call(images, network)))
        random = {k for k, off in enumerate(self.randomness) if not off <= SINGLE}
        return [t for k, t in outputs if t.is_floating_point() and k not in random]

    @cached_property
    def randomness(self) -> list[float]:
        """Largest change of each output tensor between two random states."""
        images = self.images(5)
        return self.differences(lambda: self.call(images), (0, 1))

    def differences(self, call: Callable, seeds: tuple[int, int]) -> list[float]:
        """Return the largest difference of each tensor between two calls with these seeds.

        The result is [inf] if the shapes of the two outputs differ.
        """
        outputs = []
        for seed in seeds:
            with draws(seed, like_of(self.network).device):
                outputs.append(tensors(call()))
        first, second = outputs
        if [t.shape for t in first] != [t.shape for t in second]:
            return [float("inf")]
        pairs = zip(first, second, strict=True)
        return [
            float((a.cpu().double() - b.cpu().double()).abs().max()) if a.numel() else 0
            for a, b in pairs
        ]

    def output(self, images: Tensor):
        """Return the output of `forward`, which a loss gets, even if the checks call `look`."""
        inside = self.recipe.normalised(images)
        return self.network(inside) if self.way == "look" else self.call(images)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Use evaluation mode without gradients, and plain PyTorch in capsviz's own layers."""
        with evaluating(self.network), torch.no_grad(), literal():
            yield

    def run(self, mode: Pass, images: Tensor):
        """Return the output of a pass under a mode; None if the mode ends the pass early."""
        self.require_time()
        return self.recipe.run(mode, images)

    def record(self, images: Tensor) -> Recorded:
        """Record a forward pass, and find its routed layers."""
        self.require_time()
        output, flow = self.recipe.record(self.network, images)
        return Recorded(images, output, flow, layers(flow, len(images), self.classes))

    @cached_property
    def recorded(self) -> Recorded:
        """Recorded pass of a prime number of images, if possible with a routed class layer."""
        tried, began = [], time.thread_time()
        for count in (n for n in BATCHES if n != self.classes):
            tried.append(self.record(self.images(count)))
            if any(layer.parents == self.classes for layer in tried[-1].layers):
                return tried[-1]
            if time.thread_time() > began + SECONDS / 20:
                break
        return next((one for one in tried if one.layers), tried[-1])

    def changed(
        self, events, change, images: Tensor, taps: Iterable[Tap] = (), until=None, call=None
    ) -> tuple[Any, dict[str, list[Tensor]]]:
        """Return output and tap readings of a pass that replaces results of `events` by `change`.

        SkippedError if the pass does not reach the events or a tap.
        """
        taps = list(taps)
        mode = TapPass(self.network, taps, of_outputs(events, change), until)
        output = self.run(mode, images) if call is None else mode.run(lambda: call(images))
        if not mode.reached or {tap.part for tap in taps} - mode.readings.keys():
            raise SkippedError("a pass with other features or sums does not reach the same code")
        return output, mode.readings

    def in_double(self, measure: Callable[..., float]) -> tuple[float, float]:
        """Return `measure(copy, float64)` for a copy in float64, and the expected rounding error.

        If the copy fails or its code requires float32, `measure(None, float32)` is used.
        """
        default = torch.get_default_dtype()
        try:
            double = copy.deepcopy(self.network).double()
            torch.set_default_dtype(torch.float64)
            return measure(double, torch.float64), DOUBLE
        except SkippedError:
            raise
        except Exception:  # a user's code may raise anything
            torch.set_default_dtype(default)
            return measure(None, torch.float32), SINGLE
        finally:
            torch.set_default_dtype(default)


def labels_of(network: nn.Module) -> inspect.Parameter | None:
    """Return the argument for labels: one with a usual name, or a required second argument."""
    others = [p for p in beside_images(network) if p.kind not in ANY]
    named = [p for p in others if p.name.lower() in LABELS]
    needed = [p for p in others[:1] if p.default is p.empty]
    return next(iter(named + needed), None)


def labelled(kind: str, classes: int, label: int, name: str) -> Callable:
    """Return a function (network, images) -> output that gives all images the same label."""

    def call(network: nn.Module, images: Tensor):
        index = torch.full((len(images),), label, dtype=torch.long, device=images.device)
        value = one_hot(index, classes).to(images) if kind == "one-hot" else index
        return network(images, **{name: value})

    return call


def _find(network, recipe: Recipe, images: Tensor, call: Callable | None) -> tuple[str, Recipe]:
    """Return the first way of calling that works, and its recipe; else raise the first error."""
    ways: dict[str, Callable] = {"images": called}
    if call is not None:
        ways = {"given": call}
    elif abilities(network).has_capsules:
        ways = {"look": lambda net, x: net.look(x, keep=PARTS)}
    elif recipe.example is not None:
        ways = {"example": called}
    elif (labels := labels_of(network)) is not None and labels.default is labels.empty:
        kinds = ("one-hot", "index")
        ways = {kind: labelled(kind, recipe.classes, 0, labels.name) for kind in kinds}
    errors: list[Exception] = []
    for name, way in ways.items():
        try:
            return name, first_pass(network, replace(recipe, call=way), images)[0]
        except ValueError as error:
            errors.append(error)
    raise errors[0]
