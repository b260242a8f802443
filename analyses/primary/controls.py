"""Controls for `primary`: which capsules to show alone, and what replaces the couplings."""

from __future__ import annotations

import torch

from capsviz.experiments.primary_decoder import decode, look
from capsviz.nn.functional import reconstruction_loss

ALL, SHUFFLED, UNIFORM, RETRAINED, STRONGEST, RANDOM, NONE = CONDITIONS = (
    "all capsules",
    "couplings shuffled",
    "couplings uniform",
    "trained with uniform couplings",
    "single capsules, the most coupled",
    "single capsules, at random",
    "no capsule",
)


def strongest(strength, grid: tuple[int, int, int] | None, count: int):
    """Capsules of the highest strength, no two of one type or at one place, if there are several.

    Parameters
    ----------
    strength  (N, I).
    grid      (types, rows, columns), i = (type * rows + row) * columns + column; None: no grid.
    count     how many; fewer are found where there are fewer types or places.

    Returns
    -------
    (N, K) capsule numbers, the strongest first.
    """
    if count < 1:
        raise ValueError(f"expected at least 1 capsule, got {count}")
    if grid is None:
        return strength.topk(min(count, strength.shape[1]), dim=1).indices
    types, rows, columns = grid
    places = rows * columns
    left = strength.clone().view(len(strength), types, places)
    image, chosen = torch.arange(len(strength)), []
    for _ in range(min(count, *(size for size in (types, places) if size > 1), types * places)):
        best = left.flatten(1).argmax(1)
        kind, place = best // places, best % places
        left[image, kind, place] = -torch.inf
        if types > 1 and places > 1:
            left[image, kind] = -torch.inf
            left[image, :, place] = -torch.inf
        chosen.append(best)
    return torch.stack(chosen, 1)


def errors(model, decoders, images, *, capsules: int, generator: torch.Generator):
    """SSE of a batch (N, C, H, W) under every condition, and how far the couplings spread.

    Returns
    -------
    (N, M) float64, and (N,) the standard deviation of J c_ij over the capsules of each image.
    """
    traced = look(model, images)
    scaled = traced.scaled()
    draws = torch.rand(2, *traced.couplings.shape, generator=generator)
    shuffled = traced.couplings.gather(1, draws[0].argsort(1))

    def error(inputs, decoder="routed"):
        return reconstruction_loss(images, decode(decoders[decoder], inputs)).double()

    def alone(strength):
        chosen = strongest(strength, model.grid, capsules)
        masks = (torch.zeros(strength.shape).scatter(1, one[:, None], 1) for one in chosen.T)
        return torch.stack([error(scaled * mask[..., None]) for mask in masks]).mean(0)

    values = {
        ALL: error(scaled),
        SHUFFLED: error(traced.scaled(shuffled)),
        UNIFORM: error(traced.primary),
        RETRAINED: error(traced.primary, "uniform"),
        STRONGEST: alone(traced.couplings),
        RANDOM: alone(draws[1]),
        NONE: error(torch.zeros_like(scaled)),
    }
    spread = (traced.classes * traced.couplings).std(1)
    return torch.stack([values[name] for name in CONDITIONS], 1), spread.double()
