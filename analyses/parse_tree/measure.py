"""Preferences of primary capsules: their variance, favourites, frozen couplings, shifted images.

A preference is a coupling minus the mean coupling of its child (primary capsule). Its mean square
over images, children and parents is exactly the sum of the mean squares of these components:

    parents      mean over all children and images
    positions    deviation of a position from that, mean over images
    types        deviation of a capsule type, mean over images
    children     deviation of a single child, mean over images
    classes      deviation of a class's images, mean over all children
    by child     further deviation of a class's images in a single child
    images       the rest, which differs between images of a class

The first four are the same in all images; the others change with the image.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, one_hot

from capsviz import checkpoint
from capsviz.statistics.comparison import compare_explained, compare_means
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.intervals import mean_interval
from capsviz.statistics.words import UNTRAINED
from capsviz.tracing import CHUNK_IMAGES, KEEP, abilities, trace, under_couplings
from capsviz.tracing.many import couples, last_couplings, winners
from capsviz.transforms.augment import cut

COMPONENTS = ("parents", "positions", "types", "children", "classes", "by child", "images")
TRAINED, UNKNOWN = "trained", "this network"
CHOICES = (
    "differs, other class",
    "differs, same class",
    "not the usual one",
    "the predicted class",
    "another image's prediction",
)
FROZEN = (
    "its own",
    "mean of other images",
    "one tree: each class's column",
    "mean of its predicted class",
    "mean of another class",
    "uniform",
)
TREES = ("whole tree", "less its class's")
SHIFTED = ("at the shifted position", "at the same position", "at the opposite position")
RANDOM = ("random matrices, own", "random matrices, shared")  # controls: see `randomised`
SOURCES = {  # values compared between classes, and their fields of a trace
    "couplings": "couplings",
    "votes": "votes",
    "primary capsules": "children",
    "their activations": "child_activations",
    "pixels": "images",
}
BLOCK = 50  # resamples at a time
VOTES_CHUNK = 8  # images at a time, because their votes are in double precision
ROUNDING = 1e-6  # preferences below this share of the largest coupling are rounding errors


class Observation(NamedTuple):
    """Couplings and predicted classes of N images."""

    couplings: Tensor  # (N, I, J) of the last iteration
    uniform: Tensor  # (I, J) uniform couplings
    predicted: Tensor  # (N,)
    grid: tuple[int, int, int] | None


def known_as(model) -> str:
    """Return the name of a network: "trained" only if its card says so."""
    return TRAINED if checkpoint.is_trained(model) else UNKNOWN


def untrained(model, images, seeds: int, seed: int) -> tuple[dict[str, nn.Module], list[str]]:
    """Return untrained networks by name, and a note if the network cannot be rebuilt."""
    numbers = range(seed, seed + seeds)
    names = [UNTRAINED] if seeds == 1 else [f"{UNTRAINED}, seed {k}" for k in numbers]
    try:
        each = [checkpoint.untrained_like(model, k, images=images) for k in numbers]
    except ValueError as error:
        return {}, [f"no untrained network: {error}"]
    return dict(zip(names, each, strict=True)), []


def observe(model, images: Tensor) -> Observation:
    """Observe images (N, C, H, W); ValueError if not every child is coupled to every parent."""
    return Observation(*last_couplings(model, images), abilities(model).grid)


def preferences(couplings: Tensor) -> Tensor:
    """Return preferences: couplings (..., I, J) minus their mean over J."""
    return couplings - couplings.mean(-1, keepdim=True)


def is_uniform(couplings: Tensor) -> bool:
    """Return whether couplings are uniform, up to rounding."""
    largest = float(couplings.abs().max())
    return float(preferences(couplings).abs().max()) <= ROUNDING * largest


def shares(own: Observation, labels: Tensor, counts: np.ndarray) -> Estimate:
    """Return the share of each component (7,), with intervals by `counts` of `draw_resamples`.

    Intervals are centred on the value: repeated images in a resample overstate the distance
    between classes. The shares are NaN if couplings are uniform.
    """
    values = preferences(own.couplings) * (not is_uniform(own.couplings))
    every = components(values.double(), labels, own.grid, torch.ones(1, len(values)))[0]
    drawn = components(values, labels, own.grid, torch.from_numpy(counts))
    with np.errstate(invalid="ignore"):
        value = every / every.sum()
        drawn = drawn / drawn.sum(1, keepdims=True)
    low, high = np.percentile(drawn - drawn.mean(0) + value, [2.5, 97.5], axis=0).clip(0, 1)
    ends = np.stack([np.minimum(low, value), np.maximum(high, value)], -1)
    return Estimate(value, ends, len(values))


def components(
    values: Tensor, labels: Tensor, grid: tuple[int, int, int] | None, counts: Tensor
) -> np.ndarray:
    """Return mean squares (R, 7) of preferences (N, I, J) by component, for `counts` (R, N).

    Each row of `counts` is one resample. Positions and types are 0 if `grid`, (types, rows,
    columns), is None.
    """
    _, I, J = values.shape
    flat = values.flatten(1)
    squares = flat.double().square().sum(1)
    rows = []
    for some in counts.split(BLOCK):
        n = some.sum(1).double()
        total = flat.new_zeros(len(some), I, J).double()
        between = torch.zeros(len(some), dtype=torch.double)
        alike = torch.zeros_like(between)
        for k in labels.unique():
            own = labels == k
            of_class = (some[:, own].to(flat) @ flat[own]).double().view(-1, I, J)
            weight = some[:, own].sum(1).double().clamp_min(1e-9)
            between += of_class.square().sum((1, 2)) / weight
            alike += I * of_class.mean(1).square().sum(1) / weight
            total += of_class
        mean = total / n[:, None, None]
        fixed = _fixed(mean, grid) * n[:, None]
        classes = alike - fixed[:, 0]
        by_child = between - fixed.sum(1) - classes
        images = some.double() @ squares - between
        parts = torch.cat([fixed, torch.stack([classes, by_child, images], 1)], 1)
        rows.append((parts / (n * I * J)[:, None]).clamp_min(0))
    return torch.cat(rows).numpy()


def _fixed(mean: Tensor, grid) -> Tensor:
    """Return sums of squares (R, 4) of mean preferences (R, I, J): the first four components."""
    parents = mean.mean(1, keepdim=True)
    every = mean.shape[1] * parents.square().sum((1, 2))
    whole = mean.square().sum((1, 2))
    places = types = torch.zeros_like(every)
    if grid is not None:
        by_grid = mean.unflatten(1, (grid[0], grid[1] * grid[2]))
        places = (by_grid.mean(1) - parents).square().sum((1, 2)) * grid[0]
        types = (by_grid.mean(2) - parents).square().sum((1, 2)) * grid[1] * grid[2]
    return torch.stack([every, places, types, whole - every - places - types], 1)


def with_class(
    model, images: Tensor, labels: Tensor, counts: np.ndarray
) -> tuple[list[str], Estimate]:
    """Return the `SOURCES` of a network (A,), and the share of their variance between classes.

    The difference is to the couplings' share. A share is NaN if its source varies only by rounding.
    """
    whole = trace(model, images[:1])
    parts = {name: part for name, part in SOURCES.items() if getattr(whole, part) is not None}
    keep = [part for part in parts.values() if part in KEEP]
    hot = one_hot(labels).double()

    def look() -> Iterator[tuple[str, Tensor, Tensor]]:  # one part at a time, in double precision
        for rows in torch.arange(len(images)).split(VOTES_CHUNK):
            traced = trace(model, images[rows], keep=keep)
            for name, part in parts.items():
                value = traced.require(part)
                value = value[-1] if part == "couplings" else value
                yield name, hot[rows], value.flatten(1).double()
            del traced, value  # free memory before the next chunk

    sums = dict.fromkeys(parts, torch.zeros(()))
    for name, classes, value in look():
        sums[name] = sums[name] + classes.T @ value
    squares: dict[str, list[Tensor]] = {name: [] for name in parts}
    for name, classes, value in look():
        means = classes / hot.sum(0).clamp_min(1) @ sums[name], sums[name].sum(0) / len(images)
        each = [(value - one).square_().sum(1) for one in (*means, 0)]
        squares[name].append(torch.stack(each))
    within, about, size = torch.stack([torch.cat(one, 1) for one in squares.values()], 1).numpy()
    about[about.sum(1) <= ROUNDING**2 * size.sum(1)] = np.nan
    return list(parts), compare_explained(within, about, counts)


def own_column(couplings: Tensor, labels: Tensor, counts: np.ndarray) -> Estimate:
    """Return the share of the couplings' variance between classes in the class's own column."""
    hot = one_hot(labels, couplings.shape[2]).double()
    values = couplings.double()
    means = torch.einsum("nk,nij->kij", hot / hot.sum(0).clamp_min(1), values)
    about = (values - values.mean(0)).square_()
    between = (about - (values - means[labels]).square_()).sum(1)
    if between.sum() <= ROUNDING**2 * values.square().sum():
        between = torch.full_like(between, torch.nan)
    others = (between * (1 - hot)).sum(1, keepdim=True)
    return compare_explained(others.T.numpy(), between.sum(1)[None].numpy(), counts)[0]


def favourites(couplings: Tensor) -> Tensor:
    """Return the parent (..., I) with each child's largest coupling; -1 for uniform couplings."""
    strength, favourite = preferences(couplings).max(-1)
    return torch.where(strength > ROUNDING * couplings.abs().amax(-1), favourite, -1)


