"""Estimates over many images: the fields of `Statistics`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from capsviz import checkpoint
from capsviz.analyses.importance import dictionary as dictionaries
from capsviz.analyses.importance import measure as removal
from capsviz.statistics.comparison import compare_means, draw_resamples
from capsviz.statistics.estimate import Estimate, stack
from capsviz.tracing import under_couplings
from capsviz.tracing.many import last_couplings, winners


def estimates(model, images, labels, others, seed: int, progress) -> dict:
    """Return the fields of `Statistics` but for classes, n and the data set's name."""
    grid = removal.require_removable(model, images)
    generator = torch.Generator().manual_seed(seed)
    _, state = next(iter(removal.states(model, images[:1])))
    kinds = removal.groups(state, grid)
    options = {"generator": generator, "progress": progress}
    ranked = removal.measure(model, others.images, others.labels, kinds, **options)
    rank = _effects(ranked)
    planned = {kind: removal.plans(kinds[kind], rank[kind]) for kind in kinds}
    first = {kind: int(one.argmax()) for kind, one in rank.items()}
    outcomes = removal.measure(
        model, images, labels, kinds, planned=planned, first=first, **options
    )
    counts, own = draw_resamples(len(images), seed=seed), _effects(outcomes)
    return {
        "kinds": list(kinds),
        "base": _base(outcomes.base, counts),
        "activation_change": _changes(outcomes, 0, counts),
        "accuracy_change": _changes(outcomes, 1, counts),
        "control_activation_change": _controls(outcomes, 0, counts),
        "control_accuracy_change": _controls(outcomes, 1, counts),
        "first": first,
        "first_activation_change": {k: _first(outcomes, k, first[k], counts) for k in kinds},
        "rank_agreement": {kind: rank_agreement(rank[kind], own[kind]) for kind in kinds},
        "orders": list(removal.ORDERS),
        "removed": {kind: np.array(removal.steps(len(rows))) for kind, rows in kinds.items()},
        "curve_accuracy": {kind: _curve(outcomes, kind, 1, counts) for kind in kinds},
        "curve_activation": {kind: _curve(outcomes, kind, 0, counts) for kind in kinds},
        "area_accuracy": {kind: _area(outcomes, kinds, kind, 1, counts) for kind in kinds},
        "area_activation": {kind: _area(outcomes, kinds, kind, 0, counts) for kind in kinds},
        "grid": grid,
        "how": removal.how(model),
        "others": others.name,
        **_dictionaries(model, images, labels, counts, seed, generator),
    }


def _effects(outcomes) -> dict[str, Tensor]:
    """Mean loss of the true activation without each group (G,), by kind."""
    return {kind: (outcomes.base[0] - one[:, 0]).mean(1) for kind, one in outcomes.single.items()}


def _base(base: Tensor, counts) -> Estimate:
    """True activation and accuracy (2,)."""
    each = [compare_means(one[None], counts, shares=k == 1)[0] for k, one in enumerate(base)]
    return stack(Estimate(one.value, one.ci95, base.shape[1]) for one in each)


def _paired(values: Tensor, base: Tensor, counts, *, shares: bool) -> Estimate:
    """Means of values (G, N) less those of base (N,); `shares`: of what is 0 or 1."""
    both = torch.cat([base[None], values.reshape(-1, base.shape[0])])
    change = compare_means(both, counts, shares=shares).difference[1:]
    return Estimate(change.value, change.ci95, len(base))


def _changes(outcomes, what: int, counts) -> dict[str, Estimate]:
    return {
        kind: _paired(one[:, what], outcomes.base[what], counts, shares=what == 1)
        for kind, one in outcomes.single.items()
    }


def _controls(outcomes, what: int, counts) -> dict[str, Estimate]:
    return {
        kind: _paired(one[what][None], outcomes.base[what], counts, shares=what == 1)[0]
        for kind, one in outcomes.control.items()
    }


def _first(outcomes, kind: str, number: int, counts) -> Estimate:
    """Change of the true activation (2,) without a group and without random ones of its norm."""
    own, control = outcomes.single[kind][number, 0], outcomes.matched[kind][0]
    each = torch.stack([own, control]) - outcomes.base[0]
    return compare_means(each, counts, shares=False)


def rank_agreement(one: Tensor, other: Tensor) -> float:
    """Spearman's correlation of two importances (G,) of the same groups; NaN where one is flat."""
    from scipy.stats import rankdata  # takes time to import

    if float(one.std()) == 0 or float(other.std()) == 0:
        return float("nan")
    return float(np.corrcoef(rankdata(torch.stack([one, other]).cpu(), axis=-1))[0, 1])


def _curve(outcomes, kind: str, what: int, counts) -> Estimate:
    """(3, S) by order and step."""
    values = outcomes.curves[kind][:, :, what]
    rows = [compare_means(one, counts, shares=what == 1) for one in values]
    return stack(Estimate(one.value, one.ci95, values.shape[2]) for one in rows)


def _area(outcomes, kinds, kind: str, what: int, counts) -> Estimate:
    """Mean height of the curves (3,) from nothing removed to the last step, by trapezia."""
    values = outcomes.curves[kind][:, :, what].double()
    base = outcomes.base[what].double().expand(len(values), 1, -1)
    places = torch.tensor([0, *removal.steps(len(kinds[kind]))]).double()
    heights = torch.cat([base, values], 1)
    areas = torch.trapezoid(heights, places, dim=1) / places[-1]
    return compare_means(areas, counts, shares=what == 1)


def _dictionaries(model, images, labels, counts, seed: int, generator) -> dict:
    """The fields about dictionaries of couplings."""
    own, _, predicted = last_couplings(model, images)
    levels = dictionaries.LEVELS
    result = dictionaries.dictionary(own, predicted)
    apart = dictionaries.dictionary(dictionaries.apart(own, predicted, generator), predicted)
    rows = []
    for batch in torch.arange(len(images)).split(250):
        several = [dictionaries.rounded(own[batch], count) for count in levels]
        activations = under_couplings(model, images[batch], [None, *several])
        rows.append(winners(activations) == labels[batch])
    accuracy = compare_means(torch.cat(rows, 1), counts)
    fresh = None
    try:
        network = checkpoint.fresh(model, seed, images=images)
    except ValueError:
        pass  # a user-defined network, which cannot be built anew
    else:
        couplings, _, answers = last_couplings(network, images)
        fresh = dictionaries.dictionary(couplings, answers)
    return {
        "levels": list(levels),
        "entropy_bits": result.entropy_bits,
        "keys": result.keys,
        "child_bits": result.child_bits,
        "bound_bits": result.bound_bits,
        "apart_bits": apart.entropy_bits,
        "fresh_bits": None if fresh is None else fresh.entropy_bits,
        "rounded_accuracy": accuracy,
    }
