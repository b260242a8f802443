"""Collect couplings of many images, and draw pairs of images, for analyses that compare them."""

from functools import partial
from math import prod

import torch
from torch import Tensor

from capsviz.statistics.words import TIE
from capsviz.tracing.forward import CHUNK_IMAGES, fit_at_a_time, trace
from capsviz.tracing.interventions import even_couplings

ATTEMPTS = 100  # to separate pairs of images with equal predictions
MAX_GROUPS = 64  # of children without positions


def last_couplings(
    model, images: Tensor, *, layer: int = -1, iterations: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return couplings (N, I, J) of the last iteration, uniform ones (I, J), and predictions (N,).

    Predictions are the most active parents of the layer. `iterations` replaces the network's own.
    """
    own, predicted = [], []
    for batch in images.split(CHUNK_IMAGES):
        traced = trace(
            model, batch, layer=layer, iterations=iterations, keep=("couplings", "lengths")
        )
        couplings = traced.require("couplings")
        require_all_to_all(couplings)
        own.append(couplings[-1].clone())
        predicted.append(traced.require("lengths").argmax(1))
        even = even_couplings(couplings)
    return torch.cat(own), even, torch.cat(predicted)


class OwnCouplings:
    """Couplings of the last iteration of N images, indexed by row.

    If they exceed `CHUNK_BYTES`, they are traced again each time. `even` are uniform couplings
    (I, J), `predicted` the predictions (N,).
    """

    def __init__(self, model, images: Tensor, *, iterations: int | None = None):
        self.images, self.kept = images, None
        self.trace = partial(trace, model, iterations=iterations)
        one, self.even, _ = last_couplings(model, images[:1], iterations=iterations)
        self.at_a_time = fit_at_a_time(one)
        if len(images) <= self.at_a_time:
            self.kept, _, self.predicted = last_couplings(model, images, iterations=iterations)
        else:
            self.predicted = self.trace(images, keep=("lengths",)).require("lengths").argmax(1)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Return couplings (B, I, J) of rows (B,)."""
        if self.kept is not None:
            return self.kept[rows]
        some, places = rows.unique(return_inverse=True)
        return self.trace(self.images[some], keep=("couplings",)).require("couplings")[-1][places]

    def mean(self, rows: Tensor) -> Tensor:
        """Return mean couplings (I, J) of rows (B,)."""
        total = torch.zeros_like(self.even, dtype=torch.double)
        for part in rows.split(min(self.at_a_time, CHUNK_IMAGES)):
            total += self[part].sum(0)
        return (total / len(rows)).to(self.even)


def winners(activations: Tensor) -> Tensor:
    """Return the class (...) of the largest activation (..., J); -1 for a tie."""
    largest, classes = activations.topk(min(2, activations.shape[-1]))
    first, second = largest[..., 0], largest[..., 1:]
    tied = (first[..., None] - second <= TIE * first.abs()[..., None]).any(-1)
    return torch.where(tied, -1, classes[..., 0])


def require_all_to_all(couplings: Tensor) -> None:
    """Raise ValueError for couplings of a convolutional layer, whose parents see some children."""
    if couplings.dim() != 4:
        raise ValueError(
            "couplings are exchanged child by child, expected a layer in which all parents see all "
            f"children, got couplings of the shape {tuple(couplings.shape)}"
        )


def couples(predicted: Tensor, generator: torch.Generator) -> Tensor:
    """Return random disjoint pairs (C, 2) of images with different predictions."""
    order = torch.randperm(len(predicted), generator=generator)
    pairs = order[: len(order) // 2 * 2].view(-1, 2)
    for _ in range(ATTEMPTS):
        equal = predicted[pairs[:, 0]] == predicted[pairs[:, 1]]
        if not equal.any():
            break
        others = (~equal).nonzero().flatten()
        some = others[torch.randperm(len(others), generator=generator)[: int(equal.sum())]]
        again = torch.cat([equal.nonzero().flatten(), some])
        drawn = pairs[again].flatten()
        drawn = drawn[torch.randperm(len(drawn), generator=generator)].view(-1, 2)
        if (predicted[drawn[:, 0]] == predicted[drawn[:, 1]]).sum() <= equal.sum():
            pairs[again] = drawn
    return pairs[predicted[pairs[:, 0]] != predicted[pairs[:, 1]]]


def of_like_class(predicted: Tensor) -> Tensor:
    """Return for each image (N,) the next one with the same prediction, or itself."""
    following = torch.arange(len(predicted))
    for k in predicted.unique():
        places = (predicted == k).nonzero().flatten()
        following[places] = places.roll(-1)
    return following


def groups(grid: tuple[int, int, int] | None, I: int) -> dict[str, Tensor]:
    """Return masks bool (G, I) of groups of I children, by "types" and by "positions".

    A kind with a single group is left out. Children without a grid, or more than `MAX_GROUPS` at a
    single position, are instead divided into at most `MAX_GROUPS` groups of consecutive "children".
    """
    each = torch.arange(I)
    if grid is None or (prod(grid[1:]) == 1 and I > MAX_GROUPS):
        numbers = {"children": each * min(I, MAX_GROUPS) // I}
    else:
        places = prod(grid[1:])
        numbers = {"types": each // places, "positions": each % places}
    kinds = {kind: torch.arange(int(of.max()) + 1)[:, None] == of for kind, of in numbers.items()}
    return {kind: rows for kind, rows in kinds.items() if len(rows) > 1}
