"""Preferences of primary capsules: their variance, favourites, frozen couplings, shifted images.

A preference is a coupling less the mean of the couplings of its child (primary capsule). Its mean
square over images, children and parents is a sum of means of squares, exactly:

    parents      what all children favour a parent by, in every image
    positions    what those of a position add to that, in every image
    types        what those of a type add, in every image
    children     what a single child adds, in every image
    classes      what all children add alike in the images of a class
    by child     what a single child adds to that in the images of a class
    images       what is left: it differs between images of a class

The first four are the same tree in all images; the others change with the image.
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
RANDOM = ("random matrices, own", "random matrices, shared")  # in the trained network
SOURCES = {  # whose variance goes with the class, and the parts of a trace that they are
    "couplings": "couplings",
    "votes": "votes",
    "primary capsules": "children",
    "their activations": "child_activations",
    "pixels": "images",
}
BLOCK = 50  # resamples at a time
OF_VOTES = 8  # images with votes in double precision at a time
NOTHING = 1e-6  # of the largest coupling: smaller preferences are rounding


class Observation(NamedTuple):
    """Couplings and predicted classes of N images."""

    couplings: Tensor  # (N, I, J) of the last iteration
    even: Tensor  # (I, J)
    predicted: Tensor  # (N,)
    grid: tuple[int, int, int] | None


def known_as(model) -> str:
    """Return what a network is called: trained only where its card says so."""
    return TRAINED if checkpoint.is_trained(model) else UNKNOWN


def untrained(model, images, seeds: int, seed: int) -> tuple[dict[str, nn.Module], list[str]]:
    """Return untrained networks by name, and a note where the network cannot be built anew."""
    numbers = range(seed, seed + seeds)
    names = [UNTRAINED] if seeds == 1 else [f"{UNTRAINED}, seed {k}" for k in numbers]
    try:
        each = [checkpoint.untrained_like(model, k, images=images) for k in numbers]
    except ValueError as error:
        return {}, [f"no untrained network: {error}"]
    return dict(zip(names, each, strict=True)), []


def observe(model, images: Tensor) -> Observation:
    """Return couplings of images (N, C, H, W); ValueError for a layer that is not all to all."""
    return Observation(*last_couplings(model, images), abilities(model).grid)


def preferences(couplings: Tensor) -> Tensor:
    """Return preferences: couplings (..., I, J) less their mean over J."""
    return couplings - couplings.mean(-1, keepdim=True)


def is_even(couplings: Tensor) -> bool:
    """Return whether couplings are uniform, but for rounding."""
    largest = float(couplings.abs().max())
    return float(preferences(couplings).abs().max()) <= NOTHING * largest


def shares(own: Observation, labels: Tensor, counts: np.ndarray) -> Estimate:
    """Return the share of each component (7,), with intervals by resamples of `draw_resamples`.

    A resample holds some images twice, which makes classes look further apart: intervals are
    centred on the value. NaN where no child favours anything.
    """
    values = preferences(own.couplings) * (not is_even(own.couplings))
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
    """Return mean squares (R, 7) of preferences (N, I, J) by component, under R resamples (R, N).

    Without a grid (types, rows, columns) of the children, positions and types are 0.
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
    """Sums of squares (R, 4) of mean preferences (R, I, J)."""
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

    Its difference is less that of the couplings. NaN where nothing varies but rounding.
    """
    whole = trace(model, images[:1])
    parts = {name: part for name, part in SOURCES.items() if getattr(whole, part) is not None}
    keep = [part for part in parts.values() if part in KEEP]
    hot = one_hot(labels).double()

    def look() -> Iterator[tuple[str, Tensor, Tensor]]:  # one part at a time in double
        for rows in torch.arange(len(images)).split(OF_VOTES):
            traced = trace(model, images[rows], keep=keep)
            for name, part in parts.items():
                value = traced.require(part)
                value = value[-1] if part == "couplings" else value
                yield name, hot[rows], value.flatten(1).double()
            del traced, value  # before the next

    sums = dict.fromkeys(parts, torch.zeros(()))
    for name, classes, value in look():
        sums[name] = sums[name] + classes.T @ value
    squares: dict[str, list[Tensor]] = {name: [] for name in parts}
    for name, classes, value in look():
        means = classes / hot.sum(0).clamp_min(1) @ sums[name], sums[name].sum(0) / len(images)
        each = [(value - one).square_().sum(1) for one in (*means, 0)]
        squares[name].append(torch.stack(each))
    within, about, size = torch.stack([torch.cat(one, 1) for one in squares.values()], 1).numpy()
    about[about.sum(1) <= NOTHING**2 * size.sum(1)] = np.nan
    return list(parts), compare_explained(within, about, counts)


def own_column(couplings: Tensor, labels: Tensor, counts: np.ndarray) -> Estimate:
    """Return the share of the couplings' variance between classes in the class's own column."""
    hot = one_hot(labels, couplings.shape[2]).double()
    values = couplings.double()
    means = torch.einsum("nk,nij->kij", hot / hot.sum(0).clamp_min(1), values)
    about = (values - values.mean(0)).square_()
    between = (about - (values - means[labels]).square_()).sum(1)
    if between.sum() <= NOTHING**2 * values.square().sum():
        between = torch.full_like(between, torch.nan)
    others = (between * (1 - hot)).sum(1, keepdim=True)
    return compare_explained(others.T.numpy(), between.sum(1)[None].numpy(), counts)[0]


def favourites(couplings: Tensor) -> Tensor:
    """Return the parent (..., I) with each child's largest coupling; -1 for uniform couplings."""
    strength, favourite = preferences(couplings).max(-1)
    return torch.where(strength > NOTHING * couplings.abs().amax(-1), favourite, -1)


