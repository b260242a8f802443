"""How somebody's network is called: with images, with labels too, or by its `look`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from capsviz.wrapping import without_cuda
from capsviz.wrapping.given import whole_shape
from capsviz.wrapping.network import Bare
from capsviz.wrapping.taps import Recipe, TapPass

PARTS = ("primary", "votes", "logits", "couplings", "poses", "lengths")
LABELS = ("y", "label", "labels", "target", "targets", "t", "one_hot", "onehot", "classes",
          "y_true", "y_onehot", "truth", "true_labels", "gt", "ground_truth")  # fmt: skip


ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)  # *args, **kwargs


class Labels(NamedTuple):
    """The argument of `forward` that takes labels."""

    name: str
    needed: bool
    named: str | None = None  # where it can be given by its name alone


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
    return whole_shape(image_shape, classes), classes


def name_of(network: nn.Module) -> str:
    """Of its card, or of its class."""
    name = (getattr(network, "card", None) or {}).get("name")
    kind = type(network.network if isinstance(network, Bare) else network).__name__
    return name or kind


def labels_of(network: nn.Module) -> Labels | None:
    """The argument of `forward` that labels go to: one named so, or the second if it is needed."""
    others = _beside_images(network)
    named = [p for p in others if p.name.lower() in LABELS]
    if named:
        one = named[0]
        second = one is others[0] and one.kind is not one.KEYWORD_ONLY
        return Labels(one.name, one.default is one.empty, None if second else one.name)
    if others and others[0].default is others[0].empty:
        return Labels(others[0].name, True)
    return None


def unknown_arguments(network: nn.Module) -> list[str]:
    """Names of what `forward` takes beside images, that may be labels: nothing by default."""
    others = [p.name for p in _beside_images(network) if p.default is None]
    return others + [str(p) for p in _arguments(network)[1:] if p.kind in ANY]


def _beside_images(network: nn.Module) -> list[inspect.Parameter]:
    return [p for p in _arguments(network)[1:] if p.kind not in ANY]


def _arguments(network: nn.Module) -> list[inspect.Parameter]:
    """What `forward` takes, the images first."""
    if isinstance(network, nn.DataParallel):
        network = network.module
    with suppress(TypeError, ValueError):
        own = list(inspect.signature(network.forward).parameters.values())
        first = [inspect.Parameter("images", inspect.Parameter.POSITIONAL_ONLY)]
        return first + own if own and own[0].kind in ANY else own
    return []


def labelled(kind: str, classes: int, label: int, name: str | None = None):
    """(network, images) -> output, with one label for all images; None: as second argument."""

    def call(network: nn.Module, images: Tensor):
        index = torch.full((len(images),), label, dtype=torch.long, device=images.device)
        value = one_hot(index, classes).to(images) if kind == "one-hot" else index
        return network(images, value) if name is None else network(images, **{name: value})

    return call


def images_alone(network: nn.Module, images: Tensor):
    """The usual call."""
    return network(images)


def find(network, recipe: Recipe, images: Tensor, call: Callable | None) -> tuple[str, Recipe]:
    """Return the way to call it, "given", "look", "images", "one-hot" or "index", and a recipe.

    Raises
    ------
    ValueError  with what the network says to the first of these ways.
    """
    ways: dict[str, Callable]
    if call is not None:
        ways = {"given": call}
    elif hasattr(network, "look"):
        ways = {"look": lambda net, x: net.look(x, keep=PARTS)}
    elif (labels := labels_of(network)) is not None and labels.needed:
        kinds = ("one-hot", "index")
        ways = {kind: labelled(kind, recipe.classes, 0, labels.named) for kind in kinds}
    else:
        ways = {"images": images_alone}
    inside = recipe.normalised(images)
    errors: list[str] = []
    for shim in (False, True):
        for manner, way in ways.items():
            try:
                with without_cuda() if shim else nullcontext():
                    TapPass(network, []).run(lambda way=way: way(network, inside))
            except Exception as error:  # whatever somebody's code says
                errors.append(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
            else:
                return manner, replace(recipe, call=way, cuda=shim or recipe.cuda)
        if "cuda" not in errors[0].lower() and "nvidia" not in errors[0].lower():
            break
    needed = [p.name for p in _beside_images(network) if p.default is p.empty]
    advice = f"; it takes {', '.join(needed)}, too: say how by call=" if needed and not call else ""
    raise ValueError(f"the network refuses images {tuple(images.shape)}: {errors[0]}{advice}")
