"""Build untrained copies of a network as controls for the effect of training."""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from capsviz import discovery
from capsviz.nn import models
from capsviz.nn.computation import seeded
from capsviz.nn.images import like_of
from capsviz.statistics.words import UNTRAINED

NORMALISED, BATCH = 512, 128  # images for batch norm statistics; batch size


def is_trained(model: nn.Module) -> bool:
    """Return whether a network's card describes its training."""
    return "training" in getattr(model, "card", {})


def presets(model: nn.Module) -> tuple[str | None, ...]:
    """Return the initialisations that a network's file lists as `PRESETS`, or (None,)."""
    offered = getattr(_file(model), "PRESETS", ())
    return tuple(offered) if offered and "preset" in getattr(model, "config", {}) else (None,)


def _file(model: nn.Module) -> ModuleType:
    """Return the module that holds the `build` of a network: its class's file or its model's."""
    own = sys.modules[type(model).__module__]
    name = None if hasattr(own, "build") else models.name_for(model)
    return own if name is None else discovery.load(models.PACKAGE, name, what="model")


def untrained_like(
    model: nn.Module, seed: int = 0, *, images: Tensor | None = None, preset: str | None = None
) -> nn.Module:
    """Return an untrained network (random initialisation) with the same architecture.

    It is built from the network's `config` by the `build` that made it, or by the function of
    `--network` without a file of weights. It is in evaluation mode, with the same device and dtype.
    The global random state does not change. ValueError for a network that cannot be built again.

    Parameters
    ----------
    images  (B, C, H, W) in [0, 1], of which the first `NORMALISED` give the statistics of batch
            norm, as in the first steps of training; None: means 0 and variances 1.
    preset  one of `presets`; None: the network's own.
    """
    with seeded(seed):
        other = _another(model, preset)
    own = {name: value.shape for name, value in model.state_dict().items()}
    if own != {name: value.shape for name, value in other.state_dict().items()}:
        raise ValueError(
            f"a {_kind(model)} cannot be built anew: a new one has weights of other names or shapes"
        )
    like = like_of(model)
    other = other.to(like).eval()
    if images is not None:
        _normalise(other, images[:NORMALISED].to(like))
    return other


def _kind(model: nn.Module) -> str:
    own = getattr(model, "network", None)  # set by `capsviz.wrap`
    wrapped = type(model).__module__.startswith("capsviz.wrapping")
    return f"wrapped {type(own).__name__}" if wrapped else type(model).__name__


def _another(model: nn.Module, preset: str | None) -> nn.Module:
    """Build a network with the same architecture; ValueError if that is not possible."""
    build, anew = getattr(_file(model), "build", None), getattr(model, "anew", None)
    if build is not None and len(discovery.parameters(build)) > 1 and hasattr(model, "config"):
        config: dict[str, Any] = dict(model.config)  # type: ignore[arg-type]
        config |= {} if preset is None else {"preset": preset}
        return build(config.pop("image_shape"), config.pop("classes"), **config)
    if anew is not None:
        try:
            return anew()
        except ValueError as error:
            raise ValueError(f"a {_kind(model)} cannot be built anew: {error}") from error
    way = f"a `config`, and a `build` in the file of its class, {type(model).__module__}"
    if _kind(model).startswith("wrapped "):
        way = "a function that builds it, as --network FILE.py:FUNCTION names one"
    raise ValueError(f"a {_kind(model)} cannot be built anew: expected {way}")


@torch.no_grad()
def _normalise(network: nn.Module, images: Tensor) -> None:
    """Set batch norm statistics to those of these images, in batches of `BATCH`."""
    norms = [one for one in network.modules() if isinstance(one, nn.modules.batchnorm._BatchNorm)]
    before = [one.momentum for one in norms]
    for one in norms:
        one.reset_running_stats()
        one.momentum = None  # the mean of all batches
        one.train()
    for batch in images.split(BATCH) if norms else ():
        if len(batch) > 1:  # one image has no variance
            network(batch)
    for one, momentum in zip(norms, before, strict=True):
        one.momentum = momentum
        one.eval()


def controls(
    model: nn.Module, seed: int, images: Tensor | None = None, *, notes: list[str]
) -> Iterator[tuple[str, nn.Module]]:
    """Yield a name and an `untrained_like` network for each of `presets`.

    Names are "untrained", or "untrained (preset)". `images` are as for `untrained_like`. A network
    that cannot be built is left out, and the reason is added to `notes` once.
    """
    for preset in presets(model):
        of = f" ({preset})" if preset else ""
        try:
            yield UNTRAINED + of, untrained_like(model, seed, images=images, preset=preset)
        except ValueError as error:
            note = f"no untrained network{of}: {error}"
            if note not in notes:
                notes.append(note)
