"""What may be asked of a trace: other images, layers and numbers are refused in a line."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from contextlib import suppress

from torch import Tensor


def check_layer(model, layer: int, function: Callable) -> None:
    """ValueError for a routed layer that a network does not have, or a function does not take."""
    layers = len(getattr(model, "grids", None) or ())
    if layers and layer not in range(-layers, layers):
        raise ValueError(
            f"this network has {layers} routed layers: expected layer 0 to {layers - 1}, "
            f"got {layer}"
        )
    if layer != -1 and not takes(function, "layer"):
        raise ValueError(
            f"this network shows one routed layer, expected layer 0 or -1, got {layer}"
        )


def takes(function: Callable, name: str) -> bool:
    """Whether a function has an argument of that name."""
    parameters = inspect.signature(function).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def check_look(model, layer: int, couplings) -> None:
    """ValueError for what no network takes, and what this one's `look` has no argument for."""
    check_layer(model, layer, model.look)
    if isinstance(couplings, Tensor) and not couplings.isfinite().all():
        raise ValueError("expected couplings that are numbers, got some that are not finite")
    if couplings is not None and not takes(model.look, "couplings"):
        raise ValueError(
            "this network's couplings cannot be replaced: its `look` takes no `couplings`"
        )


def whole_number(name: str, value) -> int:
    """A whole number of any kind, NumPy's too; ValueError for what is none, True among it."""
    with suppress(TypeError):
        if not isinstance(value, bool):
            return operator.index(value)
    raise ValueError(f"{name} must be a whole number, got {value!r}")
