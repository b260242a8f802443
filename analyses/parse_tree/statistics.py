"""The numbers of `parse_tree`, as fields of its results."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from capsviz import checkpoint
from capsviz.analyses.parse_tree import measure as measures
from capsviz.analyses.parse_tree import variance
from capsviz.analyses.parse_tree.words import COMPONENTS, FRESH, TRAINED, UNKNOWN
from capsviz.statistics.comparison import compare_means, draw_resamples
from capsviz.statistics.estimate import stack
from capsviz.tracing import coupling_sd
from capsviz.tracing.many import winners
from capsviz.transforms.augment import to_uint8

SAME = "neighbouring places see the same part of the image"


def trees(model, images: Tensor, labels: list, seed: int) -> dict:
    """Fields of `Result` but for the classes; ValueError for another number of images than two."""
    if len(images) != 2:
        raise ValueError(f"expected two images whose trees are compared, got {len(images)}")
    networks, pictures = [known_as(model)] * 2, [images]
    observed = [measures.observe(model, images)]
    fresh, _ = fresh_networks(model, images, 1, seed)
    for other in fresh:
        observed.append(measures.observe(other, images[:1]))
        networks, labels, pictures = (
            [*networks, FRESH],
            [*labels, labels[0]],
            [*pictures, images[:1]],
        )
    couplings = torch.cat([one.couplings for one in observed])
    return {
        "images": to_uint8(torch.cat(pictures)),
        "read": torch.cat([one.read for one in observed]).numpy(),
        "labels": labels,
        "networks": networks,
        "favourites": measures.favourites(couplings).numpy(),
        "margins": variance.preferences(couplings).amax(-1).numpy(),
        "grid": observed[0].grid,
        "coupling_sd": torch.cat([coupling_sd(o.couplings) for o in observed]).numpy(),
    }


def known_as(model) -> str:
    """What a network is called beside fresh ones: trained only where its card says so."""
    return TRAINED if checkpoint.is_trained(model) else UNKNOWN


def fresh_networks(model, images, seeds: int, seed: int) -> tuple[list, list[str]]:
    """Freshly initialised networks, and what must be said where it cannot be built anew."""
    try:
        return [checkpoint.fresh(model, seed + k, images=images) for k in range(seeds)], []
    except ValueError as error:
        return [], [f"no fresh network: {error}"]


def measure(model, images, labels, others, seeds: int, seed: int, progress) -> dict:
    """Fields of `Statistics` but for classes, n and the data set's name."""
    counts = draw_resamples(len(images), seed=seed)
    generator = torch.Generator().manual_seed(seed)
    fresh, notes = fresh_networks(model, images, seeds, seed)
    own, known = (measures.observe(model, some, progress) for some in (images, others.images))
    by_network = [(own, known)]
    for network in fresh:
        by_network.append(
            tuple(measures.observe(network, some, progress) for some in (images, others.images))
        )
    shares, favourites, sd = [], [], []
    for here, elsewhere in by_network:
        shares.append(_shares(here, labels, counts))
        usual = measures.usual(measures.favourites(elsewhere.couplings), here.couplings.shape[2])
        favourite = measures.favourites(here.couplings)
        pairs = torch.Generator().manual_seed(seed)  # the same couples for every network
        favourites.append(measures.choices(favourite, usual, labels, here.read, pairs))
        sd.append(float(coupling_sd(here.couplings).square().mean().sqrt()))
    mixed = labels[torch.randperm(len(labels), generator=generator)]
    names = [FRESH if len(fresh) == 1 else f"{FRESH}, seed {seed + k}" for k in range(len(fresh))]
    about = (own, known, others.labels, generator, progress)
    accuracy, activation, ties, no_freezing = _frozen(model, images, labels, *about, counts)
    correlation, no_moves = _moved(model, images, labels, *about[:3], progress, counts)
    return {
        "networks": [known_as(model), *names],
        "components": list(COMPONENTS),
        "shares": stack(shares),
        "shuffled": _shares(own, mixed, counts),
        "by_child": variance.of_children(variance.preferences(own.couplings), labels),
        "coupling_sd": np.array(sd),
        "choices": list(measures.CHOICES),
        "favourites": stack(favourites),
        "frozen": None if accuracy is None else list(measures.FROZEN),
        "accuracy": accuracy,
        "true_activation": activation,
        "tied": ties,
        "moves": None if correlation is None else list(measures.MOVED),
        "trees": None if correlation is None else list(measures.TREES),
        "correlation": correlation,
        "grid": own.grid,
        "others": others.name,
        "notes": [*notes, *no_freezing, *no_moves],
    }


def _shares(own, labels, counts):
    values = variance.preferences(own.couplings)
    if variance.is_even(own.couplings):
        values = torch.zeros_like(values)
    return variance.shares(values, labels, own.grid, counts)


def _frozen(model, images, labels, own, known, classes, generator, progress, counts):
    """Accuracy and activations with frozen couplings, shares of ties, and why there are none."""
    try:
        activations = measures.frozen(model, images, own, known, classes, generator, progress)
    except ValueError as error:
        return None, None, None, [f"no frozen couplings: {error}"]
    read = winners(activations)
    true = activations[:, torch.arange(len(labels)), labels]
    ties = (read < 0).double().mean(1).numpy()
    accuracy = compare_means(read == labels, counts)
    return accuracy, compare_means(true, counts, shares=False), ties, []


def _moved(model, images, labels, own, known, classes, progress, counts):
    """Correlations with the trees of moved images, and why there are none."""
    apart = measures.steps(model, own.grid)
    if not apart:
        few = own.grid is None or max(own.grid[1:]) < 3
        why = "the grid has fewer than 3 places to move by"
        return None, [f"trees of moved images: {why if few else SAME}"]
    if variance.is_even(own.couplings):
        return None, ["trees of moved images: all couplings are even, so none has a tree"]
    usual = measures.class_means(known, classes)[labels]
    values = measures.moved(model, images, own, usual, apart, progress)
    return stack(compare_means(one, counts, shares=False) for one in values), []
