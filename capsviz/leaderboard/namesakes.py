"""Networks of one name: the same one, or several, which must be told apart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from capsviz.leaderboard.sources import Network


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