class Usual(NamedTuple):
    """The usual tree of children in other images: one for every image, and one for each class."""

    favourite: Tensor  # (I,) the most common favourite of each child; -1: none
    mean: Tensor  # (I, J) couplings
    of_class: Tensor  # (J, I, J) couplings of the images of each class; of all for an empty class


def usual(model, images: Tensor, classes: Tensor) -> Usual:
    """Return what is usual in images (M, C, H, W) of classes (M,), traced a few at a time."""
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
    """Return shares of children (5,), means over pairs of images or over images: see `CHOICES`.

    Intervals are by Student's t; no image is in two couples of a kind. NaN where there are
    fewer than two couples, or images, and where no child favours any parent. `favourite` (N, I) is
    of the images, and `known` (I,) the usual ones, of other images.
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
    """Share of children of each image, or pair (N, I): mean and interval."""
    values = chosen.double().mean(1).numpy()
    if len(values) < 2:
        return Estimate(np.array(np.nan), np.full(2, np.nan), len(values) or None)
    value, ends = mean_interval(values)
    return Estimate(value, ends.clip(0, 1), len(values))


def _like(labels: Tensor, generator) -> Tensor:
    """Disjoint couples (C, 2) of images of one class."""
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
            None, known.mean, tree, of_class[own.predicted[rows]], of_class[another[rows]], own.even
        )  # fmt: skip
        parts.append(under_couplings(model, images[rows], several))
    return torch.cat(parts, 1)


def steps(model, grid) -> list[tuple[int, int]]:
    """Return (axis, pixels): the shift of an image for one position of the grid.

    ValueError for a network without such a shift.
    """
    if grid is None or max(grid[1:]) < 3:
        raise ValueError("the grid has fewer than 3 positions to move by")
    if not abilities(model).has_receptive_fields:
        raise ValueError("the network does not say what its positions see")
    apart = []
    for axis in (0, 1):
        if grid[1 + axis] < 3:
            continue
        first = [min(1, grid[1] - 1), min(1, grid[2] - 1)]  # away from the border, if there is room
        second = [place + (k == axis) for k, place in enumerate(first)]
        near, far = (model.receptive_field(*position)[axis] for position in (first, second))
        px = max(far.start - near.start, far.stop - near.stop)  # the border cuts either short
        if px > 0:
            apart.append((axis, px))
    if not apart:
        raise ValueError("neighbouring positions see the same part of the image")
    return apart


def randomised(model, grid: tuple[int, int, int], seed: int) -> list[nn.Module]:
    """Return copies of a network with the `RANDOM` matrices, of the s.d. of its own ones.

    Those of each child its own, and one for all children of a type, wherever they are. ValueError
    for class capsules without matrices as those of `capsviz.nn.capsule_layer`.
    """
    known = dict(model.capsules.named_parameters()) if abilities(model).routes_again else {}
    weight, positions = known.get("weight"), grid[1] * grid[2]
    if weight is None or weight.dim() != 4:
        raise ValueError("the matrices of its class capsules cannot be replaced")
    generator, networks = torch.Generator().manual_seed(seed), []
    for each in (1, positions):
        shape = (grid[0] * positions // each, *weight.shape[1:])
        drawn = torch.randn(shape, generator=generator).to(weight) * weight.std().detach()
        networks.append(copy.deepcopy(model, {id(p): p for p in model.parameters()}))  # shared
        networks[-1].capsules.weight = nn.Parameter(drawn.repeat_interleave(each, 0))
    return networks


def shifted(
    model, images: Tensor, own: Observation, apart, usual_trees: Sequence = (0,), progress=iter
) -> Tensor:
    """Return correlations (T, 3, N) of an image's tree and that of the image shifted by a position.

    Of what single children add to what all of them favour, over children and parents, and of the
    same less T usual trees, couplings (N, I, J) or 0: of a child with the child of its type at the
    shifted position, at the same position, and at that of the opposite shift. Mean over shifts
    (`steps`). NaN where nothing but rounding is left in any image.
    """
    rows = []
    for axis, px in progress(apart):
        offsets = torch.full((2, len(images)), px)
        offsets[axis] = 0  # the window begins earlier: what it shows lies later
        moved_on = observe(model, cut(images, offsets, px)).couplings
        for less in usual_trees:
            before, after = (  # (N, types, positions along the axis, positions across, J)
                preferences(one - less).unflatten(1, own.grid).movedim(2 + axis, 2)
                for one in (own.couplings, moved_on)
            )
            middle = before[:, :, 1:-1]
            if _own(middle).abs().max() <= NOTHING * own.couplings.abs().max():
                middle = torch.full_like(middle, torch.nan)
            for lag in (after[:, :, 2:], after[:, :, 1:-1], after[:, :, :-2]):
                rows.append(_correlation(middle, lag))
    return torch.stack(rows).view(len(apart), len(usual_trees), 3, -1).mean(0)


def _own(values: Tensor) -> Tensor:
    """Return values less the mean of all children, in double."""
    return values.double() - values.double().mean((1, 2, 3), keepdim=True)


def _correlation(a: Tensor, b: Tensor) -> Tensor:
    """Pearson's of each image, parent by parent about the mean of its children: (N,)."""
    return cosine_similarity(_own(a).flatten(1), _own(b).flatten(1), eps=1e-150)


