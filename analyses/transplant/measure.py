"""Measures of `transplant`: couples of images, replaced couplings, and mixtures of two images.

In a mixture, the couplings, children or poses of some capsules are a donor's. A pair is a recipient
and a donor. The two images of couple c form the pairs 2 c and 2 c + 1 of P pairs.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from capsviz.discovery import require_known
from capsviz.experiments.attacks import frozen
from capsviz.nn.images import like_of
from capsviz.statistics.comparison import compare_means, compare_shares, draw_resamples
from capsviz.statistics.estimate import Estimate, stack
from capsviz.tracing import (
    CHUNK_IMAGES,
    DRAWN_IMAGES,
    control_couplings,
    coupling_sd,
    even_couplings,
    fit_at_a_time,
    from_children,
    images_at_a_time,
    trace,
    under_couplings,
)
from capsviz.tracing.many import (
    OwnCouplings,
    couples,
    groups,
    last_couplings,
    of_like_class,
    require_all_to_all,
    winners,
)
from capsviz.tracing.needs import missing, reason, require
from capsviz.tracing.network import abilities, below_classes, check_look
from capsviz.tracing.record import NotFiniteError
from capsviz.transforms.augment import to_uint8

EVEN = 1e-6  # relative to uniform couplings: a smaller standard deviation is a rounding error
COPIES = 16  # approximate number of couplings in memory for each pair
SHARES = (0.25, 0.5, 0.75, 0.9)  # exchanged shares of the types, positions or capsules
DRAWS = 4  # random sets of children for each pair, whose mean is the control
WHOLE = {"types": "whole capsule types", "positions": "whole positions"}  # in `Parts.shares`
SINGLE = "single capsules"
COUPLINGS, CHILDREN, POSES = OF = ("couplings", "children", "poses")
LEAST = 4  # couples at least: one half ranks the parts, the other half measures the best
READINGS = ("own", "partner", "neither", "own_change", "partner_change")  # fields of results


def exchange(model, images: Tensor, *, iterations: int | None, seed: int) -> dict[str, Any]:
    """Return the measured fields of `Result` for two images (2, C, H, W)."""
    traced = trace(model, images, keep=("couplings", "lengths"), iterations=iterations)
    couplings = traced.require("couplings")
    require_all_to_all(couplings)
    own, uniform = couplings[-1], even_couplings(couplings)
    shuffled = control_couplings("shuffled", own[None], torch.Generator().manual_seed(seed))[-1]
    decodes = abilities(model).decodes
    keep = ("lengths", "reconstruction") if decodes else ("lengths",)
    mixed = [
        trace(model, images, keep=keep, couplings=one, iterations=iterations)
        for one in (own, own.flip(0), shuffled.flip(0), uniform)
    ]
    drawn = [to_uint8(one.require("reconstruction")) for one in mixed] if decodes else None
    maps = None if traced.grid is None else own.unflatten(1, traced.grid).mean(1).movedim(-1, 1)
    return {
        "images": to_uint8(images),
        "predicted": traced.require("lengths").argmax(1).numpy(),
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
    model, own: OwnCouplings, generator: torch.Generator, replaced: Callable, *,
    iterations: int | None, progress=iter,
) -> dict[str, Tensor]:  # fmt: skip
    """Return predictions and activations (K, P) of P pairs under K replaced couplings, by name.

    `replaced(here, there)` returns K couplings (B, I, J) for B recipients and donors. If the
    largest activations are tied, the pair counts as `as_neither`.
    """
    predicted, parts = own.predicted, defaultdict(list)
    pairs = pairs_of(predicted, generator)
    at_once = min(DRAWN_IMAGES, fit_at_a_time(own.even, COPIES))
    for rows in progress(torch.arange(len(pairs[0])).split(at_once)):
        here, there = (one[rows] for one in pairs)
        couplings = replaced(here, there)
        activations = under_couplings(model, own.images[here], couplings, iterations=iterations)
        won = winners(activations)
        for name, classes in (("own", predicted[here]), ("partner", predicted[there])):
            parts[f"as_{name}"].append(won == classes)
            chosen = classes.expand(len(activations), -1)[..., None]
            parts[f"{name}_activation"].append(activations.gather(2, chosen)[..., 0])
        parts["as_neither"].append((won != predicted[here]) & (won != predicted[there]))
        parts["coupling_sd"].append(torch.stack([coupling_sd(one) for one in couplings]))
    return {name: torch.cat(some, 1) for name, some in parts.items()}


def transplant(
    model, images: Tensor, *, iterations: int | None = None, seed: int, progress=iter
) -> dict[str, Tensor]:
    """Return the `outcomes` of images (N, C, H, W) under all `CONDITIONS`."""
    own = OwnCouplings(model, images, iterations=iterations)
    generator, others = (torch.Generator().manual_seed(seed + k) for k in range(2))
    even, like = own.even, of_like_class(own.predicted)
    mean = own.mean(torch.arange(len(images)))

    def replaced(here, there):
        recipients, donors, same_class = own[torch.cat([here, there, like[here]])].chunk(3)
        return (
            recipients,
            donors,
            same_class,
            mean.expand(len(here), *mean.shape),
            control_couplings("shuffled", recipients[None], generator)[-1],
            control_couplings("matched", recipients[None], generator)[-1],
            even.expand(len(here), *even.shape),
            control_couplings("shuffled", donors[None], others)[-1],
        )

    return outcomes(model, own, generator, replaced, iterations=iterations, progress=progress)


def over_conditions(model, images: Tensor, *, iterations, seed: int, progress) -> dict[str, Any]:
    """Return the measured fields of `Statistics`."""
    found = transplant(model, images, iterations=iterations, seed=seed, progress=progress)
    counts = draw_resamples(found["as_own"].shape[1] // 2, seed=seed)
    return {
        **{k: over_pairs(v, counts, shares=v.dtype == torch.bool) for k, v in found.items()},
        **counted(found["as_own"]),
        "given": reason(model, "donor's class"),
        "iterations": iterations,
    }


def counted(values: Tensor) -> dict[str, int]:
    """Return the numbers of couples and pairs in values (..., P)."""
    return {"couples": values.shape[-1] // 2, "n": values.shape[-1]}


def over_doses(
    model, images: Tensor, doses: np.ndarray, *, iterations, seed: int, progress
) -> dict[str, Any]:
    """Return the measured fields of `Doses` at ascending doses (D,).

    Conditions are those of `DEVIATIONS`, in this order. The steepest direction and the noise have
    the norm of the donor's deviation. Couples and the donor's shuffled couplings are those of
    `transplant` with the same seed. The direction is left out if the activations have no gradient
    with respect to couplings. If negative couplings give activations that are not finite, as in EM
    routing, they are set to 0 and each child keeps its total.
    """
    own = OwnCouplings(model, images, iterations=iterations)
    even, predicted = own.even, own.predicted
    means = {int(k): own.mean((predicted == k).nonzero().flatten()) for k in predicted.unique()}
    rows, uniform = torch.arange(len(images)), even.double()
    deviations = (coupling_sd(own[some]) for some in rows.split(min(own.at_a_time, CHUNK_IMAGES)))
    if all_even(deviations, float(uniform.mean())):
        raise ValueError(
            "the couplings of this network are uniform in every image: there is nothing to scale"
        )

    def dosed(clipped: bool) -> tuple[dict[str, Tensor], Tensor]:
        generator, others, noise = (torch.Generator().manual_seed(seed + k) for k in range(3))
        sizes = []

        def replaced(here, there):
            donor = own[there][None]
            conditions = (
                donor[0],
                control_couplings("shuffled", donor, others)[-1],
                torch.stack([means[int(k)] for k in predicted[there]]),
                control_couplings("matched", donor, noise)[-1],
            )
            deviations = [one.double() - uniform for one in conditions]
            steepest = steepest_direction(
                model, images[here], even, predicted[here], predicted[there], iterations=iterations
            )
            if steepest is not None:
                norm = deviations[0].flatten(1).norm(dim=1)[:, None, None]
                deviations.insert(-1, steepest.double() * norm)

            def put_in(dose, deviation):
                couplings = uniform + dose * deviation
                return _clipped(couplings) if clipped else couplings

            used = (put_in(1, one) - uniform for one in deviations)
            sizes.append(torch.stack([one.square().mean((1, 2)).sqrt() for one in used]))
            return [put_in(d, one).to(even) for one in deviations for d in doses.tolist()]

        found = outcomes(model, own, generator, replaced, iterations=iterations, progress=progress)
        return found, torch.cat(sizes, 1)

    try:
        (found, deviation), clipped = dosed(False), False
    except NotFiniteError:
        (found, deviation), clipped = dosed(True), True
    follow, keep = (found[k].unflatten(0, (-1, len(doses))) for k in ("as_partner", "as_own"))
    counts, above = draw_resamples(deviation.shape[1] // 2, seed=seed), doses > 0

    def alone(values: Tensor, shares: bool) -> Estimate:
        return replace(over_pairs(values, counts, shares=shares), difference=None)

    return {
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


def all_even(deviations: Iterable[Tensor], uniform: float) -> bool:
    """Return whether couplings with these deviations all equal `uniform`, up to rounding."""
    return max(float(one.max()) for one in deviations) <= EVEN * uniform


def _clipped(couplings: Tensor) -> Tensor:
    """Set negative couplings (..., I, J) to 0 and rescale, so that each child keeps its total."""
    positive, total = couplings.clamp_min(0), couplings.sum(-1, keepdim=True)
    positive = positive * (total / positive.sum(-1, keepdim=True))
    return torch.where((couplings < 0).any(-1, keepdim=True), positive, couplings)


def steepest_direction(
    model, images: Tensor, even: Tensor, own: Tensor, donor: Tensor, *, iterations: int | None
) -> Tensor | None:
    """Return the change of couplings (N, I, J) of norm 1 that favours the donor's class most.

    It is the gradient of the activation of class `donor` (N,) minus that of `own` (N,), at uniform
    couplings `even` (I, J) in every iteration. Its mean over parents is subtracted, so that each
    child keeps its total. It is 0 for images whose gradient is 0. Return None if the activations
    have no gradient.
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
    """Return the lowest dose (...) at which half follow, from shares (..., D) at doses (D,).

    Shares are interpolated linearly in the logarithm of the ascending doses. The result is NaN if
    half is not reached, and the lowest dose if at least half follow there.
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

    An end of an interval is NaN if the resample at that end does not reach half.
    """
    each = values.double().unflatten(-1, (-1, 2)).mean(-1).numpy()
    K, D, C = each.shape
    drawn = (counts @ each.reshape(K * D, C).T / C).reshape(-1, K, D)
    doses_50 = np.nan_to_num(halfway(drawn, doses), nan=np.inf)
    low = np.percentile(doses_50, 2.5, axis=0, method="lower")
    ends = np.stack([low, np.percentile(doses_50, 97.5, axis=0, method="higher")], -1)
    ends[np.isinf(ends)] = np.nan
    return Estimate(halfway(each.mean(-1), doses), ends, values.shape[-1])


