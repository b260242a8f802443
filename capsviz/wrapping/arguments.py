"""What `wrap` is told by hand: of the kinds that it takes, and errors that say whose they are."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path

import torch

from capsviz.wrapping.functions import in_words
from capsviz.wrapping.recorder import TORCH

OURS = str(Path(__file__).parents[1])
PART = "a function, a name or None"  # couplings, votes, children, poses
KINDS: dict[str, tuple[str, Callable]] = {
    "call": ("a function (network, images) or None", callable),
    "decode": ("a function (poses, classes), False or None", lambda v: v is False or callable(v)),
    "pair": ("a name or None", lambda value: isinstance(value, str)),
    "card": ("a mapping or None", lambda value: isinstance(value, Mapping)),
}


def by_hand(**options) -> list:
    """The values of these options of `wrap`; functions among them name themselves where they fail.

    Raises
    ------
    ValueError  in one line, for a value of another kind.
    """
    for name, value in options.items():
        form, fits = KINDS.get(name, (PART, lambda v: isinstance(v, str) or callable(v)))
        if value is not None and not fits(value):
            raise ValueError(f"{name}= must be {form}, got {value!r}")
    if options.get("call") is not None:
        try:
            inspect.signature(options["call"]).bind(None, None)
        except TypeError as error:
            raise ValueError(f"call= must take (network, images): {error}") from error
        except ValueError:  # of a function that has no signature
            pass
    return [
        _named(name, value) if callable(value) and name != "call" else value
        for name, value in options.items()
    ]


def _named(name: str, function: Callable) -> Callable:
    @wraps(function, updated=())
    def answer(*arguments):
        try:
            return function(*arguments)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # of many kinds, by what somebody's code does
            raise ValueError(f"{name}= raises {in_words(error)}{raised_at(error)}") from error

    return answer


def raised_at(error: BaseException) -> str:
    """Where somebody's code raised, as " (layers.py:67)"; "" where none of it did."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((TORCH, OURS))]
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
