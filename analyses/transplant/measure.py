"""Measures of `transplant`: couples of images, and passes with other couplings in all iterations.

Pairs (P,) are a recipient and a donor; the couple c of images is the pairs 2 c and 2 c + 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capsviz.experiments.attacks import frozen
from capsviz.nn.images import like_of
from capsviz.statistics.comparison import compare_means, compare_shares, draw_resamples
from capsviz.statistics.estimate import Estimate, stack
from capsviz.tracing import (
    CHUNK_IMAGES,
    control_couplings,
    coupling_sd,
    even_couplings,
    images_at_a_time,
    reconstructs,
    trace,
    under_couplings,
)
from capsviz.tracing.many import (
    couples,
    last_couplings,
    of_like_class,
    require_all_to_all,
    winners,
)
from capsviz.tracing.needs import reason
from capsviz.tracing.record import NotFiniteError
from capsviz.transforms.augment import to_uint8

EVEN = 1e-6  # relative to uniform couplings: a standard deviation below it is rounding
DOSED_IMAGES = 64  # at a time: each has couplings for every condition and dose


def exchange(model, images: Tensor, *, iterations: int | None, seed: int) -> dict[str, Any]:
    """Return the fields of `Result` that are measured, of two images (2, C, H, W).

    The seed is of the shuffle.
    """
    traced = trace(model, images, keep=("couplings", "lengths"), iterations=iterations)
    couplings = traced.require("couplings")
    require_all_to_all(couplings)
    own, uniform = couplings[-1], even_couplings(couplings)
    shuffled = control_couplings("shuffled", own[None], torch.Generator().manual_seed(seed))[-1]
    decodes = reconstructs(model)
    keep = ("lengths", "reconstruction") if decodes else ("lengths",)
    mixed = [
        trace(model, images, keep=keep, couplings=one, iterations=iterations)
        for one in (own, own.flip(0), shuffled.flip(0), uniform)
    ]
    drawn = [to_uint8(one.require("reconstruction")) for one in mixed] if decodes else None
    maps = None if traced.grid is None else own.unflatten(1, traced.grid).mean(1).movedim(-1, 1)
    return {
        "images": to_uint8(images),
        "read": traced.require("lengths").argmax(1).numpy(),
        "conditions": ["own", "the donor's", "the donor's, shuffled", "uniform"],
        "activations": np.stack([one.require("lengths") for one in mixed], 1),
        "decoded": None if drawn is None else np.stack(drawn, 1),
        "means": own.mean(1).numpy(),
        "maps": None if maps is None else maps.numpy(),
        "coupling_sd": coupling_sd(own).numpy(),
        "even": float(uniform.mean()),
        "given": reason(model, "donor's class"),
        "iterations": iterations,
    }


def outcomes(
    model, images: Tensor, read: Tensor, pairs: tuple[Tensor, Tensor], replaced: Callable, *,
    at_once: int, iterations: int | None, progress=iter,
) -> dict[str, Tensor]:  # fmt: skip
    """Return what is said of pairs of images (N, C, H, W) under K couplings, (K, P) by name.

    `replaced(here, there)` are the couplings (B, I, J) of some recipients and donors, K of them.
    Classes are the predicted ones (N,); `tied`, and `neither`, is where no class is ahead of all.
    """
    parts = defaultdict(list)
    for rows in progress(torch.arange(len(pairs[0])).split(at_once)):
        here, there = (one[rows] for one in pairs)
        couplings = replaced(here, there)
        said = under_couplings(model, images[here], couplings, iterations=iterations)
        won = winners(said)
        for name, classes in (("own", read[here]), ("partner", read[there])):
            parts[f"as_{name}"].append(won == classes)
            chosen = classes.expand(len(said), -1)[..., None]
            parts[f"{name}_activation"].append(said.gather(2, chosen)[..., 0])
        parts["as_neither"].append((won != read[here]) & (won != read[there]))
        parts["tied"].append(won < 0)
        parts["coupling_sd"].append(torch.stack([coupling_sd(one) for one in couplings]))
    return {name: torch.cat(some, 1) for name, some in parts.items()}


def transplant(
    model, images: Tensor, *, iterations: int | None = None, seed: int, progress=iter
) -> dict[str, Tensor]:
    """Return `outcomes` under the conditions of `pairs.CONDITIONS`.

    Of images (N, C, H, W) that have donors of another and of their own class.
    """
    own, even, read = last_couplings(model, images, iterations=iterations)
    generator, others = (torch.Generator().manual_seed(seed + k) for k in range(2))
    like, mean = of_like_class(read), own.mean(0)

    def replaced(here, there):
        return (
            own[here],
            own[there],
            own[like[here]],
            mean.expand(len(here), *mean.shape),
            control_couplings("shuffled", own[None, here], generator)[-1],
            control_couplings("matched", own[None, here], generator)[-1],
            even.expand(len(here), *even.shape),
            control_couplings("shuffled", own[None, there], others)[-1],
        )

    return outcomes(
        model, images, read, pairs_of(read, generator), replaced, at_once=CHUNK_IMAGES,
        iterations=iterations, progress=progress,
    )  # fmt: skip


def over_conditions(model, images: Tensor, *, iterations, seed: int, progress) -> dict[str, Any]:
    """Return the fields of `Statistics` that are measured."""
    found = transplant(model, images, iterations=iterations, seed=seed, progress=progress)
    tied = found.pop("tied")
    counts = draw_resamples(tied.shape[1] // 2, seed=seed)
    return {
        **{k: over_pairs(v, counts, shares=v.dtype == torch.bool) for k, v in found.items()},
        **counted(tied),
        "tied": tied.double().mean(1).numpy(),
        "given": reason(model, "donor's class"),
        "iterations": iterations,
    }


def counted(values: Tensor) -> dict[str, int]:
    """Return the numbers of couples and of pairs of values (..., P)."""
    return {"couples": values.shape[-1] // 2, "n": values.shape[-1]}


def over_doses(
    model, images: Tensor, doses: np.ndarray, names, *, iterations, seed: int, progress
) -> dict[str, Any]:
    """Return the fields of `Doses` that are measured, at doses (D,) in their order.

    Conditions are those of `pairs_by_dose.CONDITIONS`; the steepest direction and the noise have
    the norm of the donor's deviation. Couples, and shuffled couplings, are those of `transplant`
    with the same seed. For a network whose scores have no gradient with respect to couplings, the
    direction is left out. For one that computes no finite activations of negative couplings, as a
    mixture of Gaussians, these are set to 0, each child's total kept.
    """
    own, even, read = last_couplings(model, images, iterations=iterations)
    uniform, means = even.double(), {int(k): own[read == k].mean(0) for k in read.unique()}
    if coupling_sd(own).max() <= EVEN * uniform.mean():
        raise ValueError(
            "the couplings of this network are uniform in every image: there is nothing to scale"
        )

    def dosed(clipped: bool) -> tuple[dict[str, Tensor], Tensor]:
        generator, others, noise = (torch.Generator().manual_seed(seed + k) for k in range(3))
        sizes = []

        def replaced(here, there):
            donor = own[None, there]
            conditions = (
                donor[0],
                control_couplings("shuffled", donor, others)[-1],
                torch.stack([means[int(k)] for k in read[there]]),
                control_couplings("matched", donor, noise)[-1],
            )
            deviations = [one.double() - uniform for one in conditions]
            steepest = steepest_direction(
                model, images[here], even, read[here], read[there], iterations=iterations
            )
            if steepest is not None:
                norm = deviations[0].flatten(1).norm(dim=1)[:, None, None]
                deviations.insert(-1, steepest.double() * norm)
            sizes.append(torch.stack([one.square().mean((1, 2)).sqrt() for one in deviations]))
            every = (uniform + d * one for one in deviations for d in doses.tolist())
            return [(_clipped(one) if clipped else one).to(own) for one in every]

        found = outcomes(
            model, images, read, pairs_of(read, generator), replaced, at_once=DOSED_IMAGES,
            iterations=iterations, progress=progress,
        )  # fmt: skip
        return found, torch.cat(sizes, 1)

    clipped = False
    try:
        found, deviation = dosed(clipped)
    except NotFiniteError:
        clipped = True
        found, deviation = dosed(clipped)
    follow, keep = (found[k].unflatten(0, (-1, len(doses))) for k in ("as_partner", "as_own"))
    counts, above = draw_resamples(deviation.shape[1] // 2, seed=seed), doses > 0

    def alone(values: Tensor, shares: bool) -> Estimate:
        return replace(over_pairs(values, counts, shares=shares), difference=None)

    return {
        "conditions": [*names[:3], *names[-(len(keep) - 3) :]],
        "doses": doses,
        "follow": stack(alone(one, True) for one in follow),
        "keep": stack(alone(one, True) for one in keep),
        "half": half_dose(follow[:, above], doses[above], counts),
        "deviation_sd": alone(deviation, False),
        **counted(deviation),
        "given": reason(model, "donor's class"),
        "iterations": iterations,
        "clipped": clipped,
    }


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
    """
    like, slopes = like_of(model), []
    more = {} if iterations is None else {"iterations": iterations}
    with frozen(model), torch.inference_mode(False), torch.enable_grad():
        for rows in torch.arange(len(images)).split(images_at_a_time(model)):
            couplings = even.to(like).repeat(len(rows), 1, 1).requires_grad_()
            some = images[rows].to(like)
            shown = model.look(some, keep=("lengths",), couplings=couplings, **more)
            activations = shown.get("lengths", shown.get("last"))
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


