"""Watch a local variable of somebody's function: for couplings that come from no softmax.

`"module.method:variable"` names the method of a module ("class_caps.m_step:r"; "forward:c" and
"route:c" are of the network itself) and a variable in it. Each value that it is given is kept, in
order. Read only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from torch import Tensor, nn

from capsviz.wrapping.compiled import as_written


class Variable:
    """The values of one variable in one method of one module.

    Raises
    ------
    ValueError  for a module, method or variable that is not there.
    """

    def __init__(self, network: nn.Module, name: str):
        path, colon, self.variable = name.partition(":")
        module, _, method = path.rpartition(".")
        modules = dict(network.named_modules())
        if not colon or not self.variable or not method:
            raise ValueError(f"expected 'module.method:variable', got '{name}'")
        if module not in modules:
            raise ValueError(f"there is no module '{module}', expected one of: {_few(modules)}")
        owner = as_written(modules[module])
        function = as_written(getattr(owner, method, None))
        function = getattr(function, "__func__", None)
        if not hasattr(function, "__code__"):
            kind = type(owner).__name__
            raise ValueError(f"{kind} '{module}' has no method '{method}' written in Python")
        self.name, self.module, self.code = name, owner, function.__code__
        if self.variable not in self.code.co_varnames + self.code.co_cellvars:
            known = self.code.co_varnames[1:]  # without `self`
            raise ValueError(f"{method} has no variable '{self.variable}', it has {_few(known)}")
        self.values: list[Tensor] = []

    def alike(self) -> list[Tensor]:
        """Values as large as the last: smaller ones repeated, what does not fit left out."""
        shape, values = self.values[-1].shape if self.values else (), []
        for value in self.values:
            with suppress(RuntimeError):  # it cannot be broadcast
                values.append(value.expand(shape))
        return values


@contextmanager
def watching(variables: Iterable[Variable]) -> Iterator[None]:
    """Inside, the `values` of variables fill; the tracing function of a debugger is put back."""
    variables = list(variables)
    if not variables:
        yield
        return

    def calls(frame, event, argument):
        own = [v for v in variables if frame.f_code is v.code]
        own = [v for v in own if frame.f_locals.get(v.code.co_varnames[0]) is v.module]
        return _Lines(own) if own else None

    for variable in variables:
        variable.values = []
    before = sys.gettrace()
    sys.settrace(calls)
    try:
        yield
    finally:
        sys.settrace(before)


class _Lines:
    """Traces the lines of one call."""

    def __init__(self, variables: list[Variable]):
        self.last = dict.fromkeys(variables)

    def __call__(self, frame, event, argument):
        for variable, last in self.last.items():
            value = frame.f_locals.get(variable.variable)
            if isinstance(value, Tensor) and value is not last:
                self.last[variable] = value
                variable.values.append(value)
        return self


def roles_by_size(shape: tuple[int, ...], sizes: dict[str, int], rest: str, what: str):
    """The role of each axis by its length; what has another length is of the `rest`.

    Raises
    ------
    ValueError  where two axes have the length of one role, or an axis is missing.
    """
    roles = ["."] * len(shape)
    for role, size in sizes.items():
        axes = [k for k, n in enumerate(shape) if n == size and roles[k] == "."]
        if len(axes) != 1 and role != "B":
            raise ValueError(
                f"{what} of shape {tuple(shape)}: expected one axis of length {size} "
                f"({role}), found {len(axes)}; give a function that returns it in order"
            )
        for axis in axes[:1]:
            roles[axis] = role
    return tuple(rest if r == "." and n > 1 else r for r, n in zip(roles, shape, strict=True))


def _few(names) -> str:
    names = [name for name in names if name]
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