class Usual(NamedTuple):
    """Usual trees in other images: one over all images, and one for each class."""

    favourite: Tensor  # (I,) the most common favourite of each child; -1: none
    mean: Tensor  # (I, J) mean couplings
    of_class: Tensor  # (J, I, J) mean couplings of each class; of all images for an absent class


def usual(model, images: Tensor, classes: Tensor) -> Usual:
    """Return the usual trees of images (M, C, H, W) of classes (M,), traced in chunks."""
    hits, sums = torch.zeros((), dtype=torch.long), torch.zeros((), dtype=torch.double)
    for rows in torch.arange(len(images)).split(CHUNK_IMAGES):
        couplings, _, _ = last_couplings(model, images[rows])
        J, favourite = couplings.shape[2], favourites(couplings)
        hits = hits + torch.stack([(favourite == j).sum(0) for j in range(-1, J)])
        hot = one_hot(classes[rows], J).double()
        sums = sums + torch.einsum("nk,nij->kij", hot, couplings.double())
    n = classes.bincount(minlength=len(sums))[:, None, None]
    mean = sums.sum(0) / len(images)
    of_class = torch.where(n > 0, sums / n, mean)
    return Usual(hits.argmax(0) - 1, mean.to(couplings), of_class.to(couplings))


def choices(
    favourite: Tensor, known: Tensor, labels: Tensor, predicted: Tensor, generator
) -> Estimate:
    """Return the mean shares of children (5,) with each property of `CHOICES`.

    Means are over images or over disjoint pairs of images, with intervals by Student's t.
    `favourite` (N, I) holds the images' favourites, and `known` (I,) the usual ones in other
    images. A share is NaN if there are fewer than two pairs or images, or if no child favours any
    parent.
    """
    unlike, like = couples(labels, generator), _like(labels, generator)
    voting, other = unlike.flatten(), unlike.flip(1).flatten()
    shares = [
        *(favourite[a] != favourite[b] for a, b in (unlike.T, like.T)),
        favourite != known,
        favourite == predicted[:, None],
        favourite[voting] == predicted[other][:, None],
    ]
    none = bool((favourite < 0).all())  # there is nothing to compare
    return stack([_mean(one[:0] if none else one) for one in shares])


