"""Descriptions of checks, and their results: PASS, FAIL, WARN or SKIPPED."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

TEXTS = tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))
STATUSES = ("FAIL", "WARN", "SKIPPED", "PASS")  # worst first


class About(NamedTuple):
    """Description of a check, which does not depend on the network.

    A plug-in's file declares it as `ABOUT`; `texts.toml` has those of functions with `@check`.
    """

    paper: str  # section of Sabour, Frosst & Hinton (2017), arXiv:1710.09829
    breaks: str  # what goes wrong in a network that fails
    fix: str
    needs: str = "the network"  # inputs that the user must give
    after: tuple[str, ...] = ("not_repeatable",)  # checks whose failure makes this one meaningless
    every_layer: bool = False  # run on each routed layer: `examine(candidate, layer)`
    title: str = ""  # the mistake, as a sentence; for a plug-in the first line of its file


class Judgement(NamedTuple):
    """Result of a check for one network."""

    status: str  # one of STATUSES
    message: str
    numbers: dict[str, float]
    fix: str | None = None  # None: the fix that the check declares
    stops: tuple[str, ...] | None = None  # checks to skip after a failure; None: all `after` it


class Check(NamedTuple):
    """A check; the first line of `examine` says what it measures."""

    name: str
    about: About
    examine: Callable  # (candidate), or (candidate, layer), -> Judgement; a plug-in's may err


def check(examine: Callable[..., Judgement]) -> Check:
    """Make a check of a function; `texts.toml` has its description under the function's name."""
    about = TEXTS[examine.__name__]
    after = tuple(about.pop("after", About._field_defaults["after"]))
    return Check(examine.__name__, About(**about, after=after), examine)


class Verdict(NamedTuple):
    """A judgement with everything that a reader needs to act on it."""

    check: str
    title: str
    status: str  # one of STATUSES
    message: str
    numbers: dict[str, float]
    paper: str
    breaks: str
    fix: str
    cause: str | None = None  # the failed check because of which this one was skipped


class SkippedError(Exception):
    """A check cannot be run; the text gives the reason."""


class ApartError(SkippedError):
    """Couplings differ between the components of a pose."""


def passes(message: str, **numbers: float) -> Judgement:
    """Return PASS, with the measured numbers."""
    return Judgement("PASS", message, numbers)


def fails(message: str, **numbers: float) -> Judgement:
    """Return FAIL: a mistake, with the measured numbers."""
    return Judgement("FAIL", message, numbers)


def warns(message: str, **numbers: float) -> Judgement:
    """Return WARN: a deviation from the paper that may be intended."""
    return Judgement("WARN", message, numbers)


def skipped(message: str) -> Judgement:
    """Return SKIPPED, with the reason."""
    return Judgement("SKIPPED", message, {})
