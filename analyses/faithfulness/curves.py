"""Curves and errors of maps, for `faithfulness`: what removing parts does to a class's score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from capsviz.analyses.faithfulness.maps import ROUTED, Explained, Maps
from capsviz.nn.images import like_of
from capsviz.statistics.comparison import compare_means, draw_resamples
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import mean_interval
from capsviz.tracing import scores

AT_A_TIME = 8  # images, each of which is given in a few hundred forms
PATCHES = 24  # that are removed of each image for infidelity
OF_ONE = 400  # where one image is all there is: of 24, infidelity is known to a factor of two
SIDE = 1 / 4  # of such a patch, of the image's side


def grid_of(steps: int) -> Tensor:
    """Return the shares (steps + 1,) that are removed or added: (k / steps)², 0 to 1."""
    return (torch.arange(steps + 1, dtype=torch.double) / steps).square()


def ranks(order: Tensor, generator: torch.Generator) -> Tensor:
    """Rank each of P parts of maps (B, P), 0 for the largest value; ties at random."""
    shuffled = torch.rand(order.shape, generator=generator).argsort(1)
    sorted_ = order.gather(1, shuffled).argsort(dim=1, descending=True, stable=True)
    return shuffled.gather(1, sorted_).argsort(1)


def curves(score: Callable[[Tensor], Tensor], rank: Tensor, shares: Tensor, present=True) -> Tensor:
    """Return scores when parts of an image are removed in the order of maps, and are there alone.

    Petsiuk, Das & Saenko 2018 (arXiv:1806.07421). Equal forms are scored once.

    Parameters
    ----------
    score    which of the parts are there (K, P) -> (K, Q).
    rank     (M, P) of M maps.
    shares   (S,) of the parts.
    present  (P,) False where removing a part changes nothing.

    Returns
    -------
    (Q, 2, M, S) double: deletion, insertion.
    """
    removed = rank[:, None] < (shares * rank.shape[1]).round()[:, None]  # (M, S, P)
    there = torch.stack([~removed, removed]) & present
    forms, which = there.flatten(0, 2).unique(dim=0, return_inverse=True)
    return score(forms).double()[which].T.reshape(-1, *there.shape[:3])


def of_pixels(model, images: Tensor, orders: Tensor, classes: Tensor, shares, generator) -> Tensor:
    """Return `curves` of scores and accuracy (2, 2, M, B, S); pixels are set to black.

    Parameters
    ----------
    images   (B, C, H, W), on the CPU.
    orders   (M, B, H, W) of M maps.
    classes  (B, K), of `outcome`.
    """
    rank = torch.stack([ranks(one.flatten(1), generator) for one in orders])

    def score(image: Tensor, classes: Tensor, there: Tensor) -> Tensor:
        return outcome(scores(model, image * there.view(-1, 1, *image.shape[1:])), classes)

    each = [
        curves(partial(score, image, classes[b]), rank[:, b], shares, (image != 0).any(0).flatten())
        for b, image in enumerate(images)
    ]
    return torch.stack(each, 3)


def outcome(activations: Tensor, classes: Tensor) -> Tensor:
    """Return the score of the first of K classes, and whether it is among the K largest: (N, 2)."""
    own = activations[:, classes[0]]
    right = (activations > own[:, None]).sum(1) < len(classes)
    return torch.stack([own, right.to(own)], 1)


def area(values: Tensor, shares: Tensor) -> Tensor:
    """Return the area under curves (..., S) over the shares (S,), by the trapezoidal rule."""
    return torch.trapezoid(values, shares)


def judged(model, images, classes, maps: Sequence[Maps], shares, generator):
    """Return curves (2, M, B, S) of the score and infidelity (M, B) of maps of B images."""
    orders = torch.stack([one.order for one in maps])
    drawn = of_pixels(model, images, orders, classes[:, None], shares, generator)[0]
    count = PATCHES if len(images) > 1 else OF_ONE
    masks = torch.stack([patches(count, tuple(images.shape[2:]), generator) for _ in images])
    contributions = torch.stack([one.contributions for one in maps])
    return drawn, infidelity(contributions, masks, lost(model, images, classes, masks))


def patches(count: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw random rectangles: (count, H, W) bool."""
    masks = torch.zeros(count, *shape, dtype=torch.bool)
    height, width = (max(1, round(SIDE * side)) for side in shape)
    top = torch.randint(shape[0] - height + 1, (count,), generator=generator)
    left = torch.randint(shape[1] - width + 1, (count,), generator=generator)
    for mask, r, c in zip(masks, top.tolist(), left.tolist(), strict=True):
        mask[r : r + height, c : c + width] = True
    return masks


def lost(model, images: Tensor, classes: Tensor, masks: Tensor) -> Tensor:
    """Return what the class loses when patches (B, K, H, W) are set to black: (B, K) double."""
    B, K = masks.shape[:2]
    explained, like = Explained(model), like_of(model)
    forms = torch.cat([images, (images[:, None] * ~masks[:, :, None]).flatten(0, 1)])
    with torch.no_grad():
        each = torch.cat([explained(some.to(like)).cpu() for some in forms.split(64)]).double()
    own = each[:B].gather(1, classes[:, None])
    return own - each[B:].view(B, K, -1)[torch.arange(B), :, classes]


def infidelity(contributions: Tensor, masks: Tensor, losses: Tensor) -> Tensor:
    """Return the share of what is lost with patches that maps leave unexplained: (M, B) in [0, 1].

    Yeh et al. 2019 (arXiv:1901.09392), with their optimal factor on each map, though none below 0,
    over the mean square of the losses. NaN for an image of which no patch changes anything.

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


def explained_classes(model, images: Tensor, labels: Tensor | None, target: str) -> Tensor:
    """Return the classes (B,) whose scores are explained; ValueError without a true class."""
    if target == "read":
        return scores(model, images).argmax(1)
    if labels is None:
        raise ValueError("the true class of this picture is not known: take --target read")
    return labels.cpu()


def means(values: Tensor, seed: int) -> Estimate:
    """Return means of (M, N) over N images, paired, by bootstrap; NaN for fewer than 2 images."""
    if values.shape[1] < 2:
        none = torch.full((len(values), 3), torch.nan).numpy()
        return Estimate(none[:, 0], none[:, 1:], values.shape[1])
    return compare_means(values.numpy(), draw_resamples(values.shape[1], seed=seed), shares=False)


def areas(names: list[str], drawn: Tensor, shares: Tensor, seed: int) -> dict[str, Any]:
    """Return the fields that results of many images share, of curves (2, M, N, S) of a score."""
    deletion, insertion = area(drawn, shares)
    gap = insertion - deletion
    routed = gap[names.index(ROUTED)] - gap if ROUTED in names else None
    return {
        "names": names,
        "shares": shares.numpy(),
        "curves": Estimate(*mean_interval(drawn.movedim(2, 0).numpy()), drawn.shape[2]),
        "deletion": means(deletion, seed),
        "insertion": means(insertion, seed),
        "gap": means(gap, seed),
        "routed_less": None if routed is None else means(routed, seed),
        "n": drawn.shape[2],
    }
