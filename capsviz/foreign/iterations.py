"""The attribute of somebody's network that sets how often it routes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from torch import nn

NAMES = re.compile(r"iter|rout|^r$|^n_?r$", re.IGNORECASE)  # of such attributes


class Setter(NamedTuple):
    """A whole number that a module holds."""

    module: nn.Module
    attribute: str
    value: int
    name: str  # from the network on


def candidates(network: nn.Module, values: range) -> list[Setter]:
    """Attributes that are named like a number of iterations, and hold one of these values."""
    return [
        Setter(module, attribute, value, f"{name}.{attribute}".strip("."))
        for name, module in network.named_modules()
        for attribute, value in list(vars(module).items())
        if NAMES.search(attribute) and type(value) is int and value in values
    ]


def setters(
    network: nn.Module, values: range, passes: int, count: Callable[[], int]
) -> list[Setter]:
    """Those of the candidates that, raised by 1, make one pass more; all are put back.

    Parameters
    ----------
    passes  that the network makes as it is.
    count   how many it makes now; what it raises, for somebody's code, is no pass more.
    """
    fits = []
    for one in candidates(network, values):
        setattr(one.module, one.attribute, one.value + 1)
        try:
            more = count() == passes + 1
        except Exception:  # somebody's code, with a number it was not made for
            more = False
        finally:
            setattr(one.module, one.attribute, one.value)
        if more:
            fits.append(one)
    return fits
