"""What the page computes: from one image and the settings of its controls to numbers. No Gradio."""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from analyses import _routing_measures as measure
from capsviz import tracing
from capsviz.augment import to_uint8


class Intervention(NamedTuple):
    """What is changed inside the routing; these change nothing."""

    uniform: bool = False  # each capsule spreads what it gives evenly over the classes
    iterations: int | None = None  # instead of the network's own
    off: int | None = None  # capsule type whose capsules are set to zero

    @property
    def words(self) -> str:
        """What is changed, for a figure."""
        parts = []
        if self.uniform:
            parts.append("couplings uniform")
        if self.iterations is not None:
            parts.append(f"iterations: {self.iterations}")
        if self.off is not None:
            parts.append(f"type {self.off} off")
        return ", ".join(parts) or "as trained"


AS_TRAINED = Intervention()


class Seen(NamedTuple):
    """One image inside a capsule network."""

    image: np.ndarray  # (C, H, W) uint8
    lengths: np.ndarray  # (J,)
    poses: np.ndarray  # (J, E) after the last iteration
    couplings: np.ndarray  # (R, types, J) mean over the places of a type
    entropy_nats: np.ndarray  # (R, I) of each capsule's couplings over classes
    maps: np.ndarray  # (J, rows, columns) what each place adds, last iteration
    extent_px: list[float]  # left, right, bottom, top of the maps on the image
    reconstruction: np.ndarray | None  # (C, H, W) uint8, of the longest capsule


def without_type(model, kind: int | None):
    """The same network, its weights shared, with the primary capsules of one type set to zero.

    Zero capsules cast zero votes: they add nothing to any class and agree with none, whatever their
    couplings. None gives the network itself.

    Raises
    ------
    ValueError  for a type that is not there.
    """
    if kind is None:
        return model
    types, rows, columns = model.grid
    if not 0 <= kind < types:
        raise ValueError(f"capsule type {kind}: expected 0 to {types - 1}")
    shown = torch.ones(types, 1)
    shown[kind] = 0
    encode = model.encode
    other = copy.copy(model)
    other.encode = lambda images: (
        encode(images) * shown.repeat_interleave(rows * columns, 0).to(images)
    )
    return other


def look(model, image: Tensor, intervention: Intervention = AS_TRAINED) -> Seen:
    """An image (1, C, H, W) in [0, 1] inside the network: all that the page shows of it."""
    model = without_type(model, intervention.off)
    like = next(model.parameters())
    options = {"keep": (*measure.INSIDE, "reconstruction"), "iterations": intervention.iterations}
    with tracing.inference(model):
        if intervention.uniform:
            own = model.look(image.to(like), keep=("couplings",))["couplings"]
            options["couplings"] = tracing.even_couplings(own).to(like)
        found = model.look(image.to(like), **options)
    seen = {name: value.float().cpu() for name, value in found.items()}
    couplings, poses, made = seen["couplings"], seen["poses"], seen.get("reconstruction")
    maps = measure.additive_map(seen["votes"], couplings[-1], poses[-1], model.grid)[0]
    return Seen(
        image=to_uint8(image[0]),
        lengths=seen["lengths"][0].numpy(),
        poses=poses[-1, 0].numpy(),
        couplings=measure.by_type(couplings[:, 0], model.grid).numpy(),
        entropy_nats=measure.entropy(couplings[:, 0]).numpy(),
        maps=maps.numpy(),
        extent_px=measure.extent(model),
        reconstruction=None if made is None else to_uint8(made[0]),
    )
