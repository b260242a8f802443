"""Measures of maps, for `faithfulness`: curves, infidelity, and what forgetting does to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from scipy.stats import rankdata
from torch import Tensor, nn

from capsviz.experiments import maps
from capsviz.experiments.attacks import logits
from capsviz.nn.images import like_of
from capsviz.statistics.comparison import compare_means, draw_resamples
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import mean_interval
from capsviz.tracing import scores

AT_A_TIME = 8  # images, each of which is given in a few hundred forms
PATCHES = 24  # that are removed of each image for infidelity
OF_ONE = 400  # where one image is all there is: of 24, infidelity is known to a factor of two
SIDE = 1 / 4  # of such a patch, of the image's side
STAGES = 4  # of randomisation at most, each of several layers where there are more
DRAWS, PER_DRAW = 5, 2  # of random weights, and images under each


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
    """Return the score of the first of K classes, and whether it is among the K largest: (N, 2)."""
    own = activations[:, classes[0]]
    right = (activations > own[:, None]).sum(1) < len(classes)
    return torch.stack([own, right.to(own)], 1)


def judged(model, images, classes, found: Sequence[maps.Maps], shares, generator):
    """Return curves (2, M, B, S) of the score and infidelity (M, B) of maps of B images."""
    orders = torch.stack([one.order for one in found])
    drawn = of_pixels(model, images, orders, classes[:, None], shares, generator)[0]
    count = PATCHES if len(images) > 1 else OF_ONE
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
    if target == "read":
        return scores(model, images).argmax(1)
    if labels is None:
        raise ValueError("the true class of this picture is not known: take --target read")
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
            copies = images.clone()  # whoever remembers traces must not take it for the same
            for m, how in known:
                result[m, level] = alike(own[m], how(copies, classes).own)
    return result


def alike(own: Tensor, later: Tensor) -> Tensor:
    """Return Spearman's correlation (B,) of maps (B, h, w) with later ones; NaN for a flat one.

    0 where the later one is flat.
    """
    both = [torch.from_numpy(rankdata(one.flatten(1).numpy(), axis=1)) for one in (own, later)]
    both = [one - one.mean(1, keepdim=True) for one in both]
    own, later = (one / one.norm(dim=1, keepdim=True) for one in both)
    return (own * later.nan_to_num(0.0)).sum(1)
