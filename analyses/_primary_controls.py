"""Controls for `primary`: which capsules to show alone, and what replaces the couplings."""

from __future__ import annotations

import torch

from capsviz.functional import reconstruction_loss
from capsviz.primary_decoder import decode, look

ALL, SHUFFLED, UNIFORM, RETRAINED, STRONGEST, RANDOM, NONE = CONDITIONS = (
    "all capsules",
    "couplings shuffled",
    "couplings uniform",
    "trained with uniform couplings",
    "single capsules, the most coupled",
    "single capsules, at random",
    "no capsule",
)


def strongest(strength, grid: tuple[int, int, int], count: int):
    """Capsules of the highest strength, no two of one type or at one place.

    Parameters
    ----------
    strength  (N, I).
    grid      (types, rows, columns), i = (type * rows + row) * columns + column.
    count     how many; fewer are found where there are fewer types or places.

    Returns
    -------
    (N, K) capsule numbers, the strongest first.
    """
    if count < 1:
        raise ValueError(f"expected at least 1 capsule, got {count}")
    types, rows, columns = grid
    left = strength.clone().view(len(strength), types, rows * columns)
    image, found = torch.arange(len(strength)), []
    for _ in range(min(count, types, rows * columns)):
        best = left.flatten(1).argmax(1)
        kind, place = best // (rows * columns), best % (rows * columns)
        left[image, kind] = -torch.inf
        left[image, :, place] = -torch.inf
        found.append(best)
    return torch.stack(found, 1)


def errors(model, decoders, images, *, capsules: int, generator: torch.Generator):
    """SSE of a batch (N, C, H, W) under every condition, and how far the couplings spread.

    Returns
    -------
    (N, M) float64, and (N,) the standard deviation of J c_ij over the capsules of each image.
    """
    seen = look(model, images)
    scaled = seen.scaled()
    draws = torch.rand(2, *seen.couplings.shape, generator=generator)
    shuffled = seen.couplings.gather(1, draws[0].argsort(1))

    def error(inputs, decoder="routed"):
        return reconstruction_loss(images, decode(decoders[decoder], inputs)).double()

    def alone(strength):
        chosen = strongest(strength, model.grid, capsules)
        masks = (torch.zeros(strength.shape).scatter(1, one[:, None], 1) for one in chosen.T)
        return torch.stack([error(scaled * mask[..., None]) for mask in masks]).mean(0)

    found = {
        ALL: error(scaled),
        SHUFFLED: error(seen.scaled(shuffled)),
        UNIFORM: error(seen.primary),
        RETRAINED: error(seen.primary, "uniform"),
        STRONGEST: alone(seen.couplings),
        RANDOM: alone(draws[1]),
        NONE: error(torch.zeros_like(scaled)),
    }
    spread = (seen.classes * seen.couplings).std(1)
    return torch.stack([found[name] for name in CONDITIONS], 1), spread.double()
