"""Mixtures of two images: couplings, children or poses of some capsules are another image's."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from capsviz.discovery import unknown
from capsviz.tracing import CHUNK_IMAGES, from_children, trace
from capsviz.tracing.many import couples, last_couplings, require_all_to_all
from capsviz.tracing.needs import missing, require
from capsviz.tracing.network import abilities, below_classes, check_look

COUPLINGS, CHILDREN, POSES = OF = ("couplings", "children", "poses")
LEAST = 4  # couples: parts are ranked on one half of them, and measured on the other
READINGS = ("own", "partner", "neither", "own_change", "partner_change")  # fields of results


class Layer(NamedTuple):
    """What a routed layer has of N images."""

    of: str  # what is exchanged
    number: int  # of the layer, as an index
    images: Tensor  # (N, C, H, W)
    children: Tensor | None  # (N, I, D); None: they cannot be replaced, and need not be
    active: Tensor | None  # (N, I)
    couplings: Tensor | None  # (N, I, J) of the last iteration; None: they are not exchanged
    read: Tensor  # (N,) class that each is read as, routed by itself
    grid: tuple[int, int, int] | None

    @property
    def count(self) -> int:
        """I, the children."""
        one = self.couplings if self.children is None else self.children
        return one.shape[1]


def check(model, images: Tensor, of: str, layer: int | None) -> int:
    """The layer's number as an index; ValueError for what cannot be exchanged, in one line.

    One image is traced for it at most.
    """
    if of not in OF:
        raise ValueError(unknown("part of a network", of, list(OF)))
    check_look(model, -1 if layer is None else layer, None)
    number = below_classes(model, layer)
    if of != COUPLINGS or number is not None:
        require(model, ("from_children",), f"exchanging {of if number is None else 'in a layer'}")
    number = -1 if number is None else number
    if of == COUPLINGS:
        require_all_to_all(rounds(model, images, number))
    return number


def rounds(model, images: Tensor, number: int) -> Tensor:
    """Own couplings (R, 1, ...) of the first image."""
    return trace(model, images[:1], layer=number, keep=("couplings",)).couplings


def layer_of(model, images: Tensor, of: str, number: int) -> Layer:
    """Children, couplings if they are exchanged, and what is read, of images (N, C, H, W)."""
    own, children, active = None, None, None
    if of == COUPLINGS:
        own, _, read = last_couplings(model, images, layer=number)
    if not missing(model, ("from_children",)):
        traced = trace(model, images, layer=number, keep=("children", "child_activations"))
        children, active = traced.children, traced.child_activations
        read = from_children(model, children, active, layer=number).argmax(1)
    return Layer(of, number, images, children, active, own, read, abilities(model).grids[number])


def pairs_of(read: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images and their unlike ones (P,): of couple c the pairs 2 c and 2 c + 1.

    ValueError for fewer than `LEAST` couples.
    """
    pairs = couples(read, generator)
    if len(pairs) < LEAST:
        raise ValueError(
            f"{len(read)} images make {len(pairs)} couples that the network reads as unlike "
            f"classes, expected at least {LEAST}: take more images, of several classes"
        )
    return pairs.flatten(), pairs.flip(1).flatten()


def mixed(model, layer: Layer, first: Tensor, other: Tensor, chosen: Tensor) -> Tensor:
    """Activations (P, J) of images `first` (P,) with the chosen children's part of `other` (P,).

    Of poses the direction is the other's, the length, or where there is one beside it the
    activation, the image's own.

    Parameters
    ----------
    chosen  bool (P, I), or (I,) for all pairs.
    """
    chosen, parts = chosen.expand(len(first), layer.count), []
    for rows in torch.arange(len(first)).split(CHUNK_IMAGES):
        a, b, some = first[rows], other[rows], chosen[rows, :, None]
        if layer.of == COUPLINGS:
            parts.append(under(model, layer, a, torch.where(some, *_of(layer.couplings, b, a))))
            continue
        children, active = layer.children[a], layer.active[a]
        if layer.of == CHILDREN:
            others = layer.children[b]
            active = torch.where(some[..., 0], layer.active[b], active)
        else:
            others = posed(children, layer.children[b], active)
        children = torch.where(some, others, children)
        parts.append(from_children(model, children, active, layer=layer.number))
    return torch.cat(parts)


def under(model, layer: Layer, rows: Tensor, couplings) -> Tensor:
    """Activations (P, J) of images (P,) under couplings (P, I, J), or a list of one a round."""
    if layer.children is None:
        return trace(model, layer.images[rows], keep=("lengths",), couplings=couplings).lengths
    return from_children(
        model, layer.children[rows], layer.active[rows], layer=layer.number, couplings=couplings
    )


def posed(own: Tensor, others: Tensor, active: Tensor) -> Tensor:
    """Children (P, I, D) with others' poses and their own lengths.

    Where activations (P, I) are no lengths of the children, lengths are a matter of the pose.
    """
    lengths = own.norm(dim=2)
    if not torch.allclose(lengths, active, rtol=1e-3, atol=1e-4):
        return others
    return normalize(others, dim=2) * lengths[..., None]


def readings(after: Tensor, before: Tensor, own: Tensor, partner: Tensor, read: Tensor) -> Tensor:
    """(5, P) in the order of `READINGS`, of activations (P, J) after and before an exchange.

    Parameters
    ----------
    own, partner  (P,) classes of the images.
    read          (P,) class that is read after it, -1 for none.
    """
    changes = [(after - before).gather(1, one[:, None])[:, 0] for one in (own, partner)]
    shares = [read == own, read == partner, (read != own) & (read != partner)]
    return torch.stack([*(one.to(after) for one in shares), *changes])


def _of(values: Tensor, *rows: Tensor) -> list[Tensor]:
    return [values[some] for some in rows]
