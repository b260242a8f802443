"""Find and replace tensors inside nested arguments and outputs."""

from collections.abc import Callable, Mapping, MutableMapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor


def tensors(value) -> list[Tensor]:
    """Return all tensors in nested lists, tuples, dicts and dataclasses, in order."""
    return [leaf for _, leaf in named_tensors(value)]


def named_tensors(value, name: str = "") -> list[tuple[str, Tensor]]:
    """Return all tensors with their paths, such as "[1]", "['poses']" or ".poses"."""
    if isinstance(value, Tensor):
        return [(name, value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        pairs = [(f"{name}.{key}", part) for key, part in zip(value._fields, value, strict=True)]
    elif isinstance(value, list | tuple):
        pairs = [(f"{name}[{k}]", part) for k, part in enumerate(value)]
    elif isinstance(value, Mapping):
        pairs = [(f"{name}[{key!r}]", part) for key, part in value.items()]
    elif is_dataclass(value) and not isinstance(value, type):
        pairs = [(f"{name}.{f.name}", getattr(value, f.name)) for f in fields(value)]
    else:
        return []
    return [pair for at, part in pairs for pair in named_tensors(part, at)]


def mapped(value: Any, change: Callable) -> Any:
    """Return the same nested structure and types, with `change` applied to every leaf."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(part, change) for part in value))
    if isinstance(value, list | tuple):
        return type(value)(mapped(part, change) for part in value)
    other: Any
    if isinstance(value, MutableMapping):  # also a UserDict, which tokenizers return
        other = copy(value)
        other.update({key: mapped(part, change) for key, part in value.items()})
        return other
    if is_dataclass(value) and not isinstance(value, type):
        other = copy(value)
        for field in fields(value):
            part = mapped(getattr(value, field.name), change)
            object.__setattr__(other, field.name, part)  # works for frozen dataclasses too
        return other
    return change(value)


def replaced(value, others: Mapping[int, Tensor]):
    """Return the same nested structure with tensors replaced by `others`, keyed by their id()."""
    return mapped(value, lambda leaf: others.get(id(leaf), leaf))
