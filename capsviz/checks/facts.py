"""What the checks are told of a network, held against what it must be before any check is made."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MethodType

from torch import Tensor, nn

from capsviz.tracing.requests import whole_number
from capsviz.wrapping.environment import in_words
from capsviz.wrapping.given import by_hand
from capsviz.wrapping.outputs import require_scores


def options(**told) -> list:
    """`scores`, `decode`, `pair` and `call` as `capsviz.wrap` takes them; ValueError for others."""
    require_scores(told["scores"])
    return by_hand(**told)


def iterations(number: int | None) -> int | None:
    """A number of passes of routing, or None; ValueError for anything else."""
    if number is not None and whole_number("iterations=", number) < 1:
        raise ValueError(f"iterations= must be a whole number, at least 1, got {number!r}")
    return number


def network(value) -> nn.Module | None:
    """The network before training, or what a function of no arguments returns; None for none."""
    value = _called("new", value)
    if value is not None and not isinstance(value, nn.Module):
        raise ValueError(f"new= must be a network, a torch.nn.Module, got {_shown(value)}")
    return value


def images(name: str, value):
    """Training or test images: a sequence, a loader's, or what a function of no arguments returns.

    Raises
    ------
    ValueError  where the function raises, it is none of these, or it holds no images.
    """
    value = _called(name, value)
    if value is None:
        return None
    items = getattr(value, "dataset", value)  # of a loader
    if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
        raise ValueError(
            f"{name}= must be images (N, C, H, W), or a sequence of images, or of pairs that begin "
            f"with one, got {_shown(value)}"
        )
    if not len(items):
        raise ValueError(f"{name}= holds no images")
    return items


def _called(name: str, value):
    if not isinstance(value, FunctionType | MethodType):
        return value
    function: Callable = value
    try:
        return function()
    except Exception as error:  # whatever somebody's code does
        raise ValueError(f"{name}= raises {in_words(error)}") from error


def _shown(value) -> str:
    """A number or a name itself, else its type."""
    if isinstance(value, Tensor) or not isinstance(value, int | float | str):
        return type(value).__name__
    return repr(value)