def _mean(chosen: Tensor) -> Estimate:
    """Return the share of children (N, I), a mean over N images or pairs with its interval."""
    values = chosen.double().mean(1).numpy()
    if len(values) < 2:
        return Estimate(np.array(np.nan), np.full(2, np.nan), len(values) or None)
    value, ends = mean_interval(values)
    return Estimate(value, ends.clip(0, 1), len(values))


def _like(labels: Tensor, generator) -> Tensor:
    """Return disjoint pairs (P, 2) of images of the same class."""
    pairs = []
    for k in labels.unique():
        own = (labels == k).nonzero().flatten()
        own = own[torch.randperm(len(own), generator=generator)]
        pairs.append(own[: len(own) // 2 * 2].view(-1, 2))
    return torch.cat(pairs)


def frozen(model, images, own: Observation, known: Usual, generator, progress=iter) -> Tensor:
    """Return activations (6, N, J) with couplings frozen in the ways of `FROZEN`."""
    J, of_class = own.couplings.shape[2], known.of_class
    tree = torch.stack([of_class[k, :, k] for k in range(J)], 1)
    another = (own.predicted + torch.randint(1, J, (len(images),), generator=generator)) % J
    parts = []
    for rows in progress(torch.arange(len(images)).split(CHUNK_IMAGES)):
        several = (
            None, known.mean, tree, of_class[own.predicted[rows]], of_class[another[rows]],
            own.uniform,
        )  # fmt: skip
        parts.append(under_couplings(model, images[rows], several))
    return torch.cat(parts, 1)


def steps(model, grid) -> list[tuple[int, int]]:
    """Return (axis, pixels) of each shift of an image by one position of the grid.

    ValueError if the network has no such shift.
    """
    if grid is None or max(grid[1:]) < 3:
        raise ValueError("the grid has fewer than 3 positions to move by")
    if not abilities(model).has_receptive_fields:
        raise ValueError("the network does not say what its positions see")
    apart = []
    for axis in (0, 1):
        if grid[1 + axis] < 3:
            continue
        first = [min(1, grid[1] - 1), min(1, grid[2] - 1)]  # off the border if possible
        second = [place + (k == axis) for k, place in enumerate(first)]
        near, far = (model.receptive_field(*position)[axis] for position in (first, second))
        px = max(far.start - near.start, far.stop - near.stop)  # the border may cut off one end
        if px > 0:
            apart.append((axis, px))
    if not apart:
        raise ValueError("neighbouring positions see the same part of the image")
    return apart


def randomised(model, grid: tuple[int, int, int], seed: int) -> list[nn.Module]:
    """Return two copies of a network with random matrices of the same s.d. as its own: `RANDOM`.

    In the first, each child has its own matrices. In the second, all children of a type share them,
    whatever their position. ValueError if the class capsules have no matrices like those of
    `capsviz.nn.capsule_layer`.
    """
    known = dict(model.capsules.named_parameters()) if abilities(model).routes_again else {}
    weight, positions = known.get("weight"), grid[1] * grid[2]
    if weight is None or weight.dim() != 4:
        raise ValueError("the matrices of its class capsules cannot be replaced")
    generator, networks = torch.Generator().manual_seed(seed), []
    for each in (1, positions):
        shape = (grid[0] * positions // each, *weight.shape[1:])
        drawn = torch.randn(shape, generator=generator).to(weight) * weight.std().detach()
        shared = {id(p): p for p in model.parameters()}
        networks.append(copy.deepcopy(model, shared))
        networks[-1].capsules.weight = nn.Parameter(drawn.repeat_interleave(each, 0))
    return networks


def shifted(
    model, images: Tensor, own: Observation, apart, usual_trees: Sequence = (0,), progress=iter
) -> Tensor:
    """Return correlations (T, 3, N) of an image's tree with that of the image shifted by `apart`.

    From both trees, each of T usual trees is subtracted: couplings (N, I, J), or 0. The correlation
    is over children and parents, after subtracting the mean over all children. Each child is paired
    with the child of its type at each position of `SHIFTED`. Correlations are means over
    `apart`, the shifts by one position (`steps`). They are NaN if only rounding is left in all
    images.
    """
    rows = []
    for axis, px in progress(apart):
        offsets = torch.full((2, len(images)), px)
        offsets[axis] = 0  # the window begins earlier, so the content moves to higher indices
        moved_on = observe(model, cut(images, offsets, px)).couplings
        for less in usual_trees:
            before, after = (  # (N, types, positions along the axis, positions across, J)
                preferences(one - less).unflatten(1, own.grid).movedim(2 + axis, 2)
                for one in (own.couplings, moved_on)
            )
            middle = before[:, :, 1:-1]
            if _own(middle).abs().max() <= ROUNDING * own.couplings.abs().max():
                middle = torch.full_like(middle, torch.nan)
            for lag in (after[:, :, 2:], after[:, :, 1:-1], after[:, :, :-2]):
                rows.append(_correlation(middle, lag))
    return torch.stack(rows).view(len(apart), len(usual_trees), 3, -1).mean(0)


def _own(values: Tensor) -> Tensor:
    """Return values minus the mean over all children, in double precision."""
    return values.double() - values.double().mean((1, 2, 3), keepdim=True)


def _correlation(a: Tensor, b: Tensor) -> Tensor:
    """Return the correlation of each image (N,), about each parent's mean over children."""
    return cosine_similarity(_own(a).flatten(1), _own(b).flatten(1), eps=1e-150)


def under_frozen(model, images, labels, own, known, generator, progress, counts) -> dict:
    """Return the fields about frozen couplings, or None for each and a note with the reason."""
    try:
        activations = frozen(model, images, own, known, generator, progress)
    except ValueError as error:
        none = dict.fromkeys(("frozen", "accuracy", "true_activation"))
        return none | {"notes": [f"no frozen couplings: {error}"]}
    predicted = winners(activations)
    true = activations[:, torch.arange(len(labels)), labels]
    return {
        "frozen": list(FROZEN),
        "accuracy": compare_means((predicted == labels).numpy(), counts),
        "true_activation": compare_means(true.numpy(), counts, shares=False),
        "notes": [],
    }


def of_shifted(model, untrained, images, observed, usual, seed, progress, counts) -> dict:
    """Return the fields about shifted images, or None for each and a note with the reason.

    `observed` holds the network's `Observation` and those of the untrained ones. `usual` (N, I, J)
    is the usual tree of each image's class.
    """
    own = observed[0]
    try:
        apart = steps(model, own.grid)
        if is_uniform(own.couplings):
            raise ValueError("all couplings are uniform, so none has a tree")
    except ValueError as error:
        none = dict.fromkeys(("shifts", "trees", "correlation"))
        return none | {"notes": [f"trees of shifted images: {error}"]}

    def correlations(network, observation, less):
        values = shifted(network, images, observation, apart, less, progress)
        return stack(compare_means(one, counts, shares=False) for one in values.numpy())

    controls, notes = dict(zip(untrained, observed[1:], strict=True)), []
    networks = dict(untrained)
    try:
        networks |= zip(RANDOM, randomised(model, own.grid, seed), strict=True)
        controls |= {name: observe(networks[name], images) for name in RANDOM}
    except ValueError as error:
        notes = [f"no random matrices: {error}"]
    controlled = [correlations(networks[name], one, (0,))[0] for name, one in controls.items()]
    return {
        "shifts": list(SHIFTED),
        "trees": list(TREES),
        "correlation": correlations(model, own, (0, usual)),
        "controls": list(controls) or None,
        "controlled": stack(controlled) if controlled else None,
        "notes": notes,
    }
