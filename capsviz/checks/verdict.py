"""What a check says: passes, fails, told, or cannot be seen, with numbers as evidence."""

from __future__ import annotations

from typing import NamedTuple

STATUSES = ("fails", "told", "cannot be seen", "passes")


class About(NamedTuple):
    """What does not depend on a network: `ABOUT` of every check's file."""

    paper: str  # section of Sabour, Frosst & Hinton (2017), arXiv:1710.09829
    seen: str  # how, in a few words
    breaks: str  # what goes wrong without it
    mend: str
    needs: str = "the network"  # what it must be given
    pitfalls: tuple[int, ...] = ()  # numbers of `PITFALLS`
    after: tuple[str, ...] = ("repeats",)  # checks whose failure would upset this one
    layers: bool = False  # whether routed layers before that of the classes are examined, too


class Judgement(NamedTuple):
    """What a check finds in one network."""

    status: str
    said: str
    numbers: dict[str, float]
    mend: str | None = None  # None: as the check says of itself
    spares: tuple[str, ...] = ()  # checks that come after it, and are judged though it fails


class Verdict(NamedTuple):
    """A judgement with everything that a reader needs to act on it."""

    check: str
    title: str
    status: str  # one of STATUSES
    said: str
    numbers: dict[str, float]
    paper: str
    breaks: str
    mend: str
    pitfalls: tuple[int, ...] = ()
    cause: str | None = None  # the check that fails and would upset this one


class UnseenError(Exception):
    """A thing that a check must look at and that is not there; its text says why."""


class ApartError(UnseenError):
    """Couplings are no one number for a child and a parent: nothing is said of such."""


def passes(said: str, **numbers: float) -> Judgement:
    """As it should be."""
    return Judgement("passes", said, numbers)


def fails(said: str, **numbers: float) -> Judgement:
    """A mistake, and the numbers that show it."""
    return Judgement("fails", said, numbers)


def told(said: str, **numbers: float) -> Judgement:
    """Unlike the paper, which need be no mistake."""
    return Judgement("told", said, numbers)
