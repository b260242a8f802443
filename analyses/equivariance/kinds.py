"""Kinds of vectors for `equivariance`: a network's pose, others' features, pixels, and controls."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from capsviz import checkpoint
from capsviz.tracing import features

RANDOM = "pixels along random directions"


class Kinds(NamedTuple):
    """S kinds; those that are drawn, anew in each of the draws.

    Vectors are, in order, those of `networks`, the pixels, and these along each of `axes`.
    """

    names: list[str]  # S, the first network's first
    networks: list  # all that look at images, those of all draws
    axes: list[np.ndarray]  # (C·H·W, E) random directions, a draw each
    picked: list[list[int]]  # for each draw the number of the vectors of each kind
    seeds: int  # draws of freshly initialised networks
    notes: list[str]  # what could not be had

    @property
    def count(self) -> int:
        """How many vectors there are."""
        return len(self.networks) + 1 + len(self.axes)


def kinds(models, names, images, seeds: int, seed: int) -> Kinds:
    """The network, it freshly initialised by each preset, the others, pixels, random directions.

    The random directions are as many as its pose has numbers.
    """
    fresh, missing = checkpoint.controls(models[0], range(seed, seed + seeds), images)
    draws, presets = max(1, seeds), len(fresh)
    networks = [models[0], *(one for some in fresh.values() for one in some), *models[1:]]
    count = features(models[0], images[:1], torch.zeros(1, dtype=torch.long)).shape[1]
    axes = [
        np.random.default_rng(seed + k).standard_normal((images[0].numel(), count), np.float32)
        for k in range(draws)
    ]
    same = range(1 + presets * seeds, len(networks) + 1)  # the others and the pixels
    return Kinds(
        [names[0], *(f"{names[0]} {one}" for one in fresh), *names[1:], "pixels", RANDOM],
        networks,
        axes,
        [
            [0, *(1 + preset * seeds + k for preset in range(presets)), *same, same.stop + k]
            for k in range(draws)
        ],
        seeds if fresh else 0,
        missing,
    )
