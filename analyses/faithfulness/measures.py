"""Measures of `faithfulness`: curves, infidelity, sanity checks, and scenes."""

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from scipy.stats import rankdata
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, max_pool2d

from capsviz.data import Dataset, multimnist
from capsviz.experiments import maps
from capsviz.experiments.attacks import frozen, logits
from capsviz.nn.images import like_of
from capsviz.statistics.comparison import compare_means, draw_resamples
from capsviz.statistics.detection import auroc
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import mean_interval
from capsviz.statistics.words import TIE
from capsviz.tracing import abilities, evidence, from_children, scores, trace
from capsviz.transforms.augment import to_float

AT_A_TIME = 8  # images per batch; each has a few hundred masked versions
PATCHES = 24  # patches per image for infidelity
OF_ONE = 400  # patches for a single image, since 24 give infidelity only to a factor of two
SIDE = 1 / 4  # side of a patch, and of a piece of clutter, as a share of the image's side
STAGES = 4  # largest number of stages of randomisation; a stage may have several layers
DRAWS, PER_DRAW = 5, 2  # draws of random weights, and images per draw
CHUNK = 64  # images per pass with gradients
OF_ROUTING = (maps.CHILDREN, maps.COUPLING, maps.UNIFORM, maps.ROUTED)
PIECES = 8  # pieces of other images in a cluttered scene


def grid_of(steps: int) -> Tensor:
    """Return the shares (steps + 1,) to remove or add: (k / steps)², from 0 to 1."""
    return (torch.arange(steps + 1, dtype=torch.double) / steps).square()


def ranks(order: Tensor, generator: torch.Generator) -> Tensor:
    """Rank the P parts of maps (B, P), 0 for the largest value; ties are broken at random."""
    shuffled = torch.rand(order.shape, generator=generator).argsort(1)
    sorted_ = order.gather(1, shuffled).argsort(dim=1, descending=True, stable=True)
    return shuffled.gather(1, sorted_).argsort(1)


def curves(score: Callable[[Tensor], Tensor], rank: Tensor, shares: Tensor, present=True) -> Tensor:
    """Return scores (Q, 2, M, S) with the parts removed, and shown alone, in the order of M maps.

    Petsiuk, Das & Saenko 2018 (arXiv:1806.07421).

    Parameters
    ----------
    score    function from masks (K, P) of the shown parts to scores (K, Q); equal masks are scored
             once.
    rank     (M, P) ranks of the parts in each map.
    shares   (S,) shares of the parts.
    present  (P,) False if removing the part changes nothing.
    """
    removed = rank[:, None] < (shares * rank.shape[1]).round()[:, None]  # (M, S, P)
    there = torch.stack([~removed, removed]) & present
    forms, which = there.flatten(0, 2).unique(dim=0, return_inverse=True)
    return score(forms).cpu().double()[which].T.reshape(-1, *there.shape[:3])


def of_pixels(model, images: Tensor, orders: Tensor, classes: Tensor, shares, generator) -> Tensor:
    """Return `curves` of score and accuracy (2, 2, M, B, S); removed pixels are black.

    Images (B, C, H, W) are on the CPU, orders are (M, B, H, W), and classes (B, K) are those of
    `outcome`.
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
    """Return the score of the first of K classes, and whether it is among the K largest: (N, 2).

    Ties count against it: if more than K scores are as large, as for a black image, it is not.
    """
    own = activations[:, classes[0]]
    right = (activations >= (own - TIE * own.abs())[:, None]).sum(1) <= len(classes)
    return torch.stack([own, right.to(own)], 1)


def judged(model, images, classes, found: Sequence[maps.Maps], shares, generator, count=PATCHES):
    """Return curves (2, M, B, S) of the score by maps, and their infidelity (M, B)."""
    orders = torch.stack([one.order for one in found])
    drawn = of_pixels(model, images, orders, classes[:, None], shares, generator)[0]
    masks = torch.stack([patches(count, tuple(images.shape[2:]), generator) for _ in images])
    contributions = torch.stack([one.contributions for one in found])
    return drawn, infidelity(contributions, masks, maps.lost(model, images, classes, masks))


def patches(count: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Return masks (count, H, W) of random rectangles."""
    within = []
    for side in shape:
        size, pixels = max(1, round(SIDE * side)), torch.arange(side)
        starts = torch.randint(side - size + 1, (count, 1), generator=generator)
        within.append((pixels >= starts) & (pixels < starts + size))
    return within[0][:, :, None] & within[1][:, None]


