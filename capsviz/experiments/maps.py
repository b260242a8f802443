"""The maps that `faithfulness` compares: routing maps, gradient-based maps, and controls.

A map of capsules gives each capsule a number for the class of its image. A map of positions sums it
over capsule types. To get pixels, the value of a position is divided among the pixels of its
receptive field in proportion to their brightness, because black is the baseline.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torch.overrides import TorchFunctionMode

from capsviz.experiments.attacks import logits
from capsviz.nn.computation import literal
from capsviz.nn.images import like_of
from capsviz.nn.quantity import ALONG_POSE
from capsviz.tracing import abilities, evidence, trace

ROUTED, UNIFORM = "routing map", "routing map, uniform"
CHILDREN, COUPLING = "|u| map", "couplings"
GRADIENT, INTEGRATED, GRAD_CAM = "gradient", "integrated gradients", "Grad-CAM"
BRIGHTNESS, RANDOM = "brightness", "random order"
CONTROLS = ("constant map", "random map", "routing map, permuted", "another image's map")
EFFECT = "removal effect"
EVENLY = ", evenly"  # a position's value is divided equally among its pixels
STEPS = 8  # nodes of the Gauss-Legendre rule for integrated gradients
WINDOW, STRIDE = 1 / 4, 1 / 6  # occlusion, relative to the side of the image


class Maps(NamedTuple):
    """Maps of B images, double, on the CPU."""

    own: Tensor  # (B, h, w) as displayed, by position or pixel
    order: Tensor  # (B, H, W) pixels are removed in descending order of it
    contributions: Tensor  # (B, H, W) predicted loss of the score if a pixel is removed


Methods = dict[str, Callable[[Tensor, Tensor], Maps]]  # take images (B, C, H, W), classes (B,)


def methods(model, image: Tensor, seed: int = 0) -> tuple[Methods, list[str]]:
    """Return the pixel maps that a network has, controls first, and reasons for those it lacks.

    An image (1, C, H, W) is passed through the network; `seed` is for the random order. ValueError
    for scores without a gradient.
    """
    generator = torch.Generator().manual_seed(seed)

    def random(images, classes):
        shape = len(images), 1, *images.shape[2:]
        return _summed(torch.rand(shape, generator=generator, dtype=torch.double))

    def fine(number, images, classes):
        coarse = grad_cam(model, number, images, classes)
        return _summed(interpolate(coarse, images.shape[2:], mode="bilinear"))

    score, (routing, left_out) = partial(logits, model), _of_routing(model, image)
    found: Methods = {
        RANDOM: random,
        BRIGHTNESS: lambda images, classes: _summed(images),
        **routing,
        GRADIENT: partial(_gradient, model),
        INTEGRATED: lambda images, classes: _summed(
            on_the_way(score, torch.zeros_like(images), images, classes, INTEGRATED)
        ),
        "occlusion": partial(_occlusion, model),
    }
    several = convolutions(model, image)
    if not several:
        left_out.append("no Grad-CAM: no convolution with several positions leads to the class")
    for which, numbers in {"first": several[:-1][:1], "last": several[-1:]}.items():
        for number in numbers:
            found[f"{GRAD_CAM}, {which} convolution"] = partial(fine, number)
    return found, left_out


def _of_routing(model, image: Tensor) -> tuple[Methods, list[str]]:
    """Return |u|, the routing map, and that with uniform couplings, if capsules have positions."""
    if not abilities(model).has_capsules:
        return {}, ["no routing map: the network has no capsules"]
    if not evidence.has_places(abilities(model).grid):
        return {}, ["no routing map: the capsules of this network have no positions"]
    fields = evidence.fields_of_places(model)
    if (fields == fields[0, 0]).all():
        return {}, ["no routing map: every position sees the same part of the image"]
    found: Methods = {}
    left_out = []
    for name in (CHILDREN, ROUTED, UNIFORM):
        try:
            of_capsules(model, image, torch.zeros(1, dtype=torch.long), name)
        except ValueError as error:
            left_out.append(f"no {name}: {error}")
        else:
            found[name] = partial(_in_pixels, model, fields, name)
    return found, left_out


def of_capsules(model, images: Tensor, classes: Tensor, name: str) -> Tensor:
    """Return a routing map by its name: the value of each capsule for the class, (B, I) double."""
    if name == CHILDREN:
        return trace(model, images, keep=("children",)).require("children").double().norm(dim=2)
    couplings = "uniform" if name == UNIFORM else None
    traced = trace(model, images, keep=evidence.PARTS, couplings=couplings)
    if traced.links is not None:
        raise ValueError("its positions see only some capsules, expected all to see all")
    values = evidence.of_children(traced)
    if name == COUPLING:
        values = traced.require("couplings")[-1].double()
    return values[torch.arange(len(values)), :, classes.cpu()]


def on_the_way(
    scores: Callable[[Tensor], Tensor], start: Tensor, end: Tensor, classes: Tensor, name: str
) -> Tensor:
    """Attribute the class's score to the inputs along the straight line from `start` to `end`.

    `name` is "integrated gradients", or "gradient": a first-order estimate at the end. The result
    has the shape of `end`, double, on the CPU.
    """
    nodes, weights = np.polynomial.legendre.leggauss(STEPS)
    if name == GRADIENT:
        nodes, weights = np.array([1.0]), np.array([2.0])
    total = torch.zeros(end.shape, dtype=torch.double)
    for share, weight in zip((1 + nodes) / 2, weights / 2, strict=True):
        point = (start + float(share) * (end - start)).requires_grad_()
        (slope,) = torch.autograd.grad(scores(point).gather(1, classes[:, None]).sum(), point)
        total += (float(weight) * slope * (end - start)).cpu()
    return total


def own_quantity(model, image: Tensor, names) -> dict[str, str] | None:
    """Return the quantity of the routing map, in words; None without one, or for s_j · v̂_j."""
    if ROUTED not in names:
        return None
    quantity = evidence.quantity(trace(model, image, keep=evidence.PARTS))
    return None if quantity is ALONG_POSE else quantity._asdict()


class _Convolutions(TorchFunctionMode):
    """Collect the results of all calls of `torch.conv2d`, in their order."""

    def __init__(self):
        super().__init__()
        self.results = []

    def __torch_function__(self, function, types, arguments=(), named=None):
        result = function(*arguments, **(named or {}))
        if function is torch.conv2d:
            self.results.append(result)
        return result


def _watched(model, images: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return images that require gradients, their scores, and the results of convolutions."""
    images = images.detach().clone().requires_grad_()
    with literal(), _Convolutions() as recorder:
        return images, logits(model, images), recorder.results