def under_frozen(model, images, labels, own, known, generator, progress, counts) -> dict:
    """Accuracy and activations with frozen couplings, and why there are none."""
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
    """Correlations with the trees of shifted images, and why there are none.

    Observed are the network and the untrained ones; `usual` (N, I, J) is the usual tree of each
    image's class.
    """
    own = observed[0]
    try:
        apart = steps(model, own.grid)
        if is_even(own.couplings):
            raise ValueError("all couplings are uniform, so none has a tree")
    except ValueError as error:
        none = dict.fromkeys(("shifts", "trees", "correlation"))
        return none | {"notes": [f"trees of shifted images: {error}"]}

    def correlations(network, seen, less):
        values = shifted(network, images, seen, apart, less, progress)
        return stack(compare_means(one, counts, shares=False) for one in values.numpy())

    seen, notes = dict(zip(untrained, observed[1:], strict=True)), []
    networks = dict(untrained)
    try:
        networks |= zip(RANDOM, randomised(model, own.grid, seed), strict=True)
        seen |= {name: observe(networks[name], images) for name in RANDOM}
    except ValueError as error:
        notes = [f"no random matrices: {error}"]
    controls = [correlations(networks[name], one, (0,))[0] for name, one in seen.items()]
    return {
        "shifts": list(SHIFTED),
        "trees": list(TREES),
        "correlation": correlations(model, own, (0, usual)),
        "controls": list(seen) or None,
        "controlled": stack(controls) if controls else None,
        "notes": notes,
    }
