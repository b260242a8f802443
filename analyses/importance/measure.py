"""Run a network without some of its children, or without dimensions of their poses.

Dictionaries follow Renzulli, Tartaglione & Grangetto (2022, arXiv:2204.01298).
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsviz import checkpoint
from capsviz.statistics.comparison import compare_means, draw_resamples
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.intervals import Z
from capsviz.tracing import CHUNK_IMAGES, abilities, extent, inference, trace, under_couplings
from capsviz.tracing.evidence import has_places
from capsviz.tracing.many import groups, last_couplings, require_all_to_all, winners
from capsviz.tracing.rerouting import chunks
from capsviz.transforms.augment import to_uint8

DIMENSIONS = "dimensions"
ORDERS = ("random", "least important first", "most important first")
STEPS = np.arange(1, 8, 2) / 8  # shares of the groups that the curves remove
RANDOM = 2  # random orders of each image, averaged
DRAWS = 4  # random removals from each image, averaged as a control
ROUTED = "the others are routed again"
KEPT = "the others keep their couplings"
LEVELS = (3, 11, 51, 101, 501, 1001)  # numbers of levels that couplings are rounded to


class State(NamedTuple):
    """A chunk of B images with its children, or with its couplings if it cannot be routed again."""

    images: Tensor  # (B, C, H, W)
    primary: Tensor | None  # (B, I, D)
    active: Tensor | None  # (B, I)
    couplings: Tensor | None  # (B, I, J)
    norms: Tensor  # (B, I) of the children


def require_removable(model, images: Tensor) -> tuple[int, int, int] | None:
    """Return the grid of the children; ValueError if they can be neither rerouted nor uncoupled."""
    traced = trace(model, images[:1], keep=("couplings",))
    couplings = traced.require("couplings")
    require_all_to_all(couplings)
    if not abilities(model).routes_again:
        trace(model, images[:1], keep=("lengths",), couplings=couplings[-1])
    return traced.grid


def states(model, images: Tensor, progress=iter) -> Iterator[tuple[slice, State]]:
    """Yield the rows and the state of each chunk of images."""
    if abilities(model).routes_again:
        for rows, primary, active in chunks(model, images, progress):
            norms = primary.norm(dim=2)
            norms = norms if active is None else norms * active
            yield rows, State(images[rows], primary, active, None, norms)
        return
    for start in progress(range(0, len(images), CHUNK_IMAGES)):
        rows = slice(start, start + CHUNK_IMAGES)
        own = trace(model, images[rows], keep=("couplings",)).require("couplings")[-1].clone()
        norms = torch.ones_like(own[..., 0])  # equal if the children are unknown
        with suppress(ValueError):
            traced = trace(model, images[rows], keep=("child_activations",))
            norms = traced.require("child_activations")
        yield rows, State(images[rows], None, None, own, norms)


def without(model, state: State, kept: Tensor | None = None, primary: Tensor | None = None):
    """Return activations (B, J) with each child scaled by `kept`, (I,) or (B, I) in [0, 1].

    `primary` replaces the children of the state, if they can be routed again.
    """
    if state.couplings is not None:
        own = state.couplings if kept is None else state.couplings * kept[..., None]
        traced = trace(model, state.images, keep=("lengths",), couplings=own)
        return traced.require("lengths")
    children, active = state.primary if primary is None else primary, state.active
    assert children is not None  # a state has children or couplings
    if kept is not None:
        kept = kept.to(children)
        children = children * kept[..., None]
        active = None if active is None else active * kept
    with inference(model):
        return model.capsules.couple(children, active).activations.cpu()


def kinds_of(state: State, grid: tuple[int, int, int] | None) -> dict[str, Tensor]:
    """Return the members of each group by kind: bool (G, I), or (D, D) for pose dimensions."""
    kinds = groups(grid, state.norms.shape[1])
    if state.primary is not None and state.primary.shape[2] > 1:
        kinds[DIMENSIONS] = torch.eye(state.primary.shape[2], dtype=torch.bool)
    return kinds


def removed(model, state: State, kind: str, some: Tensor) -> Tensor:
    """Return activations (B, J) without `some` children ([B,] I) or dimensions ([B,] D)."""
    if kind == DIMENSIONS and state.primary is not None:
        return without(model, state, primary=state.primary * ~_batched(some, state)[:, None])
    return without(model, state, (~some).to(state.norms))


def removed_at_random(model, state: State, kind: str, some: Tensor, generator) -> Tensor:
    """Return activations (B, J) after random removal of the norm that a group has in each image.

    Random children are removed, the last one in part. For a dimension, that norm is removed along
    a random direction. Each image is drawn separately, so that intervals over images include the
    variation between draws.
    """
    some, B = _batched(some, state), len(state.norms)
    if kind == DIMENSIONS and state.primary is not None:
        direction = torch.randn(B, 1, state.primary.shape[2], generator=generator)
        direction = (direction / direction.norm(dim=2, keepdim=True)).to(state.primary)
        along = torch.where((state.primary * direction).sum(2) < 0, -1.0, 1.0)
        size = (state.primary * some[:, None]).norm(dim=2)
        changed = state.primary - (size * along)[..., None] * direction
        return without(model, state, primary=changed)
    order = torch.rand(state.norms.shape, generator=generator).argsort(1)
    target = (state.norms * some.to(state.norms)).sum(1)
    return without(model, state, kept_of_norm(state.norms, target, order))


def _batched(some: Tensor, state: State) -> Tensor:
    """Return `some` with a batch axis, (1, ·) or (B, ·), on the state's device."""
    return (some if some.dim() == 2 else some[None]).to(state.norms.device)


