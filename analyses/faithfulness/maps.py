"""The maps that `faithfulness` compares: of routing, of gradients, by captum, and controls.

A map of capsules gives each one a number for the class of its image; a map of positions is its sum
over capsule types. In pixels, the value of a position is divided among those in its receptive field
in proportion to their brightness, because black is the baseline.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from capsviz.nn.computation import literal
from capsviz.nn.quantity import ALONG_POSE
from capsviz.tracing import abilities, evidence, trace
from capsviz.tracing.record import last_activations

ROUTED, UNIFORM = "routing map", "routing map, uniform"
CHILDREN, COUPLING = "|u| map", "couplings"
GRADIENT, INTEGRATED, GRAD_CAM = "gradient", "integrated gradients", "Grad-CAM"
BRIGHTNESS, RANDOM = "ink", "random order"
STEPS = 8  # of integrated gradients, by the Gauss-Legendre rule
WINDOW, STRIDE = 1 / 4, 1 / 6  # of occlusion, of the side of the image
INSTALL = "maps by captum need it: pip install 'capsviz[attribution]'"


class Explained(nn.Module):
    """Images (B, C, H, W) -> (B, J): the activations of classes, or logits without capsules.

    The result of one convolution, by its number in the order of computation, passes through
    `layer`: a network may call convolutions by their weights, so they are no modules to hook.
    """

    def __init__(self, model: nn.Module, number: int | None = None):
        super().__init__()
        self.model, self.number, self.layer = model, number, nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """Return the activations, or logits."""
        if self.number is None:
            return self._values(images)
        with literal(), _Convolutions(self.layer, self.number):
            return self._values(images)

    def _values(self, images: Tensor) -> Tensor:
        model: Any = self.model
        if not abilities(model).has_capsules:
            return model(images).logits
        values = last_activations(model.look(images, keep=("lengths",)))
        assert values is not None
        return values


class _Convolutions(TorchFunctionMode):
    """Collects the results of convolutions; that of one passes through a layer."""

    def __init__(self, layer: nn.Module | None = None, number: int | None = None):
        super().__init__()
        self.layer, self.number = layer, number
        self.results: list[Tensor] = []

    def __torch_function__(self, function, types, arguments=(), named=None):
        result = function(*arguments, **(named or {}))
        if function is torch.conv2d:
            if self.layer is not None and len(self.results) == self.number:
                result = self.layer(result)
            self.results.append(result)
        return result


def convolutions(model: nn.Module, image: Tensor) -> list[int]:
    """Return the numbers of the convolutions with several positions between image and score.

    Raises
    ------
    ValueError  for scores that have no gradient by the image (1, C, H, W).
    """
    image = image.detach().clone().requires_grad_()
    with literal(), _Convolutions() as met:
        values = Explained(model)(image)
    results = [one for one in met.results if one.requires_grad]
    gradients: tuple[Tensor | None, ...] = ()
    if values.requires_grad:
        gradients = torch.autograd.grad(values.sum(), [image, *results], allow_unused=True)
    if not gradients or gradients[0] is None:
        raise ValueError(
            "the scores of this network have no gradient by the image (its code detaches them, or "
            "leaves PyTorch): capsviz faithfulness needs one"
        )
    reached = {id(r) for r, g in zip(results, gradients[1:], strict=True) if g is not None}
    return [
        number
        for number, result in enumerate(met.results)
        if id(result) in reached and result.shape[2] * result.shape[3] > 1
    ]


class Maps(NamedTuple):
    """Of B images, double, on the CPU."""

    own: Tensor  # (B, h, w) as it is shown, of positions or pixels
    order: Tensor  # (B, H, W) by which pixels are removed, the largest first
    contributions: Tensor  # (B, H, W) what the score is predicted to lose with each pixel


class Method(NamedTuple):
    """One way to make maps, of images (B, C, H, W) and classes (B,)."""

    name: str
    maps: Callable[[Tensor, Tensor], Maps]


def methods(model: nn.Module, image: Tensor, seed: int = 0) -> tuple[list[Method], list[str]]:
    """Return the maps in pixels that a network has, controls first, and which it lacks.

    Parameters
    ----------
    image  (1, C, H, W), on the network's device; it is passed through once or twice.
    seed   of the random order.

    Raises
    ------
    ImportError  without captum.
    ValueError   for scores without a gradient.
    """
    captum = require_captum()
    generator = torch.Generator().manual_seed(seed)

    def random(images, classes):
        shape = len(images), *images.shape[2:]
        return _alike(torch.rand(shape, generator=generator, dtype=torch.double))

    found = [Method(RANDOM, random), Method(BRIGHTNESS, lambda images, _: _alike(_summed(images)))]
    routing, left_out = _of_routing(model, image)
    found += routing
    explained = Explained(model)
    found += [
        Method(GRADIENT, partial(_gradient, explained)),
        Method(INTEGRATED, partial(_integrated, captum, explained)),
        Method("occlusion", partial(_occlusion, captum, explained)),
    ]
    several = convolutions(model, image)
    if not several:
        left_out.append("no Grad-CAM: no convolution with several positions leads to the class")
    ends = {"first": several[0], "last": several[-1]} if several else {}
    if len(several) == 1:
        ends = {"the one": several[0]}
    for which, number in ends.items():
        watched = Explained(model, number)
        found.append(Method(f"{GRAD_CAM}, {which} convolution", partial(_fine, captum, watched)))
    return found, left_out


def _of_routing(model, image: Tensor) -> tuple[list[Method], list[str]]:
    """Return |u|, routing map and the same with uniform couplings, if capsules have positions."""
    if not abilities(model).has_capsules:
        return [], ["no routing map: the network has no capsules"]
    if not evidence.has_places(abilities(model).grid):
        return [], ["no routing map: the capsules of this network have no positions"]
    fields, several, left_out = evidence.fields_of_places(model), [], []
    if (fields == fields[0, 0]).all():
        what = "whole image" if fields[0, 0].all() else "same part of the image"
        return [], [f"no routing map: every position sees the {what}, so there is no map in pixels"]
    for name in (CHILDREN, ROUTED, UNIFORM):
        method = Method(name, partial(_in_pixels, model, fields, name))
        try:
            method.maps(image, torch.zeros(1, dtype=torch.long))
        except ValueError as error:
            left_out.append(f"no {name}: {error}")
        else:
            several.append(method)
    return several, left_out


def of_capsules(model, images: Tensor, classes: Tensor, name: str) -> Tensor:
    """Return a map of routing by its name: what each capsule has for the class, (B, I) double."""
    if name == CHILDREN:
        return trace(model, images, keep=("children",)).require("children").double().norm(dim=2)
    couplings = "uniform" if name == UNIFORM else None
    traced = trace(model, images, keep=evidence.PARTS, couplings=couplings)
    if traced.links is not None:
        raise ValueError("its positions see only some capsules, expected all to see all")
    if name == COUPLING:
        values = traced.require("couplings")[-1].double()
    else:
        values = evidence.of_children(traced)
    return values[torch.arange(len(values)), :, classes.cpu()]


def by_gradient(model, ends, starts, classes: Tensor, name: str) -> Tensor:
    """Return what capsules add to the class's activation on a straight way: (B, I) double.

    By "integrated gradients", or to first order by the "gradient" at its end.

    Parameters
    ----------
    ends    children (B, I, D) and their activations (B, I).
    starts  (1, I, D) and (1, I), what a capsule that is removed becomes.
    """
    nodes, weights = (np.ones(1), 2 * np.ones(1))
    if name == INTEGRATED:
        nodes, weights = np.polynomial.legendre.leggauss(STEPS)
    less, total = [end - start for end, start in zip(ends, starts, strict=True)], torch.zeros(())
    for node, weight in zip(nodes, weights, strict=True):
        share = (1 + float(node)) / 2
        inputs = [
            (start + share * one).requires_grad_() for start, one in zip(starts, less, strict=True)
        ]
        activations = model.from_children(*inputs)[1].gather(1, classes[:, None])
        slopes = torch.autograd.grad(activations.sum(), inputs, allow_unused=True)
        for slope, one in zip(slopes, less, strict=True):
            if slope is not None:
                added = float(weight) / 2 * (slope * one).double()
                total = total + (added.sum(2) if added.dim() == 3 else added)
    return total.cpu()


def own_quantity(model, image: Tensor, names: list[str]) -> dict[str, str] | None:
    """Return what the routing map shows, in words; None: no map, or a length along a pose."""
    if ROUTED not in names:
        return None
    quantity = evidence.quantity(trace(model, image, keep=evidence.PARTS))
    return None if quantity is ALONG_POSE else quantity._asdict()


def _in_pixels(model, fields, name, images, classes) -> Maps:
    maps = of_capsules(model, images, classes, name).unflatten(1, model.grid).sum(1)
    pixels = evidence.in_pixels(maps, images.cpu(), fields)
    return Maps(maps, pixels, pixels)


def _gradient(explained, images, classes) -> Maps:
    """Pixels by |∂f/∂x|; ∂f/∂x times a pixel is predicted to be lost with it."""
    images = images.detach().clone().requires_grad_()
    picked = explained(images).gather(1, classes[:, None]).sum()
    (slope,) = torch.autograd.grad(picked, images)
    steep = _summed(slope.abs())
    return Maps(steep, steep, _summed(slope * images.detach()))


def _integrated(captum, explained, images, classes) -> Maps:
    whole = captum.IntegratedGradients(explained).attribute(
        images, target=classes, n_steps=STEPS, internal_batch_size=max(len(images), STEPS)
    )
    return _alike(_summed(whole))


def _occlusion(captum, explained, images, classes) -> Maps:
    channels, *sides = images.shape[1:]
    window = (channels, *(max(1, round(WINDOW * side)) for side in sides))
    stride = (channels, *(max(1, round(STRIDE * side)) for side in sides))
    with torch.no_grad():
        whole = captum.Occlusion(explained).attribute(
            images, sliding_window_shapes=window, strides=stride, target=classes,
            perturbations_per_eval=4,
        )  # fmt: skip
    return _alike(_summed(whole))


def grad_cam(captum, explained: Explained, images: Tensor, classes: Tensor) -> Tensor:
    """Return the map (B, 1, h, w) of the convolution that `explained` watches, at its size."""
    return captum.LayerGradCam(explained, explained.layer).attribute(
        images.detach().clone().requires_grad_(), target=classes, relu_attributions=True
    ).detach()  # fmt: skip


def _fine(captum, explained, images, classes) -> Maps:
    coarse, sides = grad_cam(captum, explained, images, classes), tuple(images.shape[2:])
    return _alike(_summed(captum.LayerAttribution.interpolate(coarse, sides, "bilinear")))


def _summed(values: Tensor) -> Tensor:
    """(B, C, H, W) -> (B, H, W) double on the CPU."""
    return values.detach().cpu().double().sum(1)


def _alike(maps: Tensor) -> Maps:
    return Maps(maps, maps, maps)


def require_captum():
    """Return `captum.attr`; ImportError, in one line, where it is missing."""
    try:
        import captum.attr
    except ModuleNotFoundError as error:
        raise ImportError(INSTALL) from error
    return captum.attr