def pairs_of(
    predicted: Tensor, generator: torch.Generator, least: int = 2
) -> tuple[Tensor, Tensor]:
    """Return recipients (P,) and donors (P,) of different predicted classes.

    An image is left out if no other one has its class of `predicted` (N,), because it has no
    same-class donor. Raise ValueError for fewer than `least` couples.
    """
    several = (torch.bincount(predicted)[predicted] > 1).nonzero().flatten()
    pairs = several[couples(predicted[several], generator)]
    if len(pairs) < least:
        raise ValueError(
            f"{len(predicted)} images make {len(pairs)} pairs of different predicted classes with "
            f"at least 2 images each, expected at least {least}: take more images, of several "
            "classes"
        )
    return pairs.flatten(), pairs.flip(1).flatten()


def over_pairs(values: Tensor, counts, *, shares: bool) -> Estimate:
    """Return means over pairs (K, 2 C), by resamples of C couples; `shares`: values are 0 or 1."""
    couples = values.double().unflatten(1, (-1, 2))
    if shares:
        both = couples.sum(2).numpy()
        one = compare_shares(both, np.full(both.shape[1], 2), counts)
    else:
        one = compare_means(couples.mean(2).numpy(), counts, shares=False)
    return replace(one.undrawn(), n=values.shape[1])  # couples differ between runs