def kept_of_norm(norms: Tensor, target: Tensor, order: Tensor) -> Tensor:
    """Return the share of each child to keep (B, I), to remove norms of sum `target` (B,).

    Children are removed in the given order (B, I), the last one in part.
    """
    order = order.to(norms.device)
    sizes = norms.gather(1, order)
    before = sizes.cumsum(1) - sizes
    removal = ((target[:, None] - before) / sizes.clamp_min(1e-12)).clamp(0, 1)
    return torch.empty_like(norms).scatter_(1, order, 1 - removal)


def outcome(activations: Tensor, labels: Tensor) -> Tensor:
    """Return the true class's activation, and whether it is the largest: (2, B)."""
    true = activations.gather(1, labels[:, None])[:, 0]
    return torch.stack([true, (winners(activations) == labels).to(true)])


def plans(members: Tensor, importance: Tensor) -> Tensor:
    """Return what each step removes, least and most important first: bool (2, S, I or D).

    Groups are given by `members` (G, I or D) and `importance` (G,).
    """
    least = importance.argsort()
    return torch.stack([
        torch.stack([members[order[:m]].any(0) for m in steps(len(members))])
        for order in (least, least.flip(0))
    ])  # fmt: skip


def steps(count: int) -> list[int]:
    """Return how many of `count` groups each step of the curves removes."""
    return sorted({min(max(1, round(share * count)), count - 1) for share in STEPS})


def measure(
    model, images, labels, kinds, generator, *, rank=None, progress=iter
) -> dict[tuple[str, str], Tensor]:
    """Remove each group of each kind; with importances `rank`, measure controls and curves too.

    Return values by (name, kind). Their axis of 2 holds the true class's activation and whether the
    prediction is correct, for N images:

    "base"      (2, N) with all children; its kind is "".
    "single"    (G, 2, N) without each group.
    "control"   (2, N) without random children of a random group's norm, mean of draws.
    "matched"   (2, N) the same with the norm of the most important group.
    "curves"    (3, S, 2, N) in the order of `ORDERS`.
    """
    parts = defaultdict(list)
    planned = {kind: plans(kinds[kind], one) for kind, one in (rank or {}).items()}
    for rows, state in states(model, images, progress):
        truth, B = labels[rows], len(state.norms)
        parts["base", ""].append(outcome(without(model, state), truth))
        for kind, members in kinds.items():
            one = [outcome(removed(model, state, kind, some), truth) for some in members]
            parts["single", kind].append(torch.stack(one))
            if kind not in planned:
                continue
            drawn = [members[torch.randint(len(members), (B,), generator=generator)]
                     for _ in range(DRAWS)]  # fmt: skip
            same = [members[rank[kind].argmax()]] * DRAWS
            for name, some in (("control", drawn), ("matched", same)):
                each = [removed_at_random(model, state, kind, g, generator) for g in some]
                outcomes = torch.stack([outcome(activations, truth) for activations in each])
                parts[name, kind].append(outcomes.mean(0))
            ways = torch.rand(RANDOM, B, len(members), generator=generator).argsort(2)
            orders = [[members[one[:, :m]].any(1) for m in steps(len(members))] for one in ways]
            curves = [
                torch.stack([outcome(removed(model, state, kind, s), truth) for s in order])
                for order in (*orders, *planned[kind])
            ]
            random = torch.stack(curves[:RANDOM]).mean(0)
            parts["curves", kind].append(torch.stack([random, *curves[RANDOM:]]))
    return {key: torch.cat(some, -1) for key, some in parts.items()}


