"""Check a user's own routing: errors and wrong results are reported in one line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType

import torch
from torch import Tensor

from capsviz import discovery
from capsviz.nn import children, objectives

PACKAGE = "capsviz.nn.routing"
FUNCTIONS = ("route", "fused", "parameters", "weights", "evidence")
NAMES = {"CHILDREN": children.KINDS, "OBJECTIVE": objectives.NAMES, "PARENTS": ("batch_norm",)}


def checked(name: str, module: ModuleType, kinds: Mapping[str, type]) -> ModuleType:
    """A plugin's module, whose functions say in a ValueError what is wrong with them.

    `kinds` is what `route` and `fused` are to give. ValueError for an unknown name of `NAMES`.
    """
    for constant, known in NAMES.items():
        value = getattr(module, constant, known[0])
        if value not in known:
            words = discovery.unknown(constant, str(value), list(known))
            raise ValueError(f"the routing '{name}' of {module.__file__}: {words}")
    copy = ModuleType(module.__name__, module.__doc__)
    vars(copy).update(vars(module))
    for function in FUNCTIONS:
        if callable(whole := getattr(module, function, None)):
            setattr(copy, function, _Function(name, function, whole, kinds.get(function)))
    return copy


class _Function:
    """One function of a plugin."""

    def __init__(self, routing: str, name: str, function: Callable, kind: type | None):
        self.routing, self.name, self.function, self.kind = routing, name, function, kind
        self.__signature__ = inspect.signature(function)

    def __call__(self, *arguments, **options):
        if torch.compiler.is_compiling():
            return self.function(*arguments, **options)
        oom = torch.cuda.OutOfMemoryError
        with discovery.guarded(PACKAGE, self.routing, what="routing", but=(oom,)):
            result = self.function(*arguments, **options)
        for mistake in self.mistakes(result, *arguments[:2], **options):
            path = discovery.source(PACKAGE, self.routing)
            raise ValueError(f"`{self.name}` of the routing '{self.routing}' of {path} {mistake}")
        return result

    def mistakes(self, result, first=None, second=None, **options) -> Iterator[str]:
        """Return what is wrong with what it gave for these arguments, in words."""
        if self.name == "parameters":
            if not (isinstance(result, dict) and all(map(torch.is_tensor, result.values()))):
                yield f"gives a {type(result).__name__}, expected tensors by their names"
        elif self.kind is not None and not isinstance(result, self.kind):
            fields = ", ".join(self.kind._fields)  # type: ignore[attr-defined]
            kind = f"{self.kind.__module__}.{self.kind.__name__}"
            yield f"gives a {type(result).__name__}, expected a {kind}: {fields}"
        elif self.name == "route":
            *batch, I, J, E = first.shape
            rounds = len(result.poses) if getattr(result.poses, "ndim", 0) == first.ndim else "R"
            pairs, parents = (rounds, *batch, I, J), (rounds, *batch, J)
            yield from _misshapen(result, (pairs, pairs, (*parents, E), parents))
        elif self.name == "fused" and "links" not in options:
            parents = (len(first), second.shape[1])
            yield from _misshapen(result, ((*parents, second.shape[2]), parents))


def _misshapen(result, shapes: tuple) -> Iterator[str]:
    """Fields of a result that are no tensors of these shapes."""
    for field, value, shape in zip(result._fields, result, shapes, strict=True):
        actual = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        if actual != shape:
            yield f"gives {field} {actual}, expected {shape}".replace("'", "")
