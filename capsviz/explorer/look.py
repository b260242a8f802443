"""What the page computes: from one image and the settings of its controls to numbers. No Gradio."""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsviz import tracing
from capsviz.analyses.routing import measure
from capsviz.tracing import evidence
from capsviz.tracing.reconstruction import distance as distance_of
from capsviz.transforms.augment import to_uint8


class Intervention(NamedTuple):
    """What is changed inside the routing; these change nothing."""

    couplings: str | None = None  # what replaces them, one of `tracing.INTERVENTIONS`
    iterations: int | None = None  # instead of the network's own
    off: int | None = None  # capsule type whose capsules are set to zero

    @property
    def words(self) -> str:
        """What is changed, for a figure."""
        parts = []
        if self.couplings is not None:
            parts.append(f"couplings {self.couplings}")
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
    couplings: np.ndarray  # (R, types, J) mean over the places of a type; without a grid (R, I, J)
    entropy_nats: np.ndarray  # (R, I) of each capsule's couplings over classes
    maps: np.ndarray | None  # (J, rows, columns) what each place adds, last; None: no places
    extent_px: list[float] | None  # left, right, bottom, top of the maps on the image
    reconstruction: np.ndarray | None  # (C, H, W) uint8, of the longest capsule
    distance: float | None = None  # L2, of that to the image
    coupling_sd: float = 0.0  # of the couplings of the last iteration about even ones


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
    types = types_of(model)
    if not 0 <= kind < types:
        raise ValueError(f"capsule type {kind}: expected 0 to {types - 1}")
    kept = torch.ones(types, 1)
    kept[kind] = 0
    _, rows, columns = model.grid
    kept = kept.repeat_interleave(rows * columns, 0)
    encode, other = model.encode, copy.copy(model)

    def without(images: Tensor):
        encoded = encode(images)
        return encoded._replace(poses=encoded.poses * kept.to(images))

    other.encode = without
    return other


def types_of(model) -> int:
    """How many capsule types can be switched off: none where children have no grid."""
    if model.grid is None or not hasattr(model, "encode"):
        return 0
    return model.grid[0]


def look(model, image: Tensor, intervention: Intervention = AS_TRAINED) -> Seen:
    """An image (1, C, H, W) in [0, 1] inside the network: all that the page shows of it."""
    traced = tracing.trace(
        without_type(model, intervention.off),
        image,
        keep=(*measure.INSIDE, "reconstruction"),
        couplings=intervention.couplings,
        iterations=intervention.iterations,
    )
    own = traced.couplings
    if intervention.couplings is not None:
        own = tracing.trace(model, image, keep=("couplings",)).couplings
    decoded, maps = traced.reconstruction, None
    if evidence.has_places(traced.grid):
        factors, poses = traced.factors[-1], traced.poses[-1]
        maps = evidence.additive_map(traced.votes, factors, poses, traced.grid)[0].numpy()
    return Seen(
        image=to_uint8(image[0]),
        lengths=traced.lengths[0].float().numpy(),
        poses=traced.poses[-1, 0].float().numpy(),
        couplings=measure.by_type(traced.couplings[:, 0], traced.grid).numpy(),
        entropy_nats=measure.entropy(traced.couplings[:, 0]).numpy(),
        maps=maps,
        extent_px=None if maps is None else measure.extent(model),
        reconstruction=None if decoded is None else to_uint8(decoded[0]),
        distance=None if decoded is None else float(distance_of(traced.images, decoded)[0]),
        coupling_sd=float(
            tracing.coupling_sd(traced.couplings[-1], tracing.even_couplings(own))[0]
        ),
    )