def infidelity(contributions: Tensor, masks: Tensor, losses: Tensor) -> Tensor:
    """Return the share (M, B) in [0, 1] of squared losses by patches that maps do not explain.

    Yeh et al. 2019 (arXiv:1901.09392), with their optimal factor on each map, but at least 0, and
    divided by the mean square of the losses. NaN for an image that no patch changes. Contributions
    are (M, B, H, W), masks (B, K, H, W), and losses (B, K).
    """
    predicted = torch.einsum("mbhw,bkhw->mbk", contributions, masks.double())
    squares = predicted.square().sum(2) * losses.square().sum(1)
    product = (predicted * losses).sum(2).clamp_min(0)
    explained = torch.where(squares > 0, product.square() / squares, 0.0)
    return torch.where(losses.square().sum(1) > 0, 1 - explained.clamp(0, 1), torch.nan)


def explained_classes(model, images: Tensor, labels, target: str) -> Tensor:
    """Return the classes (B,) to explain; ValueError if the true class is unknown."""
    if target == "predicted":
        return scores(model, images).argmax(1)
    if labels is None:
        raise ValueError("the true class of this picture is not known: take --target predicted")
    return torch.as_tensor(labels).cpu().view(-1)


def means(values: Tensor, seed: int) -> Estimate:
    """Return means of (M, N) over N images with paired bootstrap; NaN for fewer than 2 images."""
    if values.shape[1] < 2:
        none = torch.full((len(values), 3), torch.nan).numpy()
        return Estimate(none[:, 0], none[:, 1:], values.shape[1])
    return compare_means(values.numpy(), draw_resamples(values.shape[1], seed=seed), shares=False)


def areas(names: list[str], drawn: Tensor, shares: Tensor, seed: int) -> dict[str, Any]:
    """Return the fields that results of many images share, from curves (2, M, N, S) of a score."""
    deletion, insertion = torch.trapezoid(drawn, shares)
    gap = insertion - deletion
    routed = None
    if maps.ROUTED in names:  # compare each with the routing map that is divided in the same way
        each = gap.unflatten(0, (-1, sum(not name.endswith(maps.EVENLY) for name in names)))
        routed = (each[:, [names.index(maps.ROUTED)]] - each).flatten(0, 1)
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