def halfway(shares: np.ndarray, doses: np.ndarray) -> np.ndarray:
    """Return the lowest dose (...) at which half follow, linear in the logarithm of doses.

    Of shares (..., D) at doses (D,), ascending: NaN where half is not reached, and the lowest dose
    where more than half follow there.
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
    low = np.percentile(doses_50, 2.5, axis=0, method="lower")
    ends = np.stack([low, np.percentile(doses_50, 97.5, axis=0, method="higher")], -1)
    ends[np.isinf(ends)] = np.nan
    return Estimate(halfway(each.mean(-1), doses), ends, values.shape[-1])


def pairs_of(read: Tensor, generator: torch.Generator, least: int = 2) -> tuple[Tensor, Tensor]:
    """Return recipients and donors (P,) of another class.

    Of images with predicted classes (N,) those whose class no other one shares are left out:
    they have no same-class donor. ValueError for fewer couples than the `least`.
    """
    several = (torch.bincount(read)[read] > 1).nonzero().flatten()
    pairs = several[couples(read[several], generator)]
    if len(pairs) < least:
        raise ValueError(
            f"{len(read)} images make {len(pairs)} couples of different predicted classes that "
            f"other images share, expected at least {least}: take more images, of several classes"
        )
    return pairs.flatten(), pairs.flip(1).flatten()


def over_pairs(values: Tensor, counts, *, shares: bool) -> Estimate:
    """Return means over pairs (K, 2 C), under resamples of C couples; `shares`: of 0 or 1."""
    couples = values.double().unflatten(1, (-1, 2))
    if shares:
        both = couples.sum(2).numpy()
        one = compare_shares(both, np.full(both.shape[1], 2), counts)
    else:
        one = compare_means(couples.mean(2).numpy(), counts, shares=False)
    return replace(one.undrawn(), n=values.shape[1])  # another run has other couples
