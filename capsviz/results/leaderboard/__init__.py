"""Networks side by side, from files of results alone: cards, results of analyses, runs of seeds."""

from collections.abc import Sequence

from capsviz import checkpoint
from capsviz.results.leaderboard.rows import Row, rows
from capsviz.results.leaderboard.sources import Sources, shipped
from capsviz.results.leaderboard.words import caption, cells, claims

__all__ = ["Row", "Sources", "caption", "cells", "claims", "rows", "shipped", "table"]


def table(places: Sequence = ()) -> list[Row]:
    """Rows of the networks at some places, or of those that their results are of; none: shipped.

    Results of networks at these places are looked for there, and among those shipped.
    """
    known = Sources.read([*checkpoint.shipped(), *shipped()])
    if not places:
        return rows(known)
    own = Sources.read(places)
    both = own.beside(known)
    if own.networks:
        return rows(both, only=[network.name for network in own.networks])
    unnamed = Sources(own.networks, own.records).beside(known).unnamed()
    whole = Sources([*both.networks, *unnamed], own.records)
    return [row for row in rows(whole) if row.cells]
