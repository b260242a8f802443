"""Curves and errors of maps, for `faithfulness`: what removing pixels does to a class's score."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

PATCHES = 24  # that are removed of each image for infidelity
OF_ONE = 400  # where one image is all there is: of 24, infidelity is known to a factor of two
SIDE = 1 / 4  # of such a patch, of the image's side


def grid_of(steps: int) -> Tensor:
    """Shares of the pixels (steps + 1,) that are removed or added: (k / steps)², 0 to 1."""
    return (torch.arange(steps + 1, dtype=torch.double) / steps).square()


def ranks(order: Tensor, generator: torch.Generator) -> Tensor:
    """Rank of each pixel of maps (B, H, W), 0 for the largest value; ties at random: (B, H W)."""
    flat = order.flatten(1)
    shuffled = torch.rand(flat.shape, generator=generator).argsort(1)
    sorted_ = flat.gather(1, shuffled).argsort(dim=1, descending=True, stable=True)
    return shuffled.gather(1, sorted_).argsort(1)


def curves(
    score: Callable[[Tensor], Tensor], images: Tensor, rank: Tensor, classes: Tensor, shares: Tensor
) -> Tensor:
    """Score of the class when pixels are removed, and when they alone are there.

    Petsiuk, Das & Saenko 2018 (arXiv:1806.07421): pixels are set to black, or shown on black, in
    the order of their rank. Equal images are scored once.

    Parameters
    ----------
    score    images (N, C, H, W) -> (N, J), on the CPU.
    images   (B, C, H, W), on the CPU.
    rank     (M, B, H W) of M maps.
    classes  (B,).
    shares   (S,) of the pixels.

    Returns
    -------
    (2, M, B, S) double: deletion, insertion.
    """
    (M, B, P), S = rank.shape, len(shares)
    counts = (shares * P).round()
    removed = rank[..., None] < counts  # (M, B, P, S)
    masks = torch.stack([~removed, removed]).movedim(-1, 3).view(2, M, B, S, 1, *images.shape[2:])
    numbers, places = {}, torch.empty(2, M, B, S, dtype=torch.long)
    distinct = []
    for b in range(B):
        some = (images[b] * masks[:, :, b]).flatten(0, 2)
        for k, one in enumerate(some.numpy()):
            place = numbers.setdefault((b, one.tobytes()), len(distinct))
            if place == len(distinct):
                distinct.append(some[k])
            places[:, :, b].view(2, M, S)[k // (M * S), k // S % M, k % S] = place
    scored = score(torch.stack(distinct)).double()
    return scored[places, classes[None, None, :, None]]


def area(values: Tensor, shares: Tensor) -> Tensor:
    """Area under curves (..., S) over the shares (S,), by the trapezoidal rule: (...)."""
    return torch.trapezoid(values, shares)


def patches(count: int, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Random rectangles: (count, H, W) bool."""
    masks = torch.zeros(count, *shape, dtype=torch.bool)
    height, width = (max(1, round(SIDE * side)) for side in shape)
    top = torch.randint(shape[0] - height + 1, (count,), generator=generator)
    left = torch.randint(shape[1] - width + 1, (count,), generator=generator)
    for mask, r, c in zip(masks, top.tolist(), left.tolist(), strict=True):
        mask[r : r + height, c : c + width] = True
    return masks


def lost(
    values: Callable[[Tensor], Tensor], images: Tensor, classes: Tensor, masks: Tensor
) -> Tensor:
    """What the explained number loses when patches (B, K, H, W) are set to black: (B, K) double."""
    B, K = masks.shape[:2]
    without = images[:, None] * ~masks[:, :, None]
    each = values(torch.cat([images, without.flatten(0, 1)])).double()
    own = each[:B].gather(1, classes[:, None])
    return own - each[B:].view(B, K, -1)[torch.arange(B), :, classes]


def infidelity(contributions: Tensor, masks: Tensor, losses: Tensor) -> Tensor:
    """Share of what is lost with patches that maps leave unexplained, in [0, 1]: (M, B).

    Yeh et al. 2019 (arXiv:1901.09392), with their optimal factor on each map, though none below 0,
    over the mean square of the losses: 0 for a map that foretells each loss up to a factor, 1 for
    one of nothing, or of the wrong sign. A map at random has less: it foretells that patches lose
    something. NaN for an image of which no patch changes anything.

    Parameters
    ----------
    contributions  (M, B, H, W).
    masks          (B, K, H, W).
    losses         (B, K), of `lost`.
    """
    foretold = torch.einsum("mbhw,bkhw->mbk", contributions, masks.double())
    squares = foretold.square().sum(2) * losses.square().sum(1)
    product = (foretold * losses).sum(2).clamp_min(0)
    explained = torch.where(squares > 0, product.square() / squares, 0.0)
    return torch.where(losses.square().sum(1) > 0, 1 - explained.clamp(0, 1), torch.nan)
