"""What a leaderboard knows of a network; and networks of one name, the same or several."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from capsviz.statistics.estimate import Estimate


class Network(NamedTuple):
    """A network, or the training runs of one recipe."""

    name: str
    dataset: str
    seeds: list[int]  # of its training runs
    digests: list[str]  # SHA-256 of their weights
    accuracy: Estimate | None  # on the test set; None: a card without results
    parameters: int | None
    seconds: float | None  # of training, mean over runs
    hardware: str | None
    routing: str | None = None
    effort: tuple | None = None  # of training: epochs, images where not all, and how they were cut
    notice: str | None = None  # what must be said of its data


def different(pairs: list[tuple[Network, Path]]) -> list[Network]:
    """One of each name: runs of a recipe stand for one of them, other namesakes add their places.

    ValueError for one that is named twice.
    """
    kept: list[tuple[Network, Path]] = []
    for network, place in pairs:
        digests = set(network.digests)
        if any(digests <= set(other.digests) for other, _ in kept):
            if any(digests == set(other.digests) for other, _ in kept):
                raise ValueError(f"'{place}' is named twice, as '{network.name}'")
            continue
        kept = [pair for pair in kept if not set(pair[0].digests) <= digests]
        kept.append((network, place))
    return named_apart(kept)


def named_apart(pairs: list[tuple[Network, Path]]) -> list[Network]:
    """Networks whose names differ: namesakes add the names of their places."""
    names = [network.name for network, _ in pairs]
    return [
        one
        if names.count(one.name) == 1 or one.name.endswith(")")
        else one._replace(name=f"{one.name} ({place.name})")
        for one, place in pairs
    ]
