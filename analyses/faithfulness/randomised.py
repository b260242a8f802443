"""Do maps notice when the network forgets? Cascading randomisation, for `faithfulness`.

Adebayo et al. 2018 (arXiv:1810.03292): weights are replaced layer by layer from the class down, and
each map is correlated by ranks with what it was, those of routing place by place.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from scipy.stats import rankdata
from torch import Tensor, nn

from capsviz.analyses.faithfulness.maps import RANDOM, Explained, Method
from capsviz.nn.images import like_of

STAGES = 4  # at most, each of several layers where there are more
DRAWS, PER_DRAW = 5, 2  # of random weights, and images under each


class Stage(NamedTuple):
    """Layers that are randomised together with all above them."""

    name: str  # of the lowest one
    weights: list[nn.Parameter]


def stages(model: nn.Module, image: Tensor) -> list[Stage]:
    """Layers whose weights the class depends on, from the class down, in at most `STAGES` groups.

    Their order is that in which autograd met their weights, whatever module called them.

    Parameters
    ----------
    image  (1, C, H, W), on the network's device.
    """
    learning = [one.requires_grad for one in model.parameters()]
    model.requires_grad_(True)
    try:
        met = _met(Explained(model)(image))
    finally:
        for one, before in zip(model.parameters(), learning, strict=True):
            one.requires_grad_(before)
    layers: dict[str, list[nn.Parameter]] = {}
    for name, weight in model.named_parameters():
        if id(weight) in met:
            layers.setdefault(name.rpartition(".")[0] or name, []).append(weight)
    ordered = sorted(layers.items(), key=lambda kv: -max(met[id(one)] for one in kv[1]))
    count = min(STAGES, len(ordered))
    ends = [round((k + 1) * len(ordered) / count) for k in range(count)]
    groups = [ordered[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    return [Stage(group[-1][0], [one for _, some in group for one in some]) for group in groups]


def _met(values: Tensor) -> dict[int, int]:
    """id of each weight that values depend on -> when it was last met."""
    met: dict[int, int] = {}
    visited: set = set()
    waiting: list[Any] = [values.grad_fn]
    while waiting:
        node = waiting.pop()
        for following in {one for one, _ in node.next_functions if one is not None} - visited:
            if hasattr(following, "variable"):
                key = id(following.variable)
                met[key] = max(met.get(key, -1), node._sequence_nr())
            else:
                visited.add(following)
                waiting.append(following)
    return met


@contextmanager
def randomised(weights: Sequence[nn.Parameter], generator: torch.Generator):
    """Weights replaced by normal draws of their own mean and standard deviation, for a while."""
    before = [one.detach().clone() for one in weights]
    try:
        with torch.no_grad():
            for one in weights:
                spread = one.std(correction=0).cpu()
                drawn = torch.randn(one.shape, generator=generator) * spread + one.mean().cpu()
                one.copy_(drawn)
        yield
    finally:
        with torch.no_grad():
            for one, value in zip(weights, before, strict=True):
                one.copy_(value)


def under_draws(model, methods: Sequence[Method], images, classes, parts, generator) -> Tensor:
    """Return mean correlations (DRAWS, M, L), each draw of weights with its own images."""
    picked = torch.randperm(len(images), generator=generator)
    picked = picked.repeat(-(-DRAWS * PER_DRAW // len(images)))[: DRAWS * PER_DRAW]
    result = []
    for rows in picked.view(DRAWS, PER_DRAW):
        batch = images[rows].to(like_of(model))
        targets = classes[rows].to(batch.device)
        correlated = correlations(model, methods, batch, targets, parts, generator)
        result.append(correlated.nanmean(2))
    return torch.stack(result)


def correlations(
    model, methods: Sequence[Method], images, classes, parts: Sequence[Stage], generator
) -> Tensor:
    """Spearman's correlation of each map with that after all layers down to a stage are random.

    Parameters
    ----------
    images   (B, C, H, W) and classes (B,), on the network's device; all under one draw of weights.
    parts    L stages.

    Returns
    -------
    (M, L, B) double; 0 where the later map is the same everywhere, NaN for the random order and
    where the first one is.
    """
    own = [_ranked(one, images, classes) if one.name != RANDOM else None for one in methods]
    result = torch.full((len(methods), len(parts), len(images)), torch.nan, dtype=torch.double)
    for level in range(len(parts)):
        weights = [one for part in parts[: level + 1] for one in part.weights]
        with randomised(weights, generator):
            copies = images.clone()  # whoever remembers traces must not take it for the same
            for m, (method, before) in enumerate(zip(methods, own, strict=True)):
                if before is not None:
                    later = _ranked(method, copies, classes).nan_to_num(0.0)
                    result[m, level] = (before * later).sum(1)
    return result


def _ranked(method: Method, images: Tensor, classes: Tensor) -> Tensor:
    return centred_ranks(method.maps(images, classes).own)


def centred_ranks(maps: Tensor) -> Tensor:
    """Return ranks (B, h w) in maps (B, h, w), less their mean, of length 1; NaN if all are equal.

    Products of two sum to Spearman's correlation.
    """
    values = torch.from_numpy(rankdata(maps.flatten(1).numpy(), axis=1))
    values = values - values.mean(1, keepdim=True)
    return values / values.norm(dim=1, keepdim=True)