class Layer(NamedTuple):
    """A routed layer with its children and couplings for N images."""

    of: str  # part that is exchanged
    number: int  # index of the layer
    images: Tensor  # (N, C, H, W)
    children: Any  # (N, I, D); None: the network cannot route given children
    active: Any  # (N, I) activations of the children
    couplings: Any  # (N, I, J) of the last iteration; None: not exchanged
    predicted: Tensor  # (N,) predicted classes with normal routing
    grid: tuple[int, int, int] | None

    @property
    def size(self) -> int:
        """Number I of children."""
        return (self.couplings if self.children is None else self.children).shape[1]


def check(model, images: Tensor, of: str, layer: int | None) -> int:
    """Return the index of the layer; raise ValueError if the exchange is not supported.

    At most one image is traced.
    """
    require_known("part of a network", of, OF)
    number = below_classes(model, layer)
    check_look(model, -1 if number is None else number, None)
    if of != COUPLINGS or number is not None:
        require(model, ("from_children",), f"exchanging {of if number is None else 'in a layer'}")
    number = -1 if number is None else number
    if of == COUPLINGS:
        require_all_to_all(rounds(model, images, number))
    return number


def rounds(model, images: Tensor, number: int) -> Tensor:
    """Return the couplings (R, 1, ...) of the first image in all R iterations."""
    return trace(model, images[:1], layer=number, keep=("couplings",)).require("couplings")