def stages(model, image: Tensor) -> dict[str, list[nn.Parameter]]:
    """Return groups of the weights that the scores depend on, from the classes down.

    Each group has the name of its lowest layer. The order is that in which gradients reach the
    weights, so it does not depend on how the modules are nested.
    """
    weights, order = dict(model.named_parameters()), []
    learning = [one.requires_grad for one in weights.values()]
    model.requires_grad_(True)
    hooks = [w.register_hook(lambda _, n=name: order.append(n)) for name, w in weights.items()]
    try:
        values = logits(model, image).sum()
        torch.autograd.grad(values, list(weights.values()), allow_unused=True)
    finally:
        for hook, one, before in zip(hooks, weights.values(), learning, strict=True):
            hook.remove()
            one.requires_grad_(before)
    layers: dict[str, list[str]] = {}
    for name in filter(order.__contains__, weights):
        layers.setdefault(name.rpartition(".")[0] or name, []).append(name)
    ordered = sorted(layers.items(), key=lambda layer: min(map(order.index, layer[1])))
    count = min(STAGES, len(ordered))
    ends = [round((k + 1) * len(ordered) / count) for k in range(count)]
    groups = [ordered[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    return {one[-1][0]: [weights[name] for _, some in one for name in some] for one in groups}


@contextmanager
def randomised(weights: Sequence[nn.Parameter], generator: torch.Generator):
    """Context manager: replace weights by normal draws with their mean and standard deviation."""
    before = [one.detach().clone() for one in weights]
    try:
        with torch.no_grad():
            for one in weights:
                drawn = torch.randn(one.shape, generator=generator)
                one.copy_(drawn * one.std(correction=0).cpu() + one.mean().cpu())
        yield
    finally:
        with torch.no_grad():
            for one, value in zip(weights, before, strict=True):
                one.copy_(value)


def under_draws(model, methods: maps.Methods, images, classes, parts, generator) -> Tensor:
    """Return mean correlations (DRAWS, M, L); each draw of weights has its own images."""
    picked = torch.randperm(len(images), generator=generator)
    picked = picked.repeat(-(-DRAWS * PER_DRAW // len(images)))[: DRAWS * PER_DRAW]
    like, result = like_of(model), []
    for rows in picked.view(DRAWS, PER_DRAW):
        batch, targets = images[rows].to(like), classes[rows].to(like.device)
        result.append(correlations(methods, batch, targets, parts, generator).nanmean(2))
    return torch.stack(result)


def correlations(methods: maps.Methods, images, classes, parts: dict, generator) -> Tensor:
    """Return Spearman's correlation of maps before and after layers down to each stage are random.

    It is (M, L, B) double for images (B, C, H, W) under one draw of weights. It is NaN for the
    random order and for a constant first map, else 0 if the later map is constant.
    """
    known = [(m, how) for m, (name, how) in enumerate(methods.items()) if name != maps.RANDOM]
    own = {m: how(images, classes).own for m, how in known}
    result = torch.full((len(methods), len(parts), len(images)), torch.nan, dtype=torch.double)
    weights: list[nn.Parameter] = []
    for level, part in enumerate(parts.values()):
        weights += part
        with randomised(weights, generator):
            for m, how in known:
                result[m, level] = rank_correlation(own[m], how(images, classes).own)
    return result


def rank_correlation(own: Tensor, later: Tensor) -> Tensor:
    """Return Spearman's correlation (B,) of maps (B, h, w) with later ones.

    It is NaN if the first map is constant, else 0 if the later one is.
    """
    both = [torch.from_numpy(rankdata(one.flatten(1).numpy(), axis=1)) for one in (own, later)]
    both = [one - one.mean(1, keepdim=True) for one in both]
    own, later = (one / one.norm(dim=1, keepdim=True) for one in both)
    return (own * later.nan_to_num(0.0)).sum(1)


class Scene(NamedTuple):
    """N images and their contents."""

    images: Tensor  # (N, C, H, W) in [0, 1]
    labels: Tensor  # (N, K) classes, that of the explained object first
    parts: Tensor | None  # (N, 2, C, H, W): the object, and the rest; None: no rest


def make(part: Dataset, scene: str, seed: int) -> Scene:
    """Make scenes of the images of a data set, from a seed.

    "clean" does not change them. "cluttered" adds squares from other images of the data set at
    random positions (after Mnih et al. 2014, arXiv:1406.6247). "two-digits" adds an image of
    another class as in MultiMNIST, within the frame, unless images already show two objects. Raises
    ValueError for images of two objects in another scene.
    """
    if scene == "two-digits":
        both, frame = part, slice(None)
        if part.parts is None:
            both = multimnist.make(part, seed=seed)
            frame = slice(multimnist.SHIFT_PX, -multimnist.SHIFT_PX)
        assert both.parts is not None
        images, parts = (to_float(one[..., frame, frame]) for one in (both.images, both.parts))
        return Scene(images, both.labels, parts)
    images, labels = to_float(part.single().images), part.labels[:, None]
    if scene == "clean":
        return Scene(images, labels, None)
    generator, clutter = torch.Generator().manual_seed(seed), torch.zeros_like(images)
    N, _, H, W = images.shape
    height, width = round(SIDE * H), round(SIDE * W)
    for k in range(N):
        for donor in torch.randint(1, N, (PIECES,), generator=generator).tolist():
            y, x, top, left = torch.rand(4, generator=generator).tolist()
            y, x = int(H * (1 + 2 * y) / 4), int(W * (1 + 2 * x) / 4)  # from the middle
            top, left = int((H - height + 1) * top), int((W - width + 1) * left)
            piece = images[(k + donor) % N, :, y : y + height, x : x + width]
            clutter[k, :, top : top + height, left : left + width] = piece
    parts = torch.stack([images, clutter], 1)
    return Scene(parts.amax(1), labels, parts)


def measured(model, scene: Scene, over: str, shares: Tensor, seed: int, progress):
    """Remove units of N images in the order of M maps, and show them alone.

    Returns
    -------
    names     names of the M maps.
    drawn     `curves` (2, 2, M, N, S) of activation and accuracy.
    apart     AUROC (M, N') of the object's positions, in the N' images that have positions of the
              object and of the rest; None without such images.
    left_out  sentences on maps that the network does not have.

    Raises
    ------
    ValueError  for capsules without positions, unless single capsules are removed.
    """
    grid, generator = abilities(model).grid, torch.Generator().manual_seed(seed)
    has_positions = grid is not None and evidence.has_places(grid)
    if over != "capsules" and not has_positions:
        raise ValueError("the capsules of this network have no positions: take --over capsules")
    traced = trace(model, scene.images, keep=("children", "child_activations"))
    activations = traced.require("child_activations")[..., None]
    own = torch.cat([traced.require("children"), activations], 2)  # (N, I, D + 1)
    mean, capsules = own.mean(0, keepdim=True), own.shape[1]
    positions = grid[1] * grid[2] if grid is not None and has_positions else capsules
    units = capsules if over == "capsules" else positions

    def score(b: int, there: Tensor) -> Tensor:
        mixed = torch.where(there.repeat(1, capsules // units)[..., None], own[b], mean)
        classes = from_children(model, mixed[..., :-1], mixed[..., -1])
        return outcome(classes, scene.labels[b])

    found, left_out = _of_capsules(model, scene, own, mean, gradients=over != "pixels")
    values = {name: one.unflatten(1, (-1, units)).sum(1) for name, one in found.items()}
    values = _controls(values[maps.ROUTED], positions, generator) | values
    each = torch.cat([torch.ones(1, units), 1 - torch.eye(units)]).bool()
    fields = evidence.fields_of_places(model) if has_positions else torch.empty(0)
    drawn, apart = [], []
    for b in progress(range(len(own))):
        left = score(b, each)[:, 0].cpu().double()
        order = torch.stack([*(one[b] for one in values.values()), left[0] - left[1:]])
        if scene.parts is not None and has_positions:
            apart.append(_apart(order.unflatten(1, (-1, positions)).sum(1), scene.parts[b], fields))
        if over == "pixels":
            image, label = scene.images[b : b + 1], scene.labels[b : b + 1]
            order = order.unflatten(1, fields.shape[:2])  # by brightness, and evenly
            both = (image.expand(len(order), -1, -1, -1), torch.ones(len(order), *image.shape[1:]))
            orders = torch.cat([evidence.in_pixels(order, one, fields) for one in both])[:, None]
            one = of_pixels(model, image, orders, label, shares, generator)
            drawn.append(one[:, :, :, 0])
        else:
            rank = ranks(order, generator)
            drawn.append(curves(partial(score, b), rank, shares))
    names = [*values, maps.EFFECT]
    names += [name + maps.EVENLY for name in names] if over == "pixels" else []
    return names, torch.stack(drawn, 3), torch.cat(apart, 1) if apart else None, left_out


def _of_capsules(model, scene: Scene, own: Tensor, mean: Tensor, gradients: bool):
    """Return maps of capsules (N, I) by name, and sentences on maps that the network lacks."""
    like, left_out, parts = like_of(model), [], []
    several = maps.convolutions(model, scene.images[:1].to(like)) if gradients else []
    grid = abilities(model).grid
    if gradients and not (several and evidence.has_places(grid)):
        several, left_out = [], ["no Grad-CAM: its convolutions or capsules have no positions"]

    def ahead(children: Tensor) -> Tensor:
        return model.from_children(children[..., :-1], children[..., -1])[1]

    with frozen(model):
        for rows in torch.arange(len(own)).split(CHUNK):
            images, classes = scene.images[rows].to(like), scene.labels[rows, 0].to(like.device)
            found = {name: maps.of_capsules(model, images, classes, name) for name in OF_ROUTING}
            for name in (maps.GRADIENT, maps.INTEGRATED) if gradients else ():
                ends = mean.to(like), own[rows].to(like)
                found[name] = maps.on_the_way(ahead, *ends, classes, name).sum(2)
            for number in several[-1:]:
                assert grid is not None  # it has positions
                seen = maps.grad_cam(model, number, images, classes)
                coarse = adaptive_avg_pool2d(seen, grid[1:])
                found[maps.GRAD_CAM] = coarse.cpu().double().flatten(1).repeat(1, grid[0])
            parts.append(found)
    return {name: torch.cat([one[name] for one in parts]) for name in parts[0]}, left_out


def _controls(routed: Tensor, positions: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Return control maps by name, made from the routing map (N, U): `maps.CONTROLS`."""
    grouped = routed.unflatten(1, (-1, positions))
    order = torch.rand(len(routed), 1, positions, generator=generator).argsort(2)
    random = torch.rand(routed.shape, generator=generator, dtype=torch.double)
    permuted = grouped.gather(2, order.expand_as(grouped)).flatten(1)
    each = (torch.ones_like(routed), random, permuted, routed.roll(1, 0))
    return dict(zip(maps.CONTROLS, each, strict=True))


def _apart(order: Tensor, parts: Tensor, fields: Tensor) -> Tensor:
    """Return AUROC (M, 1) of maps (M, P) for positions that see mostly the object.

    `parts` (2, C, H, W) are the object and the rest; only the middle half of a receptive field
    counts. The result is (M, 0) if no position sees more of one of them.
    """
    quarter = int(fields.sum(2).max()) // 4
    middle = 1 - max_pool2d(1 - fields, 2 * quarter + 1, 1, quarter)
    first, other = torch.einsum("rchw,khw->krc", middle, parts.sum(1).double()).flatten(1)
    if not (first > other).any() or not (other > first).any():
        return torch.empty(len(order), 0)
    area = auroc(order[:, other > first].numpy(), order[:, first > other].numpy())
    return torch.from_numpy(area)[:, None]
