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
    fields: dict = {"base": _base(outcomes.base, counts)}
    for what, name in enumerate(("activation", "accuracy")):
        base, shares = outcomes.base[what], what == 1
        for kind, members in kinds.items():
            curves = outcomes.curves[kind][:, :, what]  # (3, S, N)
            single, control = outcomes.single[kind][:, what], outcomes.control[kind][what][None]
            for field, value in (
                (f"{name}_change", _paired(single, base, counts, shares)),
                (f"control_{name}_change", _paired(control, base, counts, shares)[0]),
                (f"curve_{name}", _means(curves, counts, shares)),
                (f"area_{name}", _area(curves, base, removal.steps(len(members)), counts, shares)),
            ):
                fields.setdefault(field, {})[kind] = value
    return {
        **fields,
        "kinds": list(kinds),
        "first": first,
        "first_activation_change": {k: _first(outcomes, k, first[k], counts) for k in kinds},
        "rank_agreement": {kind: rank_agreement(rank[kind], own[kind]) for kind in kinds},
        "orders": list(removal.ORDERS),
        "removed": {kind: np.array(removal.steps(len(rows))) for kind, rows in kinds.items()},
        "grid": grid,
        "how": removal.how(model),
        "others": others.name,
        **_dictionaries(model, images, labels, counts, seed, generator),
    }


def _effects(outcomes) -> dict[str, Tensor]:
    """Return the mean loss of the true activation without each group (G,), by kind."""
    return {kind: (outcomes.base[0] - one[:, 0]).mean(1) for kind, one in outcomes.single.items()}


def _base(base: Tensor, counts) -> Estimate:
    """Return true activation and accuracy (2,)."""
    each = [compare_means(one[None], counts, shares=k == 1)[0] for k, one in enumerate(base)]
    return stack(Estimate(one.value, one.ci95, base.shape[1]) for one in each)


def _paired(values: Tensor, base: Tensor, counts, shares: bool) -> Estimate:
    """Return means of values (G, N) less those of base (N,); `shares`: of what is 0 or 1."""
    change = compare_means(torch.cat([base[None], values]), counts, shares=shares).difference[1:]
    return Estimate(change.value, change.ci95, len(base))


def _first(outcomes, kind: str, number: int, counts) -> Estimate:
    """Return the change (2,) of the true activation without a group, and without random ones."""
    own, control = outcomes.single[kind][number, 0], outcomes.matched[kind][0]
    each = torch.stack([own, control]) - outcomes.base[0]
    return compare_means(each, counts, shares=False)


def rank_agreement(one: Tensor, other: Tensor) -> float:
    """Spearman's correlation of two importances (G,) of the same groups; NaN where one is flat."""
    from scipy.stats import rankdata  # takes time to import

    if float(one.std()) == 0 or float(other.std()) == 0:
        return float("nan")
    return float(np.corrcoef(rankdata(torch.stack([one, other]).cpu(), axis=-1))[0, 1])


def _means(curves: Tensor, counts, shares: bool) -> Estimate:
    """Return means (3, S) of curves (3, S, N), by order and step."""
    rows = [compare_means(one, counts, shares=shares) for one in curves]
    return stack(Estimate(one.value, one.ci95, curves.shape[2]) for one in rows)


def _area(curves: Tensor, base: Tensor, steps: list[int], counts, shares: bool) -> Estimate:
    """Return the mean height of the curves (3,), from nothing removed to the last step."""
    heights = torch.cat([base.expand(len(curves), 1, -1), curves], 1).double()
    x = torch.tensor([0, *steps]).double()
    return compare_means(torch.trapezoid(heights, x, dim=1) / x[-1], counts, shares=shares)


def _dictionaries(model, images, labels, counts, seed: int, generator) -> dict:
    """Return the fields about dictionaries of couplings."""
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