def of_one_image(model, image: Tensor, label: int | None, seed: int) -> dict[str, Any]:
    """Return the fields of `Result`, except label and classes, for an image (1, C, H, W)."""
    grid = require_removable(model, image)
    generator = torch.Generator().manual_seed(seed)
    ((_, state),) = states(model, image)
    whole = without(model, state)[0]
    watched = int(whole.argmax()) if label is None else label
    change, control = {}, {}
    for kind, members in kinds_of(state, grid).items():
        drawn = torch.randint(len(members), (8 * DRAWS,), generator=generator)
        random = [removed_at_random(model, state, kind, members[g], generator) for g in drawn]
        each = [removed(model, state, kind, some) for some in members]
        change[kind] = (torch.cat(each)[:, watched] - whole[watched]).numpy()
        less = (torch.cat(random)[:, watched] - whole[watched]).numpy()
        control[kind] = np.quantile(less, [0.05, 0.95])
    placed = has_places(grid) and abilities(model).has_receptive_fields
    return {
        "image": to_uint8(image[0]),
        "watched": watched,
        "activations": whole.numpy(),
        "change": change,
        "control": control,
        "grid": grid,
        "how": ROUTED if abilities(model).routes_again else KEPT,
        "extent_px": extent(model) if placed else None,
    }


def estimates(model, images, labels, others, seed: int, progress) -> dict[str, Any]:
    """Return the fields of `Statistics`, except classes, n and dataset."""
    grid = require_removable(model, images)
    generator = torch.Generator().manual_seed(seed)
    _, state = next(iter(states(model, images[:1])))
    kinds = kinds_of(state, grid)
    ranked = measure(model, others.images, others.labels, kinds, generator, progress=progress)
    rank = {kind: _mean_loss(ranked, kind) for kind in kinds}
    first = {kind: int(one.argmax()) for kind, one in rank.items()}
    found = measure(model, images, labels, kinds, generator, rank=rank, progress=progress)
    counts, base = draw_resamples(len(images), seed=seed), found["base", ""]
    fields: dict[str, Any] = defaultdict(dict)
    for kind, members in kinds.items():
        activation, control = found["single", kind][:, 0], found["control", kind][:1]
        fields["activation_change"][kind] = _mean_change(activation, base[0], counts)
        fields["control_activation_change"][kind] = _mean_change(control, base[0], counts)[0]
        curves = found["curves", kind][:, :, 1]  # (3, S, N)
        x = torch.tensor([0, *steps(len(members))]).double()
        heights = torch.cat([base[1].expand(len(curves), 1, -1), curves], 1).double()
        areas = torch.trapezoid(heights, x, dim=1) / x[-1]
        fields["curve_accuracy"][kind] = stack(_mean(one, counts, True) for one in curves)
        fields["area_accuracy"][kind] = compare_means(areas.numpy(), counts, shares=True)
        changes = torch.stack([found["single", kind][first[kind], 0], found["matched", kind][0]])
        change = compare_means((changes - base[0]).numpy(), counts, shares=False)
        fields["first_activation_change"][kind] = change
        fields["removed"][kind] = np.array(steps(len(members)))
    return {
        **fields,
        "base": stack(_mean(base[k : k + 1], counts, k == 1)[0] for k in range(2)),
        "kinds": list(kinds),
        "first": first,
        "orders": list(ORDERS),
        "grid": grid,
        "how": ROUTED if abilities(model).routes_again else KEPT,
        "others": others.name,
        **_dictionaries(model, images, labels, counts, seed, generator),
    }


def _mean_loss(found: dict[tuple[str, str], Tensor], kind: str) -> Tensor:
    """Return the mean loss of the true activation without each group (G,)."""
    return (found["base", ""][0] - found["single", kind][:, 0]).mean(1)