def layer_of(model, images: Tensor, of: str, number: int) -> Layer:
    """Return the state of a layer for images (N, C, H, W); couplings only if they are exchanged."""
    own, children, active = None, None, None
    if of == COUPLINGS:
        own, _, predicted = last_couplings(model, images, layer=number)
    if not missing(model, ("from_children",)):
        traced = trace(model, images, layer=number, keep=("children", "child_activations"))
        children, active = traced.require("children"), traced.require("child_activations")
        predicted = from_children(model, children, active, layer=number).argmax(1)
    return Layer(
        of, number, images, children, active, own, predicted, abilities(model).grids[number]
    )


def mixed(model, layer: Layer, first: Tensor, other: Tensor, chosen: Tensor) -> Tensor:
    """Return activations (P, J) of images `first` (P,) with some children from `other` (P,).

    `chosen` is bool (P, I), or (I,) for all pairs. `layer.of` is the part of the chosen children
    that is exchanged. If it is the pose, children keep their length, or separate activation.
    """
    chosen, parts = chosen.expand(len(first), layer.size), []
    for rows in torch.arange(len(first)).split(CHUNK_IMAGES):
        a, b, some = first[rows], other[rows], chosen[rows, :, None]
        if layer.of == COUPLINGS:
            both = torch.where(some, layer.couplings[b], layer.couplings[a])
            parts.append(under(model, layer, a, both))
            continue
        children, others, active = layer.children[a], layer.children[b], layer.active[a]
        if layer.of == CHILDREN:
            active = torch.where(some[..., 0], layer.active[b], active)
        else:
            others = posed(children, others, active)
        children = torch.where(some, others, children)
        parts.append(from_children(model, children, active, layer=layer.number))
    return torch.cat(parts)


def under(model, layer: Layer, rows: Tensor, couplings) -> Tensor:
    """Return activations (P, J) of images (P,) under couplings (P, I, J) or a list by iteration."""
    if layer.children is None:
        traced = trace(model, layer.images[rows], keep=("lengths",), couplings=couplings)
        return traced.require("lengths")
    how = {"layer": layer.number, "couplings": couplings}
    return from_children(model, layer.children[rows], layer.active[rows], **how)


def posed(own: Tensor, others: Tensor, active: Tensor) -> Tensor:
    """Return children (P, I, D) with the direction of others' poses and their own lengths.

    If activations (P, I) are not the lengths of children, the length is part of the pose: return
    `others`.
    """
    lengths = own.norm(dim=2)
    if not torch.allclose(lengths, active, rtol=1e-3, atol=1e-4):
        return others
    return normalize(others, dim=2) * lengths[..., None]


