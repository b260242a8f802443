"""What `transplant` finds: of two images, of many pairs, part by part, iteration by iteration."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsviz.statistics.estimate import Estimate

# What the axes of estimates are: fields with their names, or the names; None: numbered from 1.
AXES = dict.fromkeys(
    ("as_own", "as_partner", "as_neither", "own_activation", "partner_activation", "coupling_sd"),
    ("conditions",),
)


class Result(NamedTuple):
    """Two images, each with four couplings: its own, the other's, the other's shuffled, even."""

    images: np.ndarray  # (2, C, H, W) uint8
    labels: list[int | None]  # (2,) true classes, where they are known
    read: np.ndarray  # (2,) class that each is read as, routed by itself
    conditions: list[str]  # (4,) whose couplings
    activations: np.ndarray  # (2, 4, J) of the classes, votes x couplings
    decoded: np.ndarray | None  # (2, 4, C, H, W) uint8, of the class read; None: no decoder
    means: np.ndarray  # (2, J) own couplings, mean over children
    maps: np.ndarray | None  # (2, J, rows, columns) own, mean over types; None: no grid
    coupling_sd: np.ndarray  # (2,) of own couplings about even ones
    even: float  # what a child gives each class if it gives evenly, mean over children
    classes: list[str]
    given: str | None = None  # why the couplings decide by construction; None: they need not
    iterations: int | None = None  # of routing; None: the network's own


class Statistics(NamedTuple):
    """N pairs under K conditions; intervals are 95 %, as `transplant` says.

    Shares of pairs, and means over pairs; a difference is less that with its own couplings.
    """

    conditions: list[str]  # (K,) whose couplings
    as_own: Estimate  # (K,) share read as the class of the image that casts the votes
    as_partner: Estimate  # (K,) share read as the class of the unlike image
    as_neither: Estimate  # (K,) share read as a third class, or as none
    own_activation: Estimate  # (K,) mean, of the class of the image that casts the votes
    partner_activation: Estimate  # (K,) mean, of the class of the unlike image
    coupling_sd: Estimate  # (K,) of the couplings about even ones, mean over pairs
    couples: int
    n: int  # pairs
    classes: list[str]
    dataset: str
    shares: np.ndarray | None = None  # (S,) of the children whose couplings are the unlike image's
    parts: list[str] | None = None  # (P,) what those children are: whole types, places, or single
    part_as_own: Estimate | None = None  # (P, S) share read as their own class
    part_as_partner: Estimate | None = None  # (P, S) as the unlike image's; of at most 200 pairs
    tied: np.ndarray | None = None  # (K,) share in which no class is ahead of all others
    given: str | None = None  # why the couplings decide by construction; None: they need not
    iterations: int | None = None  # of routing; None: the network's own


class Parts(NamedTuple):
    """N pairs, in which one part after the other is the unlike image's, the rest an image's own.

    Intervals are 95 %, as `transplant` says. By kind of part: entry 0 is the control,
    as many children drawn at random for each pair; entry 1 + g is part g. Differences are to the
    control. Changes are of activations, less those with everything of the image's own.
    """

    of: str  # what is exchanged: couplings, children or poses
    layer: int | None  # a layer below the classes, by its number; None: that of the classes
    grid: tuple[int, int, int] | None  # types, rows, columns of its children; None: no places
    kinds: list[str]  # "types" and "places", or "children": groups by number
    sizes: dict[str, int]  # children of a part
    own: dict[str, Estimate]  # (1 + G,) share read as the class of the image with the rest
    partner: dict[str, Estimate]  # (1 + G,) share read as the class of the unlike image
    neither: dict[str, Estimate]  # (1 + G,) share read as a third class, or as none
    own_change: dict[str, Estimate]  # (1 + G,) of the activation of the image's own class
    partner_change: dict[str, Estimate]  # (1 + G,) of that of the unlike image's class
    first: dict[str, int]  # part that raises the latter most in one half of the couples
    first_change: dict[str, Estimate]  # (2,) in the other half: as many at random, that part
    shares: dict[str, np.ndarray]  # (S,) of all types, places or capsules, drawn at random, to all
    some_own: dict[str, Estimate]  # (S,) share read as the own class, by what is drawn
    some_partner: dict[str, Estimate]  # (S,) as the unlike image's
    off: float  # largest difference of an activation to the unlike image's, with all exchanged
    couples: int
    n: int  # pairs
    classes: list[str]
    dataset: str
    given: str | None = None  # why couplings decide by construction; None: they need not


class Rounds(NamedTuple):
    """N pairs with other couplings in some iterations; intervals as of `Parts`.

    By which of the R iterations have them, "alone" or "onward": in iteration r, or from it on;
    in the others the votes are routed by themselves. Differences are to its own, given back.
    """

    layer: int | None  # a layer below the classes, by its number; None: that of the classes
    donors: list[str]  # (3,) whose couplings, those of its last iteration
    own: dict[str, Estimate]  # (3, R) share read as the class of the image that casts the votes
    partner: dict[str, Estimate]  # (3, R) share read as the class of the unlike image
    neither: dict[str, Estimate]  # (3, R) share read as a third class, or as none
    own_change: dict[str, Estimate]  # (3, R) of the activation of the image's own class
    partner_change: dict[str, Estimate]  # (3, R) of that of the unlike image's class
    couples: int
    n: int  # pairs
    classes: list[str]
    dataset: str
    given: str | None = None  # why couplings decide by construction; None: they need not
