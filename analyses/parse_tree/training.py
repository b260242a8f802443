"""Capsules over training, for `parse_tree`: activations, gradients and trees, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from capsviz.analyses.parse_tree import variance
from capsviz.analyses.parse_tree.measure import observe
from capsviz.analyses.parse_tree.words import COMPONENTS
from capsviz.statistics.comparison import draw_resamples
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.intervals import wilson
from capsviz.tracing import routes_again
from capsviz.tracing.rerouting import child_gradients

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def follow(
    networks: Iterable, images: Tensor, labels: Tensor, *, dead_norm, starved_share, seed
) -> dict:
    """Fields of `Trajectory` from (epoch, network) in order.

    Raises
    ------
    ValueError  for networks whose children capsviz does not know.
    """
    counts = draw_resamples(len(images), seed=seed)
    rows = []
    for epoch, model in networks:
        if not routes_again(model):
            raise ValueError("the networks of this run have no capsules, so none can die")
        rows.append({"epochs": epoch, **_of_epoch(model, images, labels, counts, starved_share)})
    joined = {name: [row[name] for row in rows] for name in rows[0]}
    active = np.stack(joined.pop("active"))
    arrays = {name: np.stack(joined.pop(name)) for name in ("gradient", "gradient_largest")}
    estimates = {name: stack(joined.pop(name)) for name in ("accuracy", "starved", "shares")}
    return {
        **joined, **arrays, **estimates,
        "largest": np.quantile(active, QUANTILES, axis=1).T,
        "dead": (active < dead_norm).sum(1),
        "components": list(COMPONENTS),
        "children": active.shape[1],
    }  # fmt: skip


def _of_epoch(model, images, labels, counts, starved_share) -> dict:
    squares, largest, right = child_gradients(model, images, labels)
    n = len(images)
    own = observe(model, images)
    values = variance.preferences(own.couplings)
    if variance.is_even(own.couplings):
        values = torch.zeros_like(values)
    norms = squares.mean(0).sqrt().numpy()
    relative = norms / max(norms.max(), np.finfo(float).tiny)
    drawn = np.sqrt(np.asarray(counts, float) @ squares.numpy() / n)
    starved = (drawn < starved_share * drawn.max(1, keepdims=True)).sum(1)
    count = int((relative < starved_share).sum())
    low, high = np.percentile(starved, [2.5, 97.5])
    accuracy = float(right.double().mean())
    return {
        "accuracy": Estimate(accuracy, np.array(wilson(int(right.sum()), n)), n),
        "active": largest.numpy(),
        "gradient": np.quantile(relative, QUANTILES),
        "gradient_largest": norms.max(),
        "starved": Estimate(count, np.array([min(low, count), max(high, count)]), n),
        "shares": variance.shares(values, labels, own.grid, counts),
    }
