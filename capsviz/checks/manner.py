"""How somebody's network is called: with images, with labels too, or by its `look`."""

from __future__ import annotations

import inspect
from contextlib import nullcontext, suppress
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from capsviz.foreign import without_cuda
from capsviz.foreign.bare import Bare, Recipe
from capsviz.foreign.taps import PassEnd, TapPass

PARTS = ("primary", "votes", "logits", "couplings", "poses", "lengths")
LABELS = ("y", "label", "labels", "target", "targets", "t", "one_hot", "onehot", "classes")


class Labels(NamedTuple):
    """The argument of `forward` that takes labels."""

    name: str
    needed: bool


def of_images(network: nn.Module, image_shape, classes: int | None):
    """Shape and classes: given, or as a network's `config` says; ValueError without either."""
    config = getattr(network, "config", None)
    if isinstance(config, dict):
        image_shape = config.get("image_shape") if image_shape is None else image_shape
        classes = config.get("classes") if classes is None else classes
    if image_shape is None or classes is None:
        raise ValueError(
            f"{type(network).__name__} does not say what it takes: give image_shape=(C, H, W) and "
            "classes="
        )
    return (1, *image_shape)[-3:] if len(image_shape) < 3 else tuple(image_shape), classes


def name_of(network: nn.Module) -> str:
    """Of its card, or of its class."""
    name = (getattr(network, "card", None) or {}).get("name")
    kind = type(network.network if isinstance(network, Bare) else network).__name__
    return name or kind


def labels_of(network: nn.Module) -> Labels | None:
    """The second argument of `forward`, if labels go there."""
    with suppress(TypeError, ValueError):
        parameters = list(inspect.signature(network.forward).parameters.values())[1:]
        plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        if plain and (plain[0].default is plain[0].empty or plain[0].name in LABELS):
            return Labels(plain[0].name, plain[0].default is plain[0].empty)
    return None


def labelled(kind: str, classes: int, label: int):
    """(network, images) -> output, with one label for all images."""

    def call(network: nn.Module, images: Tensor):
        index = torch.full((len(images),), label, dtype=torch.long, device=images.device)
        return network(images, one_hot(index, classes).to(images) if kind == "one-hot" else index)

    return call


def find(network: nn.Module, recipe: Recipe, images: Tensor) -> str:
    """Put a `call` into a recipe that has none; how it is called: "given", "look", "images",
    "one-hot" or "index".

    Raises
    ------
    ValueError  with what the network says to the first of these ways.
    """
    if recipe.call is not None:
        ways = {"given": recipe.call}
    elif hasattr(network, "look"):
        ways = {"look": lambda net, x: net.look(x, keep=PARTS)}
    elif (labels := labels_of(network)) is not None and labels.needed:
        ways = {kind: labelled(kind, recipe.classes, 0) for kind in ("one-hot", "index")}
    else:
        ways = {"images": lambda net, x: net(x)}
    inside = images
    if recipe.mean is not None:
        inside = (images - recipe.mean.to(images)) / recipe.std.to(images)
    errors = []
    for shim in (False, True):
        for manner, call in ways.items():
            try:
                with without_cuda() if shim else nullcontext():
                    TapPass(network, []).run(lambda call=call: call(network, inside))
            except Exception as error:  # whatever somebody's code says
                errors.append(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
            else:
                recipe.call, recipe.cuda = call, shim or recipe.cuda
                return manner
        if "cuda" not in errors[0].lower() and "nvidia" not in errors[0].lower():
            break
    raise ValueError(f"the network refuses images {tuple(images.shape)}: {errors[0]}")


def outcome(mode: TapPass, call):
    """What a call returns under a mode that may end it; None if it does."""
    with suppress(PassEnd):
        return mode.run(call)
    return None
