"""Measures of maps, for `faithfulness`: curves, infidelity, random weights, and scenes."""

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

AT_A_TIME = 8  # images, each of which is given in a few hundred forms
PATCHES = 24  # that are removed of each image for infidelity
OF_ONE = 400  # where one image is all there is: of 24, infidelity is known to a factor of two
SIDE = 1 / 4  # of such a patch, and of a piece in a cluttered scene, of the image's side
STAGES = 4  # of randomisation at most, each of several layers where there are more
DRAWS, PER_DRAW = 5, 2  # of random weights, and images under each
CHUNK = 64  # images of a pass with gradients
OF_ROUTING = (maps.CHILDREN, maps.COUPLING, maps.UNIFORM, maps.ROUTED)
PIECES = 8  # of other images in a cluttered scene


def grid_of(steps: int) -> Tensor:
    """Return the shares (steps + 1,) that are removed or added: (k / steps)², 0 to 1."""
    return (torch.arange(steps + 1, dtype=torch.double) / steps).square()


def ranks(order: Tensor, generator: torch.Generator) -> Tensor:
    """Rank each of P parts of maps (B, P), 0 for the largest value; ties at random."""
    shuffled = torch.rand(order.shape, generator=generator).argsort(1)
    sorted_ = order.gather(1, shuffled).argsort(dim=1, descending=True, stable=True)
    return shuffled.gather(1, sorted_).argsort(1)


def curves(score: Callable[[Tensor], Tensor], rank: Tensor, shares: Tensor, present=True) -> Tensor:
    """Return scores (Q, 2, M, S) when parts are removed in the order of maps, and are there alone.

    Petsiuk, Das & Saenko 2018 (arXiv:1806.07421). `score` maps which of the parts are there (K, P)
    to (K, Q), and equal forms are scored once; `rank` (M, P) is of M maps, `shares` (S,) of the
    parts, and `present` (P,) is False where removing a part changes nothing.
    """
    removed = rank[:, None] < (shares * rank.shape[1]).round()[:, None]  # (M, S, P)
    there = torch.stack([~removed, removed]) & present
    forms, which = there.flatten(0, 2).unique(dim=0, return_inverse=True)
    return score(forms).cpu().double()[which].T.reshape(-1, *there.shape[:3])


def of_pixels(model, images: Tensor, orders: Tensor, classes: Tensor, shares, generator) -> Tensor:
    """Return `curves` of score and accuracy (2, 2, M, B, S); pixels are set to black.

    Images (B, C, H, W) are on the CPU, orders are (M, B, H, W), classes (B, K) those of `outcome`.
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

    It is not if more than K are as large, as where nothing is left of an image.
    """
    own = activations[:, classes[0]]
    right = (activations >= (own - TIE * own.abs())[:, None]).sum(1) <= len(classes)
    return torch.stack([own, right.to(own)], 1)


def judged(model, images, classes, found: Sequence[maps.Maps], shares, generator, count=PATCHES):
    """Return curves (2, M, B, S) of the score of maps, and infidelity (M, B) by `count` patches."""
    orders = torch.stack([one.order for one in found])
    drawn = of_pixels(model, images, orders, classes[:, None], shares, generator)[0]
    masks = torch.stack([patches(count, tuple(images.shape[2:]), generator) for _ in images])
    contributions = torch.stack([one.contributions for one in found])
    return drawn, infidelity(contributions, masks, maps.lost(model, images, classes, masks))


