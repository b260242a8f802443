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


def candidates(network: nn.Module, values: range, *, named: bool = True) -> list[Setter]:
    """Attributes that hold one of these values, named like a number of iterations or not.

    Those of PyTorch's own modules are none.
    """
    return [
        Setter(module, attribute, value, f"{name}.{attribute}".strip("."))
        for name, module in network.named_modules()
        if not type(module).__module__.startswith("torch.")
        for attribute, value in list(vars(module).items())
        if type(value) is int and value in values and bool(NAMES.search(attribute)) == named
    ]


def setters(
    network: nn.Module, values: range, passes: int, count: Callable[[], int]
) -> list[Setter]:
    """Those of the candidates that, raised by 1, make one pass more; all are put back.

    Of other names they are tried only where none that is named so does.

    Parameters
    ----------
    passes  that the network makes as it is.
    count   how many it makes now; what it raises, for somebody's code, is no pass more.
    """
    for named in (True, False):
        fits = _fitting(candidates(network, values, named=named), passes, count)
        if fits:
            return fits
    return []


def _fitting(tried: list[Setter], passes: int, count: Callable[[], int]) -> list[Setter]:
    fits = []
    for one in tried:
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
