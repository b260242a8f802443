"""Measures of `transplant`: couples of images, and passes with replaced couplings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsviz.statistics.comparison import compare_means, compare_shares
from capsviz.statistics.estimate import Estimate
from capsviz.tracing import (
    CHUNK_IMAGES,
    control_couplings,
    coupling_sd,
    evaluating,
    routes_again,
    under_couplings,
)
from capsviz.tracing.many import couples, last_couplings, of_like_class, winners
from capsviz.tracing.record import NotFiniteError
from capsviz.tracing.rerouting import chunks

EVEN = 1e-6  # relative to uniform couplings: a standard deviation below it is rounding
DOSED_IMAGES = 64  # at a time: each has couplings for every condition and dose


class Outcomes(NamedTuple):
    """P pairs under the K conditions, in their order; couple c is the pairs 2 c and 2 c + 1."""

    own: Tensor  # (K, P) bool: classified as the recipient
    partner: Tensor  # (K, P) bool: classified as the other-class donor
    tied: Tensor  # (K, P) bool: no class is ahead of all others
    own_activation: Tensor  # (K, P)
    partner_activation: Tensor  # (K, P)
    coupling_sd: Tensor  # (K, P) of couplings about uniform ones


def transplant(
    model, images: Tensor, *, iterations: int | None = None, seed: int, progress=iter
) -> Outcomes:
    """Return outcomes of images (N, C, H, W) that have donors of another and of their own class."""
    own, even, read = last_couplings(model, images, iterations=iterations)
    generator, others = (torch.Generator().manual_seed(seed + k) for k in range(2))
    voting, partner = pairs_of(read, generator)
    like = of_like_class(read)[voting]
    mean = own.mean(0)
    parts = []
    for rows in progress(torch.arange(len(voting)).split(CHUNK_IMAGES)):
        here = voting[rows]
        replaced = (
            own[here],
            own[partner[rows]],
            own[like[rows]],
            mean.expand(len(rows), *mean.shape),
            control_couplings("shuffled", own[None, here], generator)[-1],
            control_couplings("matched", own[None, here], generator)[-1],
            even.expand(len(rows), *even.shape),
            control_couplings("shuffled", own[None, partner[rows]], others)[-1],
        )
        said = under_couplings(model, images[here], replaced, iterations=iterations)
        sd = torch.stack([coupling_sd(one) for one in replaced])
        parts.append((*_outcome(said, read[here], read[partner[rows]]), sd))
    return Outcomes(*(torch.cat(values, 1) for values in zip(*parts, strict=True)))


class Dosed(NamedTuple):
    """P pairs under K conditions and D doses; couple c is the pairs 2 c and 2 c + 1."""

    own: Tensor  # (K, D, P) bool: classified as the recipient
    partner: Tensor  # (K, D, P) bool: classified as the donor
    deviation: Tensor  # (K, P) root mean square deviation from uniform at dose 1
    clipped: bool  # couplings below 0 are set to 0


def dosed(
    model,
    images: Tensor,
    doses: Sequence[float],
    *,
    iterations: int | None = None,
    seed: int,
    progress=iter,
    clipped: bool = False,
) -> Dosed:
    """Return outcomes of images (N, C, H, W) under scaled deviations from uniform couplings.

    Conditions are the donor's couplings, these shuffled, the mean of the donor's predicted class,
    the direction of steepest change, and noise; the last two have the norm of the donor's
    deviation. Couples, and shuffled couplings, are those of `transplant` with the same seed. For a
    network whose scores have no gradient with respect to couplings, the direction is left out: its
    rows are missing, and K is 4.

    Parameters
    ----------
    clipped  set couplings below 0 to 0, the total of each child kept. So it is done with networks
             that compute no finite activations of negative couplings, as mixtures of Gaussians,
             whose variances they may make negative.
    """
    own, even, read = last_couplings(model, images, iterations=iterations)
    if coupling_sd(own).max() <= EVEN * even.double().mean():
        raise ValueError(
            "the couplings of this network are uniform in every image: there is nothing to scale"
        )
    generator, others = (torch.Generator().manual_seed(seed + k) for k in range(2))
    noise = torch.Generator().manual_seed(seed + 2)
    voting, partner = pairs_of(read, generator)
    means = {int(k): own[read == k].mean(0) for k in read.unique()}
    uniform = even.double()
    parts = []
    for rows in progress(torch.arange(len(voting)).split(DOSED_IMAGES)):
        here, there = voting[rows], partner[rows]
        donor = own[None, there]
        steepest = steepest_direction(
            model, images[here], even, read[here], read[there], iterations=iterations
        )
        deviations = [
            one.double() - uniform
            for one in (
                donor[0],
                control_couplings("shuffled", donor, others)[-1],
                torch.stack([means[int(k)] for k in read[there]]),
                control_couplings("matched", donor, noise)[-1],
            )
        ]
        if steepest is not None:
            norm = deviations[0].flatten(1).norm(dim=1)[:, None, None]
            deviations.insert(-1, steepest.double() * norm)
        replaced = [uniform + d * one for one in deviations for d in doses]
        replaced = [(_clipped(one) if clipped else one).to(own.dtype) for one in replaced]
        try:
            under = under_couplings(model, images[here], replaced, iterations=iterations)
        except NotFiniteError:
            if clipped:
                raise
            return dosed(
                model, images, doses, iterations=iterations, seed=seed, progress=progress,
                clipped=True,
            )  # fmt: skip
        said = winners(under).unflatten(0, (len(deviations), len(doses)))
        size = torch.stack([one.square().mean((1, 2)).sqrt() for one in deviations])
        parts.append((said == read[here], said == read[there], size))
    return Dosed(*(torch.cat(values, -1) for values in zip(*parts, strict=True)), clipped)


def _clipped(couplings: Tensor) -> Tensor:
    """Return couplings (..., I, J) without negative ones, each child's total kept."""
    positive, total = couplings.clamp_min(0), couplings.sum(-1, keepdim=True)
    positive = positive * (total / positive.sum(-1, keepdim=True))
    return torch.where((couplings < 0).any(-1, keepdim=True), positive, couplings)