def patches(count: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw random rectangles: (count, H, W) bool."""
    within = []
    for side in shape:
        size, places = max(1, round(SIDE * side)), torch.arange(side)
        starts = torch.randint(side - size + 1, (count, 1), generator=generator)
        within.append((places >= starts) & (places < starts + size))
    return within[0][:, :, None] & within[1][:, None]


def infidelity(contributions: Tensor, masks: Tensor, losses: Tensor) -> Tensor:
    """Return the share of what is lost with patches that maps leave unexplained: (M, B) in [0, 1].

    Yeh et al. 2019 (arXiv:1901.09392), with their optimal factor on each map, though none below 0,
    over the mean square of the losses (B, K) with masks (B, K, H, W). NaN for an image of which no
    patch changes anything. Contributions are (M, B, H, W).
    """
    foretold = torch.einsum("mbhw,bkhw->mbk", contributions, masks.double())
    squares = foretold.square().sum(2) * losses.square().sum(1)
    product = (foretold * losses).sum(2).clamp_min(0)
    known = torch.where(squares > 0, product.square() / squares, 0.0)
    return torch.where(losses.square().sum(1) > 0, 1 - known.clamp(0, 1), torch.nan)


def explained_classes(model, images: Tensor, labels, target: str) -> Tensor:
    """Return the classes (B,) whose scores are explained; ValueError without a true class."""
    if target == "predicted":
        return scores(model, images).argmax(1)
    if labels is None:
        raise ValueError("the true class of this picture is not known: take --target predicted")
    return torch.as_tensor(labels).cpu().view(-1)


def means(values: Tensor, seed: int) -> Estimate:
    """Return means of (M, N) over N images, paired, by bootstrap; NaN for fewer than 2 images."""
    if values.shape[1] < 2:
        none = torch.full((len(values), 3), torch.nan).numpy()
        return Estimate(none[:, 0], none[:, 1:], values.shape[1])
    return compare_means(values.numpy(), draw_resamples(values.shape[1], seed=seed), shares=False)


def areas(names: list[str], drawn: Tensor, shares: Tensor, seed: int) -> dict[str, Any]:
    """Return the fields that results of many images share, of curves (2, M, N, S) of a score."""
    deletion, insertion = torch.trapezoid(drawn, shares)
    gap = insertion - deletion
    routed = None
    if maps.ROUTED in names:  # each is compared with the routing map divided alike
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
    """Return the weights that the class depends on, from the class down, in groups of layers.

    Each has the name of its lowest layer. Their order is that in which gradients of an image reach
    them, whatever calls them.
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
    """Replace weights by normal draws of their own mean and standard deviation, for a while."""
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
    """Return mean correlations (DRAWS, M, L), each draw of weights with its own images."""
    picked = torch.randperm(len(images), generator=generator)
    picked = picked.repeat(-(-DRAWS * PER_DRAW // len(images)))[: DRAWS * PER_DRAW]
    like, result = like_of(model), []
    for rows in picked.view(DRAWS, PER_DRAW):
        batch, targets = images[rows].to(like), classes[rows].to(like.device)
        result.append(correlations(methods, batch, targets, parts, generator).nanmean(2))
    return torch.stack(result)


def correlations(methods: maps.Methods, images, classes, parts: dict, generator) -> Tensor:
    """Return Spearman's correlation of maps with those after all layers down to a stage are random.

    (M, L, B) double for images (B, C, H, W) under one draw: 0 where the later map is the same
    everywhere, NaN for the random order and where the first one is.
    """
    known = [(m, how) for m, (name, how) in enumerate(methods.items()) if name != maps.RANDOM]
    own = {m: how(images, classes).own for m, how in known}
    result = torch.full((len(methods), len(parts), len(images)), torch.nan, dtype=torch.double)
    weights: list[nn.Parameter] = []
    for level, part in enumerate(parts.values()):
        weights += part
        with randomised(weights, generator):
            for m, how in known:
                result[m, level] = alike(own[m], how(images, classes).own)
    return result


def alike(own: Tensor, later: Tensor) -> Tensor:
    """Return Spearman's correlation (B,) of maps (B, h, w) with later ones; NaN for a flat one.

    0 where the later one is flat.
    """
    both = [torch.from_numpy(rankdata(one.flatten(1).numpy(), axis=1)) for one in (own, later)]
    both = [one - one.mean(1, keepdim=True) for one in both]
    own, later = (one / one.norm(dim=1, keepdim=True) for one in both)
    return (own * later.nan_to_num(0.0)).sum(1)


class Scene(NamedTuple):
    """N images, and what they show."""

    images: Tensor  # (N, C, H, W) in [0, 1]
    labels: Tensor  # (N, K) classes, that of the object in question first
    parts: Tensor | None  # (N, 2, C, H, W): the object, and all else; None: there is nothing else


def make(part: Dataset, scene: str, seed: int) -> Scene:
    """Make scenes of the images of a data set, from a seed.

    "clean" leaves them as they are. "cluttered" adds squares from other images of the data set at
    random places (after Mnih et al. 2014, arXiv:1406.6247). "two-digits" adds an image of another
    class as MultiMNIST does, within the frame; images that show two objects are left as they are.
    ValueError for those in another scene.
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

    Return names of the maps; `curves` (2, 2, M, N, S) of activation and accuracy; AUROC (M, N') of
    the object's positions, in images that show both, or None; and which maps the network lacks.
    ValueError for capsules without positions, unless single ones are removed.
    """
    grid, generator = abilities(model).grid, torch.Generator().manual_seed(seed)
    placed = grid is not None and evidence.has_places(grid)
    if over != "capsules" and not placed:
        raise ValueError("the capsules of this network have no positions: take --over capsules")
    traced = trace(model, scene.images, keep=("children", "child_activations"))
    activations = traced.require("child_activations")[..., None]
    own = torch.cat([traced.require("children"), activations], 2)  # (N, I, D + 1)
    mean, capsules = own.mean(0, keepdim=True), own.shape[1]
    places = grid[1] * grid[2] if grid is not None and placed else capsules
    units = capsules if over == "capsules" else places

    def score(b: int, there: Tensor) -> Tensor:
        mixed = torch.where(there.repeat(1, capsules // units)[..., None], own[b], mean)
        classes = from_children(model, mixed[..., :-1], mixed[..., -1])
        return outcome(classes, scene.labels[b])

    found, left_out = _of_capsules(model, scene, own, mean, gradients=over != "pixels")
    values = {name: one.unflatten(1, (-1, units)).sum(1) for name, one in found.items()}
    values = _controls(values[maps.ROUTED], places, generator) | values
    each = torch.cat([torch.ones(1, units), 1 - torch.eye(units)]).bool()
    fields = evidence.fields_of_places(model) if placed else torch.empty(0)
    drawn, apart = [], []
    for b in progress(range(len(own))):
        left = score(b, each)[:, 0].cpu().double()
        order = torch.stack([*(one[b] for one in values.values()), left[0] - left[1:]])
        if scene.parts is not None and placed:
            apart.append(_apart(order.unflatten(1, (-1, places)).sum(1), scene.parts[b], fields))
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
    """Return maps of capsules (N, I) by name, and in words those that the network lacks."""
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
                assert grid is not None  # it has places
                seen = maps.grad_cam(model, number, images, classes)
                coarse = adaptive_avg_pool2d(seen, grid[1:])
                found[maps.GRAD_CAM] = coarse.cpu().double().flatten(1).repeat(1, grid[0])
            parts.append(found)
    return {name: torch.cat([one[name] for one in parts]) for name in parts[0]}, left_out


def _controls(routed: Tensor, places: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Return maps that know nothing of their image, after that of routing (N, U), by name."""
    grouped = routed.unflatten(1, (-1, places))
    order = torch.rand(len(routed), 1, places, generator=generator).argsort(2)
    random = torch.rand(routed.shape, generator=generator, dtype=torch.double)
    permuted = grouped.gather(2, order.expand_as(grouped)).flatten(1)
    each = (torch.ones_like(routed), random, permuted, routed.roll(1, 0))
    return dict(zip(maps.CONTROLS, each, strict=True))


def _apart(order: Tensor, parts: Tensor, fields: Tensor) -> Tensor:
    """Return AUROC of maps (M, P) for positions that see more of the first part: (M, 1) or (M, 0).

    `parts` (2, C, H, W) are the object and all else, seen in the middle half of a field.
    """
    quarter = int(fields.sum(2).max()) // 4
    middle = 1 - max_pool2d(1 - fields, 2 * quarter + 1, 1, quarter)
    first, other = torch.einsum("rchw,khw->krc", middle, parts.sum(1).double()).flatten(1)
    if not (first > other).any() or not (other > first).any():
        return torch.empty(len(order), 0)
    area = auroc(order[:, other > first].numpy(), order[:, first > other].numpy())
    return torch.from_numpy(area)[:, None]
