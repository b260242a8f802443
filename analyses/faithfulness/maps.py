"""The maps that `faithfulness` compares: of routing, by captum, and controls.

A method takes images (B, C, H, W) and classes (B,), and returns `Maps`. Routing maps are maps of
positions. In pixels, the evidence of a position is divided among those in its receptive field in
proportion to their brightness, because black is the baseline. The gradient orders pixels by
|∂f/∂x|, and predicts that ∂f/∂x times a pixel is lost with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from capsviz import discovery
from capsviz.analyses.faithfulness.explained import Explained, convolutions
from capsviz.nn.quantity import ALONG_POSE
from capsviz.tracing import abilities, evidence, trace

ROUTED, UNIFORM = "routing map", "routing map, uniform"
CHILDREN, BRIGHTNESS, RANDOM = "|u| map", "ink", "random order"
STEPS = 8  # of integrated gradients, by the Gauss-Legendre rule
WINDOW, STRIDE = 1 / 4, 1 / 6  # of occlusion, of the side of the image


class Maps(NamedTuple):
    """Of B images, double, on the CPU."""

    own: Tensor  # (B, h, w) as it is shown, of positions or pixels
    order: Tensor  # (B, H, W) by which pixels are removed, the largest first
    contributions: Tensor  # (B, H, W) what the score is predicted to lose with each pixel


class Method(NamedTuple):
    """One way to make maps."""

    name: str
    maps: Callable[[Tensor, Tensor], Maps]  # of images and classes


def methods(model: nn.Module, image: Tensor, seed: int = 0) -> tuple[list[Method], list[str]]:
    """Return the maps that a network has, controls first, and in words those that it lacks.

    Parameters
    ----------
    image  (1, C, H, W), on the network's device; it is passed through once or twice.
    seed   of the random order.

    Raises
    ------
    ImportError  without captum.
    ValueError   for scores without a gradient.
    """
    captum = _captum()
    random = _random(torch.Generator().manual_seed(seed))
    controls = [Method(RANDOM, random), Method(BRIGHTNESS, _brightness)]
    routing, left_out = _of_routing(model, image)
    explained = Explained(model)
    by_gradient = [
        Method("gradient", partial(_gradient, explained)),
        Method("integrated gradients", partial(_integrated, captum, explained)),
        Method("occlusion", partial(_occlusion, captum, explained)),
    ]
    several = convolutions(model, image)
    if not several:
        left_out.append("no Grad-CAM: no convolution with several positions leads to the class")
    ends = dict.fromkeys((several[0], several[-1])) if several else {}
    names = ("Grad-CAM, first convolution", "Grad-CAM, last convolution")
    if len(ends) == 1:
        names = ("Grad-CAM, the one convolution",)
    grad_cam = [
        Method(name, partial(_grad_cam, captum, Explained(model, one.number)))
        for name, one in zip(names, ends, strict=False)
    ]
    return [*controls, *routing, *by_gradient, *grad_cam], left_out


def _of_routing(model, image: Tensor) -> tuple[list[Method], list[str]]:
    """Return |u|, routing map and the same with uniform couplings, if capsules have positions."""
    if not abilities(model).has_capsules:
        return [], ["no routing map: the network has no capsules"]
    grid = abilities(model).grid
    if not evidence.has_places(grid):
        return [], ["no routing map: the capsules of this network have no positions"]
    fields, several, left_out = evidence.fields_of_places(model), [], []
    if (fields == fields[0, 0]).all():
        what = "whole image" if fields[0, 0].all() else "same part of the image"
        return [], [f"no routing map: every position sees the {what}, so there is no map in pixels"]
    for name, method in (
        (CHILDREN, partial(_children, model, fields)),
        (ROUTED, partial(_routing, model, fields, None)),
        (UNIFORM, partial(_routing, model, fields, "uniform")),
    ):
        try:
            method(image, torch.zeros(1, dtype=torch.long))
        except ValueError as error:
            left_out.append(f"no {name}: {error}")
        else:
            several.append(Method(name, method))
    return several, left_out


def own_quantity(model, image: Tensor, names: Sequence[str]) -> dict[str, str] | None:
    """Return what the routing map shows, in words; None: no map, or a length along a pose."""
    if ROUTED not in names:
        return None
    quantity = evidence.quantity(trace(model, image, keep=evidence.PARTS))
    return None if quantity is ALONG_POSE else quantity._asdict()


def _children(model, fields, images, classes):
    norms = trace(model, images, keep=("children",)).children.double().norm(dim=2)
    return _of_places(norms.unflatten(1, model.grid).sum(1), images, fields)


def _routing(model, fields, couplings, images, classes):
    traced = trace(model, images, keep=evidence.PARTS, couplings=couplings)
    if traced.links is not None:
        raise ValueError("its positions see only some capsules, expected all to see all")
    maps = evidence.additive_map(traced)
    return _of_places(maps[torch.arange(len(maps)), classes.cpu()], images, fields)


def _of_places(maps, images, fields):
    pixels = evidence.in_pixels(maps, images.cpu(), fields)
    return Maps(maps, pixels, pixels)


def _random(generator):
    return lambda images, classes: _alike(
        torch.rand(len(images), *images.shape[2:], generator=generator, dtype=torch.double)
    )


def _brightness(images, classes):
    return _alike(_summed(images))


def _gradient(explained, images, classes):
    images = images.detach().clone().requires_grad_()
    picked = explained(images).gather(1, classes[:, None]).sum()
    (slope,) = torch.autograd.grad(picked, images)
    steep = _summed(slope.abs())
    return Maps(steep, steep, _summed(slope * images.detach()))


def _integrated(captum, explained, images, classes):
    whole = captum.IntegratedGradients(explained).attribute(
        images, target=classes, n_steps=STEPS, internal_batch_size=max(len(images), STEPS)
    )
    return _alike(_summed(whole))


def _occlusion(captum, explained, images, classes):
    channels, *sides = images.shape[1:]
    window = (channels, *(max(1, round(WINDOW * side)) for side in sides))
    stride = (channels, *(max(1, round(STRIDE * side)) for side in sides))
    with torch.no_grad():
        whole = captum.Occlusion(explained).attribute(
            images, sliding_window_shapes=window, strides=stride, target=classes,
            perturbations_per_eval=4,
        )  # fmt: skip
    return _alike(_summed(whole))


def _grad_cam(captum, explained, images, classes):
    coarse = captum.LayerGradCam(explained, explained.layer).attribute(
        images.detach().clone().requires_grad_(), target=classes, relu_attributions=True
    )
    fine = captum.LayerAttribution.interpolate(coarse.detach(), tuple(images.shape[2:]), "bilinear")
    return _alike(_summed(fine))


def _summed(values: Tensor) -> Tensor:
    """(B, C, H, W) -> (B, H, W) double on the CPU."""
    return values.detach().cpu().double().sum(1)


def _alike(maps: Tensor) -> Maps:
    return Maps(maps, maps, maps)


def _captum():
    try:
        import captum.attr
    except ModuleNotFoundError as error:
        raise ImportError(discovery.needs("faithfulness", "captum")) from error
    return captum.attr