def steepest_direction(
    model, images: Tensor, even: Tensor, own: Tensor, donor: Tensor, *, iterations: int | None
) -> Tensor | None:
    """Return the change of couplings (N, I, J) of norm 1 that moves classes from own to donor most.

    It is the gradient of the donor's activation less the recipient's at uniform couplings `even`
    (I, J), which are the same in every iteration, without what changes the total that a child
    gives. 0 for images without a gradient; None for a network that computes none.

    Parameters
    ----------
    own, donor  (N,) classes.
    """
    slopes = []
    with evaluating(model), torch.inference_mode(False), torch.enable_grad():
        for rows, activations, couplings in _activations(model, images, even, iterations):
            if not activations.requires_grad:
                return None
            of_both = (classes[rows, None].to(activations.device) for classes in (donor, own))
            raised, lowered = (activations.gather(1, classes) for classes in of_both)
            (slope,) = torch.autograd.grad((raised - lowered).sum(), couplings)
            slopes.append(slope.cpu())
    slope = torch.cat(slopes).double()
    slope = slope - slope.mean(2, keepdim=True)
    norm = slope.flatten(1).norm(dim=1)[:, None, None]
    return torch.where(norm > 0, slope / norm.clamp_min(torch.finfo(norm.dtype).tiny), 0)


def _activations(model, images: Tensor, even: Tensor, iterations: int | None):
    """Yield rows, activations (B, J) with a gradient, and the couplings (B, I, J) below them."""
    more = {} if iterations is None else {"iterations": iterations}
    if not routes_again(model):
        like = next(model.parameters())
        couplings = even.to(like).repeat(len(images), 1, 1).requires_grad_()
        shown = model.look(images.to(like), keep=("lengths",), couplings=couplings, **more)
        yield slice(0, len(images)), shown.get("lengths", shown.get("last")), couplings
        return
    for rows, primary, active in chunks(model, images):
        with torch.inference_mode(False), torch.enable_grad():
            u, gates = primary.clone(), None if active is None else active.clone()
            couplings = even.to(u).repeat(len(u), 1, 1).requires_grad_()
            votes = model.capsules.votes(u)
            routed = model.capsules.route_votes(
                votes, u, activations=gates, couplings=couplings, **more
            )
            yield rows, routed.activations[-1], couplings