def convolutions(model, image: Tensor) -> list[int]:
    """Return the indices of convolutions with several positions that lie between image and score.

    ValueError if the scores have no gradient by the image (1, C, H, W).
    """
    image, values, results = _watched(model, image)
    known = [one for one in results if one.requires_grad]
    gradients: tuple[Tensor | None, ...] = (None,)
    if values.requires_grad:
        gradients = torch.autograd.grad(values.sum(), [image, *known], allow_unused=True)
    if gradients[0] is None:
        raise ValueError(
            "the scores of this network have no gradient by the image (its code detaches them, or "
            "leaves PyTorch): capsviz faithfulness needs one"
        )
    reached = {id(r) for r, g in zip(known, gradients[1:], strict=True) if g is not None}
    return [k for k, r in enumerate(results) if id(r) in reached and r.shape[2] * r.shape[3] > 1]


def grad_cam(model, number: int, images: Tensor, classes: Tensor) -> Tensor:
    """Return the Grad-CAM map (B, 1, h, w) of a convolution (Selvaraju et al. 2017)."""
    _, values, results = _watched(model, images)
    picked = values.gather(1, classes[:, None]).sum()
    (slope,) = torch.autograd.grad(picked, results[number])
    weighted = slope.mean((2, 3), keepdim=True) * results[number].detach()
    return weighted.sum(1, keepdim=True).relu()


def lost(model, images: Tensor, classes: Tensor, masks: Tensor) -> Tensor:
    """Return the loss of the class's score (B, K), double, if patches (B, K, H, W) become black."""
    like, (B, K) = like_of(model), masks.shape[:2]
    forms = torch.cat([images, (images[:, None] * ~masks[:, :, None]).flatten(0, 1)])
    with torch.no_grad():
        each = torch.cat([logits(model, some.to(like)).cpu() for some in forms.split(64)])
    own = each[:B].double().gather(1, classes[:, None])
    return own - each[B:].double().view(B, K, -1)[torch.arange(B), :, classes]


def _in_pixels(model, fields, name, images, classes) -> Maps:
    grid = abilities(model).grid
    maps = of_capsules(model, images, classes, name).unflatten(1, grid).sum(1)
    pixels = evidence.in_pixels(maps, images.cpu(), fields)
    return Maps(maps, pixels, pixels)


def _gradient(model, images, classes) -> Maps:
    """Rank pixels by |∂f/∂x|; their predicted contributions are x ∂f/∂x."""
    images = images.detach().clone().requires_grad_()
    picked = logits(model, images).gather(1, classes[:, None]).sum()
    (slope,) = torch.autograd.grad(picked, images)
    steep = _summed(slope.abs())
    return steep._replace(contributions=_summed(slope * images).own)


def _occlusion(model, images, classes) -> Maps:
    """Rank pixels by the mean loss over the windows that cover them (Zeiler & Fergus 2014)."""
    within = []
    for side in images.shape[2:]:
        window, stride = max(1, round(WINDOW * side)), max(1, round(STRIDE * side))
        starts, places = torch.arange(0, side - window + stride, stride), torch.arange(side)
        within.append((places >= starts[:, None]) & (places < starts[:, None] + window))
    masks = (within[0][:, None, :, None] & within[1][None, :, None]).flatten(0, 1)
    losses = lost(model, images.cpu(), classes.cpu(), masks.expand(len(images), -1, -1, -1))
    return _summed((torch.einsum("bk,khw->bhw", losses, masks.double()) / masks.sum(0))[:, None])


def _summed(values: Tensor) -> Maps:
    """Return one map (B, H, W), the sum of (B, C, H, W) over channels, for all three fields."""
    maps = values.detach().cpu().double().sum(1)
    return Maps(maps, maps, maps)
