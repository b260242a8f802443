"""Measures of `side_by_side`: what one network shows of an image, and reads of many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsviz.nn.quantity import words_of
from capsviz.tracing import (
    CHUNK_IMAGES,
    coupling_sd,
    measures,
    needs,
    trace,
)
from capsviz.tracing.many import require_all_to_all, winners
from capsviz.tracing.needs import routing_words


class Look(NamedTuple):
    """One image in one network; fields as of the analysis's `Result`."""

    words: str
    couplings: np.ndarray  # (types, J)
    effective: float
    effective_band: np.ndarray  # (2,)
    coupling_sd: float
    activations: np.ndarray  # (J,)
    uniform_activations: np.ndarray  # (J,)
    maps: np.ndarray | None  # (J, rows, columns)
    uniform_maps: np.ndarray | None  # (J, rows, columns)
    type_evidence: np.ndarray | None  # (types, J)
    uniform_type_evidence: np.ndarray | None  # (types, J)
    sums: np.ndarray  # (J,)
    uniform_sums: np.ndarray  # (J,)
    quantity: dict[str, str]
    extent_px: list[float] | None


class Survey(NamedTuple):
    """N images in one network."""

    read: np.ndarray  # (N,) class
    uniform: np.ndarray  # (N,) class with uniform couplings
    effective: np.ndarray  # (N,) parents, mean over capsules


def require(models, names: Sequence[str], parts: Sequence[str]) -> None:
    """ValueError for other than two networks, or one without the parts of a trace."""
    if len(models) != 2:
        raise ValueError(
            f"expected two networks with capsules, got {len(models)}: name them, as by "
            "--checkpoint digits --checkpoint digits-matrix"
        )
    for model, name in zip(models, names, strict=True):
        needs.require(model, parts, f"'{name}' cannot be set beside another: side-by-side")


def look(model, image: Tensor) -> Look:
    """An image (1, C, H, W) inside a network, and with uniform couplings."""
    keep = (*measures.INSIDE, "evidence")
    routed = trace(model, image, keep=keep)
    require_all_to_all(routed.couplings)
    uniform = trace(model, image, keep=keep, couplings="uniform")
    added, control = measures.evidence_of(routed), measures.evidence_of(uniform)
    own = routed.couplings[-1, 0]
    parents = measures.entropy(own).exp()
    return Look(
        words=routing_words(model),
        couplings=measures.by_type(own, routed.grid).numpy(),
        effective=float(parents.mean()),
        effective_band=np.quantile(parents.numpy(), [0.05, 0.95]),
        coupling_sd=float(coupling_sd(own)),
        activations=routed.lengths[0].float().numpy(),
        uniform_activations=uniform.lengths[0].float().numpy(),
        maps=added.maps,
        uniform_maps=control.maps,
        type_evidence=added.types,
        uniform_type_evidence=control.types,
        sums=added.sums,
        uniform_sums=control.sums,
        quantity=words_of(added.quantity),
        extent_px=None if added.maps is None else list(routed.extent),
    )


def survey(model, images: Tensor) -> Survey:
    """What a network reads of images (N, C, H, W), routed and with uniform couplings."""
    parts = []
    for some in images.split(CHUNK_IMAGES):
        routed = trace(model, some, keep=("couplings", "lengths"))
        uniform = trace(model, some, keep=("lengths",), couplings="uniform")
        parents = measures.entropy(routed.couplings[-1]).exp().mean(1)
        parts.append((winners(routed.lengths), winners(uniform.lengths), parents))
    return Survey(*(torch.cat(one).numpy() for one in zip(*parts, strict=True)))


def two_classes(activations: np.ndarray) -> list[int]:
    """The class that the first of K networks reads, and the next to it in any: of (K, J)."""
    first = int(activations[0].argmax())
    relative = activations / activations.max(1, keepdims=True).clip(1e-12)
    relative[:, first] = -1
    return [first, int(relative.max(0).argmax())]
