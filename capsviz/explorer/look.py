"""Trace an image through a network with an intervention in its routing. No Gradio."""

import copy
import functools
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsviz import tracing
from capsviz.tracing import measures
from capsviz.tracing.many import require_all_to_all
from capsviz.tracing.outputs import distance as distance_of
from capsviz.tracing.rerouting import chunks
from capsviz.transforms.augment import to_uint8

ANOTHER = "of another image"  # couplings, as an alternative to `tracing.INTERVENTIONS`


class Intervention(NamedTuple):
    """A change of the routing; the defaults change nothing."""

    couplings: str | None = None  # replacement: one of `tracing.INTERVENTIONS`, or `ANOTHER`
    iterations: int | None = None  # instead of the network's own
    off: int | None = None  # capsule type whose capsules are set to zero
    donor: tuple[int, int] | None = None  # class and index of the other test image

    @property
    def words(self) -> str:
        """The changes in words, for a figure."""
        of = "" if self.donor is None else f" (class {self.donor[0]}, number {self.donor[1]})"
        parts = {
            f"couplings {self.couplings}{of}": self.couplings,
            f"iterations: {self.iterations}": self.iterations,
            f"type {self.off} off": self.off,
        }
        return ", ".join(text for text, what in parts.items() if what is not None) or "as trained"


AS_TRAINED = Intervention()


class ImageTrace(NamedTuple):
    """One image inside a capsule network."""

    image: np.ndarray  # (C, H, W) uint8
    lengths: np.ndarray  # (J,)
    poses: np.ndarray  # (J, E) after the last iteration
    couplings: np.ndarray  # (R, types, J) mean over a type's positions; without a grid (R, I, J)
    effective_classes: float  # effective number of parents in the last iteration, mean of capsules
    evidence: measures.Evidence  # for each class, by position or by capsule type
    extent_px: tuple[float, ...] | None  # left, right, bottom, top of evidence maps on the image
    reconstruction: np.ndarray | None  # (C, H, W) uint8, from the longest capsule
    distance: float | None  # L2 distance between reconstruction and image
    coupling_sd: float  # standard deviation of the last iteration's couplings about uniform
    activations: np.ndarray  # (R, J) after each iteration

    @property
    def predicted(self) -> int:
        """The class of the longest capsule."""
        return int(self.lengths.argmax())


def without_type(model, kind: int | None):
    """Return the same network with the capsules of one type, and so their votes, set to zero.

    None: no type. ValueError for a type that does not exist.
    """
    if kind is None:
        return model
    grid, types = tracing.abilities(model).grid, types_of(model)
    if grid is None or not 0 <= kind < types:
        expected = f"expected 0 to {types - 1}" if types else "this network has none to switch off"
        raise ValueError(f"capsule type {kind}: {expected}")
    kept = torch.ones(grid)
    kept[kind] = 0
    encode, other = model.encode, copy.copy(model)

    def without(images: Tensor):
        encoded, left = encode(images), kept.flatten().to(images)
        active = encoded.activations
        return encoded._replace(
            poses=encoded.poses * left[:, None],
            activations=None if active is None else active * left,
        )

    other.encode = without
    return other


@functools.lru_cache(maxsize=8)
def types_of(model) -> int:
    """Return the number of capsule types that can be switched off.

    It is 0 if the capsules that vote for the classes have no grid.
    """
    able = tracing.abilities(model)
    if able.grid is None or not able.encodes:
        return 0
    ((_, children, _),) = chunks(model, torch.zeros(1, *model.config["image_shape"]))
    return able.grid[0] if children.shape[1] == prod(able.grid) else 0


def starts_uniform(model, image: Tensor) -> bool:
    """Return whether one routing iteration gives the scores of uniform couplings.

    It is tested on an image (1, C, H, W). False for a network that refuses either.
    """
    ways = AS_TRAINED._replace(iterations=1), AS_TRAINED._replace(couplings="uniform")
    try:
        one, uniform = (look(model, image, how).lengths for how in ways)
    except ValueError:
        return False
    return np.allclose(one, uniform, atol=1e-5)


def replacing(model, how: Intervention, donor: Tensor | None) -> str | Tensor | None:
    """Return the couplings that replace the network's own, as `tracing.trace` takes them.

    For `ANOTHER`, they are those of the image `donor` (1, C, H, W) in the last iteration.
    ValueError if it is missing, or if not every capsule is coupled to every class.
    """
    if how.couplings != ANOTHER:
        return how.couplings
    if donor is None:
        raise ValueError("couplings of another image: expected that image, got none")
    own = tracing.trace(model, donor, keep=("couplings",)).require("couplings")
    require_all_to_all(own)
    return own[-1]


def look(
    model, image: Tensor, intervention: Intervention = AS_TRAINED, donor: Tensor | None = None
) -> ImageTrace:
    """Trace an image (1, C, H, W) in [0, 1], and return all that the page shows of it.

    `donor` is the image, of the same shape, whose couplings `ANOTHER` takes.
    """
    traced = tracing.trace(
        without_type(model, intervention.off),
        image,
        keep=(*measures.INSIDE, "evidence", "reconstruction"),
        couplings=replacing(model, intervention, donor),
        iterations=intervention.iterations,
    )
    routed, decoded = traced.require("couplings"), traced.reconstruction
    return ImageTrace(
        image=to_uint8(image[0]),
        lengths=traced.require("lengths")[0].float().numpy(),
        poses=traced.require("poses")[-1, 0].float().numpy(),
        couplings=measures.by_type(routed[:, 0], traced.grid).numpy(),
        effective_classes=float(measures.entropy(routed[-1, 0]).exp().mean()),
        evidence=measures.evidence_of(traced),
        extent_px=traced.extent,
        reconstruction=None if decoded is None else to_uint8(decoded[0]),
        distance=None if decoded is None else float(distance_of(traced.images, decoded)[0]),
        coupling_sd=float(tracing.coupling_sd(routed[-1])[0]),
        activations=traced.require("activations")[:, 0].float().numpy(),
    )