def _mean_change(values: Tensor, base: Tensor, counts) -> Estimate:
    """Return the mean differences of activations (G, N) from those of base (N,)."""
    less = compare_means(torch.cat([base[None], values]).numpy(), counts, shares=False).difference
    assert less is not None  # there are several rows
    return Estimate(less.value[1:], less.ci95[1:], len(base))


def _mean(rows: Tensor, counts, shares: bool) -> Estimate:
    """Return means of rows (K, N), without their differences."""
    return replace(compare_means(rows.numpy(), counts, shares=shares).undrawn(), difference=None)


def _dictionaries(model, images, labels, counts, seed: int, generator) -> dict:
    """Return the fields about dictionaries of couplings."""
    own, _, predicted = last_couplings(model, images)
    rows = []
    for batch in torch.arange(len(images)).split(250):
        several = [rounded(own[batch], count) for count in LEVELS]
        activations = under_couplings(model, images[batch], [None, *several])
        rows.append(winners(activations) == labels[batch])
    untrained = None
    with suppress(ValueError):  # a user-defined network cannot be rebuilt
        network = checkpoint.untrained_like(model, seed, images=images)
        couplings, _, answers = last_couplings(network, images)
        untrained = dictionary(couplings, answers)["entropy_bits"]
    return {
        **dictionary(own, predicted),
        "levels": list(LEVELS),
        "apart_bits": dictionary(apart(own, predicted, generator), predicted)["entropy_bits"],
        "untrained_bits": untrained,
        "rounded_accuracy": compare_means(torch.cat(rows, 1).numpy(), counts),
    }


def rounded(couplings: Tensor, levels: int) -> Tensor:
    """Return couplings rounded to the nearest of so many equally spaced levels from 0 to 1."""
    return (couplings * (levels - 1) + 0.5).floor() / (levels - 1)


def dictionary(couplings: Tensor, predicted: Tensor, levels=LEVELS) -> dict[str, Any]:
    """Return the fields about dictionaries of couplings (N, I, J), given predicted classes (N,).

    Intervals are by the delta method. The upper end is NaN if all images of a class differ, or if
    it has one image: more images might show more trees.
    """
    classes, rows = predicted.unique(), []
    sizes = [int((predicted == k).sum()) for k in classes]
    for count in levels:
        each = [_of_class(rounded(couplings[predicted == k, :, k], count)) for k in classes]
        bits, variance, number, single = np.array(each).T
        half = Z * np.sqrt(variance.sum()) / len(classes)
        differ = (number == sizes).any()
        high = np.nan if differ else bits.mean() + half
        rows.append((bits.mean(), max(bits.mean() - half, 0), high, number.mean(), single.mean()))
    value, low, highs, keys, child = np.array(rows).T
    return {
        "entropy_bits": Estimate(value, np.stack([low, highs], 1), len(predicted)),
        "keys": keys,
        "child_bits": child,
        "bound_bits": float(np.log2(sizes).mean()),
    }


def _of_class(values: Tensor) -> tuple[float, float, int, float]:
    """Return the entropy of keys (n, I), its variance, their number, and a child's mean entropy."""
    n = len(values)
    _, which, counts = values.unique(dim=0, return_inverse=True, return_counts=True)
    surprise = -(counts / n).double().log2()[which]
    variance = float(surprise.var()) / n if n > 1 else 0.0
    ordered = values.sort(0).values
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[1:] = ordered[1:] != ordered[:-1]
    group = new.long().cumsum(0) - 1
    sizes = torch.zeros_like(ordered).scatter_add_(0, group, torch.ones_like(ordered)).double() / n
    single = torch.special.entr(sizes).sum(0) / np.log(2)
    return float(surprise.mean()), variance, len(counts), float(single.mean())


def apart(couplings: Tensor, predicted: Tensor, generator) -> Tensor:
    """Return couplings shuffled independently for each child, among images of a predicted class.

    Each child then varies as before, but no longer together with the others.
    """
    mixed = couplings.clone()
    for k in predicted.unique():
        own = (predicted == k).nonzero().flatten()
        keys = torch.rand(len(own), couplings.shape[1], generator=generator).argsort(0)
        mixed[own] = couplings[own].gather(0, keys[..., None].expand(-1, -1, couplings.shape[2]))
    return mixed