def readings(layer: Layer, first: Tensor, other: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """Return `READINGS` (5, P) from activations (P, J) before and after an exchange."""
    predicted, own, partner = winners(after), layer.predicted[first], layer.predicted[other]
    changes = [(after - before).gather(1, one[:, None])[:, 0] for one in (own, partner)]
    shares = [predicted == own, predicted == partner, (predicted != own) & (predicted != partner)]
    return torch.stack([*(one.to(after) for one in shares), *changes])


def masks(groups: Tensor, share: float, count: int, generator: torch.Generator) -> Tensor:
    """Return masks bool (count, I) of the children in a random share of groups, drawn per row."""
    number = int(groups.max()) + 1
    ranks = torch.rand(count, number, generator=generator).argsort(1).argsort(1)
    return (ranks < max(1, round(share * number)))[:, groups]


def first_of(changes: Tensor, seed: int) -> tuple[int, Estimate]:
    """Return the part that raises the donor's class most, and the changes (2,) on other couples.

    The part is chosen on every second couple. The changes by the control and by that part are
    measured on the others. `changes` (1 + G, P) of the donor's class start with the control.
    """
    of_couples = changes.unflatten(1, (-1, 2))
    best = int(of_couples[1:, ::2].mean((1, 2)).argmax())
    rest = of_couples[[0, 1 + best], 1::2].flatten(1)
    return best, over_pairs(rest, draw_resamples(rest.shape[1] // 2, seed=seed), shares=False)


def by_part(model, images: Tensor, of: str, layer: int | None, seed: int, progress) -> dict:
    """Return the measured fields of `Parts` for images (N, C, H, W)."""
    number = check(model, images, of, layer)
    state = layer_of(model, images, of, number)
    generator = torch.Generator().manual_seed(seed)
    first, other = pairs_of(state.predicted, generator, LEAST)
    nothing = torch.zeros(state.size, dtype=torch.bool)
    before = mixed(model, state, first, other, nothing)

    def outcome(chosen: Tensor) -> Tensor:
        return readings(state, first, other, before, mixed(model, state, first, other, chosen))

    kinds, each = groups(state.grid, state.size), torch.arange(state.size)
    values, shares, some = {}, {}, {}
    for kind, parts in kinds.items():
        size = float(parts.sum(1).double().mean()) / state.size
        drawn = [outcome(masks(each, size, len(first), generator)) for _ in range(DRAWS)]
        rows = [torch.stack(drawn).mean(0), *map(outcome, progress(parts))]
        values[kind] = torch.stack(rows, 1)  # (5, 1 + G, P)
    numbered = {name: kinds[kind].int().argmax(0) for kind, name in WHOLE.items() if kind in kinds}
    for kind, numbers_of in (numbered | {SINGLE: each}).items():
        count = int(numbers_of.max()) + 1
        numbers = sorted({max(1, round(share * count)) for share in (*SHARES, 1.0)})
        shares[kind] = np.array(numbers) / count
        drawn = [outcome(masks(numbers_of, n / count, len(first), generator)) for n in numbers]
        some[kind] = torch.stack(drawn)  # (S, 5, P)
    counts = draw_resamples(len(first) // 2, seed=seed)
    ranked = {kind: first_of(one[4], seed) for kind, one in values.items()}
    whole = mixed(model, state, first, other, ~nothing)
    theirs = mixed(model, state, other, first, nothing)
    return {
        **{
            name: {kind: over_pairs(v[k], counts, shares=k < 3) for kind, v in values.items()}
            for k, name in enumerate(READINGS)
        },
        **{
            name: {kind: over_pairs(v[:, k], counts, shares=True) for kind, v in some.items()}
            for k, name in enumerate(("some_own", "some_partner"))
        },
        **_about(model, state, first),
        "grid": state.grid,
        "kinds": list(kinds),
        "sizes": {kind: round(float(one.sum(1).double().mean())) for kind, one in kinds.items()},
        "first": {kind: best for kind, (best, _) in ranked.items()},
        "first_change": {kind: change for kind, (_, change) in ranked.items()},
        "shares": shares,
        "off": float((whole - theirs).abs().max()),
    }


def _about(model, layer: Layer, first: Tensor) -> dict:
    """Return the fields of a result about the layer and its pairs."""
    below = layer.number != -1
    given = None if below or layer.of != COUPLINGS else reason(model, "donor's class")
    if given and all_even([coupling_sd(layer.couplings)], float(layer.couplings.mean())):
        given = None  # uniform couplings are equal in all images
    return {"layer": layer.number if below else None, "given": given, **counted(first)}


def by_iteration(model, images: Tensor, layer: int | None, seed: int, progress) -> dict:
    """Return the measured fields of `Rounds` for images (N, C, H, W)."""
    number = check(model, images, COUPLINGS, layer)
    require(model, ("from_children",), "exchanging couplings of single iterations")
    count = len(rounds(model, images, number))
    if count < 2:
        raise ValueError(
            "this network routes in one pass: expected a routing with iterations for --by "
            "iterations; use --by capsules, or --n N alone"
        )
    one = layer_of(model, images[:1], COUPLINGS, number)
    under(model, one, torch.tensor([0]), [None] * count)  # raises if the layer cannot
    state = layer_of(model, images, COUPLINGS, number)
    first, other = pairs_of(state.predicted, torch.Generator().manual_seed(seed), LEAST)
    before = under(model, state, first, None)
    own = state.couplings

    def outcome(donor: Tensor, replaced: list[bool]) -> Tensor:
        after = under(model, state, first, [own[donor] if one else None for one in replaced])
        return readings(state, first, other, before, after)

    donors = (first, of_like_class(state.predicted)[first], other)
    counts, fields = draw_resamples(len(first) // 2, seed=seed), {}
    values: dict[str, list[Tensor]] = {mode: [] for mode in ("alone", "onward")}
    for r in progress(range(count)):
        for mode, some in values.items():
            which = listed(mode, r, count)
            some.append(torch.stack([outcome(donor, which) for donor in donors], 1))
    for k, name in enumerate(READINGS):
        fields[name] = {
            mode: stack((over_pairs(one[k], counts, shares=k < 3) for one in some), 1)
            for mode, some in values.items()
        }
    return fields | _about(model, state, first)


def listed(mode: str, r: int, count: int) -> list[bool]:
    """Return for each of `count` iterations, from 0, whether its couplings are replaced."""
    return [k == r or (mode == "onward" and k > r) for k in range(count)]