def halfway(shares: np.ndarray, doses: np.ndarray) -> np.ndarray:
    """Return the lowest dose at which half of the pairs follow, linear in the logarithm of doses.

    Parameters
    ----------
    shares  (..., D) that follow.
    doses   (D,) above 0, ascending.

    Returns
    -------
    (...) NaN where half is not reached; the lowest dose where more than half follow there.
    """
    above = shares >= 0.5
    last = above.argmax(-1)[..., None]
    first = np.maximum(last - 1, 0)
    low, high = (np.take_along_axis(shares, k, -1) for k in (first, last))
    part = np.divide(0.5 - low, high - low, out=np.zeros_like(low), where=high > low)
    x = np.log(doses)
    found = np.exp(x[first] + np.where(last > 0, part, 0) * (x[last] - x[first]))[..., 0]
    return np.where(above.any(-1), found, np.nan)


def half_dose(values: Tensor, doses: np.ndarray, counts: np.ndarray) -> Estimate:
    """Return `halfway` of the means over pairs (K, D, 2 C), under resamples of the C couples.

    An end of an interval is NaN where resamples do not reach half.
    """
    each = values.double().unflatten(-1, (-1, 2)).mean(-1).numpy()
    K, D, C = each.shape
    drawn = (counts @ each.reshape(K * D, C).T / C).reshape(-1, K, D)
    doses_50 = np.nan_to_num(halfway(drawn, doses), nan=np.inf)
    ends = [
        np.percentile(doses_50, q, axis=0, method=method)
        for q, method in ((2.5, "lower"), (97.5, "higher"))
    ]
    ends = np.stack(ends, -1)
    ends[np.isinf(ends)] = np.nan
    return Estimate(halfway(each.mean(-1), doses), ends, values.shape[-1])


def pairs_of(read: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return recipients and donors (P,), of couple c the pairs 2 c and 2 c + 1.

    Parameters
    ----------
    read  (N,) predicted classes; images whose class no other one shares are left out.

    Raises
    ------
    ValueError  for fewer than 2 couples.
    """
    several = (torch.bincount(read)[read] > 1).nonzero().flatten()  # there is a like image, too
    pairs = several[couples(read[several], generator)]
    if pairs.numel() < 4:
        raise ValueError(
            f"{len(read)} images make {len(pairs)} couples of different predicted classes that "
            "other images share, expected at least 2: take more images, of several classes"
        )
    return pairs.flatten(), pairs.flip(1).flatten()


def _outcome(said: Tensor, own: Tensor, partner: Tensor) -> tuple[Tensor, ...]:
    """The fields of `Outcomes` but the last, of activations (K, P, J) and both classes (P,)."""
    read = winners(said)
    each = (classes.expand(len(said), -1)[..., None] for classes in (own, partner))
    return read == own, read == partner, read < 0, *(said.gather(2, k)[..., 0] for k in each)


def over_pairs(values: Tensor, counts, *, shares: bool) -> Estimate:
    """Means over pairs (K, 2 C), of which 2 c and 2 c + 1 are of couple c, under resamples of the C
    couples, as of `draw_resamples`; `shares`: of what is 0 or 1.
    """
    couples = values.double().unflatten(1, (-1, 2))
    if shares:
        both = couples.sum(2).numpy()
        one = compare_shares(both, np.full(both.shape[1], 2), counts)
    else:
        one = compare_means(couples.mean(2).numpy(), counts, shares=False)
    return replace(one.undrawn(), n=values.shape[1])  # another run has other couples
