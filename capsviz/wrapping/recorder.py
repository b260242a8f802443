"""Record every torch function that a forward pass calls: its tensors, and the line of the call.

    recorder = Recorder(network)
    with no_grad():
        output = recorder.run(lambda: network(images))
    for event in recorder.events:
        print(event.name, event.where, [tuple(t.shape) for t in event.outputs])

The recorder is a TorchFunctionMode: the network needs no edits and no hooks. A scripted function
gives at most one event. `watching` records local variables, for couplings that no softmax makes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from capsviz.discovery import some
from capsviz.wrapping.environment import TORCH, as_written, follow, uncompiled
from capsviz.wrapping.leaves import mapped, named_tensors, replaced, tensors

SAME_NAME = {
    "multiply": "mul", "rmul": "mul", "imul": "mul",
    "divide": "div", "true_divide": "div", "truediv": "div", "itruediv": "div", "idiv": "div",
    "rtruediv": "rdiv", "radd": "add", "iadd": "add", "subtract": "sub", "isub": "sub",
    "bmm": "matmul", "mm": "matmul", "special_softmax": "softmax",
    "concat": "cat", "concatenate": "cat", "absolute": "abs", "ipow": "pow",
}  # fmt: skip

WRITING = {
    "__setitem__", "__iadd__", "__isub__", "__imul__", "__idiv__", "__itruediv__", "__ipow__",
}  # fmt: skip


class Site(NamedTuple):
    """A place in the user's code that calls a torch function.

    It is equal in every pass and in every iteration of a loop.
    """

    name: str  # of the function, as from `name_of`: "softmax", "mul", "getitem"
    module: str  # the innermost module whose code runs; "" is the network itself
    stack: tuple[tuple[int, int], ...]  # code object and instruction of each frame, innermost first


@dataclass(frozen=True, eq=False)
class Event:
    """One call of a torch function that returned tensors."""

    index: int
    function: Callable
    args: tuple
    kwargs: dict
    inputs: tuple[Tensor, ...]  # all tensors among the arguments, in order
    outputs: tuple[Tensor, ...]
    site: Site
    file: str
    line: int

    @property
    def name(self) -> str:
        """Return the name of the function, as from `name_of`."""
        return self.site.name

    @property
    def where(self) -> str:
        """Return file and line, as "layers.py:67"."""
        return f"{Path(self.file).name}:{self.line}"

    @property
    def place(self) -> str:
        """Return module, file and line, as "digitcaps, layers.py:67"."""
        return f"{self.site.module or 'the network'}, {self.where}"

    def repeat(self, change: Callable = lambda leaf: leaf):
        """Call the function again with `change` applied to every argument; return its result.

        If the function writes to an argument, it writes to a copy.
        """
        args, kwargs = mapped(self.args, change), mapped(self.kwargs, change)
        own = written(self.function, args, kwargs)
        if own is not None:
            copied = own.clone()
            args, kwargs = replaced((args, kwargs), {id(own): copied})
            own = copied
        result = self.function(*args, **kwargs)
        return own if result is None else result

    def with_others(self, others: Mapping[int, Tensor]) -> Event:
        """Return the event with some tensors replaced; `others` maps the ids of the old ones."""
        if not any(id(one) in others for one in (*self.inputs, *self.outputs)):
            return self
        parts = (self.args, self.kwargs, self.inputs, self.outputs)
        args, kwargs, inputs, outputs = replaced(parts, others)
        return replace(self, args=args, kwargs=kwargs, inputs=inputs, outputs=outputs)


class Pass(TorchFunctionMode):
    """A mode for one pass of a network; `dispatch` is called in place of each torch function.

    Tensors that the code sends to a GPU go to the network's device instead.
    """

    inputs: Any = None  # the inputs of the network in this pass

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network
        self.modules = {
            id(module): name.replace("._orig_mod", "") for name, module in network.named_modules()
        }
        like = next(network.parameters(), None)
        self.device = torch.device("cpu") if like is None else like.device

    def __torch_function__(self, function, types, args=(), kwargs=None):
        function, args, kwargs = follow(self.device, function, args, kwargs or {})
        return self.dispatch(function, args, kwargs)

    def dispatch(self, function, args, kwargs):
        """Call the function; subclasses also read its arguments and its result."""
        return function(*args, **kwargs)

    def frame(self) -> FrameType:
        """Return the innermost frame outside torch and capsviz, or else torch's innermost frame."""
        innermost: FrameType = sys._getframe(2)
        frame: FrameType | None = innermost
        while frame and frame.f_code is not RUN:
            if not frame.f_code.co_filename.startswith(OUTSIDE):
                return frame
            frame = frame.f_back
        while innermost.f_back and innermost.f_code.co_filename.startswith(str(ROOM)):
            innermost = innermost.f_back
        return innermost

    def site(self, name: str, start: FrameType) -> Site:
        """Return the site of a call from frame `start` to the function called `name`."""
        stack, module = [], None
        frame: FrameType | None = start
        while frame and frame.f_code is not RUN:
            code = frame.f_code
            if not code.co_filename.startswith(OUTSIDE):
                stack.append((id(code), frame.f_lasti))
                if module is None and code.co_argcount:  # `self` may have any name
                    module = self.modules.get(id(frame.f_locals.get(code.co_varnames[0])))
            frame = frame.f_back
        return Site(name, module or "", tuple(stack))

    def run(self, call: Callable):
        """Return what `call()` returns, under this mode."""
        with uncompiled(), self:
            return call()


RUN = Pass.run.__code__
ROOM = Path(__file__).parent
OUTSIDE = (TORCH, str(ROOM), str(ROOM.parent / "checks"))  # none of it is the network's code


class Recorder(Pass):
    """Record all events of a pass, as if each function returned new tensors.

    If a function writes to a tensor, earlier events hold a copy of its previous values.
    """

    def __init__(self, network: nn.Module):
        super().__init__(network)
        self.events: list[Event] = []

    def dispatch(self, function, args, kwargs):
        """Call the function and record its arguments and result."""
        own, before = written(function, args, kwargs), (args, kwargs)
        if own is not None and any(own is one for e in self.events for one in e.outputs):
            copy = {id(own): own.clone()}
            before = replaced(before, copy)
            self.events = [event.with_others(copy) for event in self.events]
        result, name = function(*args, **kwargs), name_of(function)
        if "empty" in name:  # uninitialised memory may hold an earlier result
            result.zero_()
        outputs = tuple(tensors(result if own is None else own))
        if outputs:
            frame = self.frame()
            self.events.append(
                Event(
                    index=len(self.events),
                    function=function,
                    args=before[0],
                    kwargs=before[1],
                    inputs=tuple(inputs_of(*before)),
                    outputs=outputs,
                    site=self.site(name, frame),
                    file=frame.f_code.co_filename,
                    line=frame.f_lineno,
                )
            )
        return result


def written(function, args: tuple, kwargs: dict) -> Tensor | None:
    """Return the tensor that a function writes to; None if it writes to no argument.

    It is `out=`, or the first argument of add_, `+=`, `x[i] =` and functions with inplace=True.
    """
    if isinstance(kwargs.get("out"), Tensor):
        return kwargs["out"]
    name = getattr(function, "__name__", "")
    own = name.endswith("_") and not name.endswith("__")
    inplace = own or name in WRITING or bool(kwargs.get("inplace"))
    return args[0] if inplace and args and isinstance(args[0], Tensor) else None


def inputs_of(args: tuple, kwargs: dict) -> list[Tensor]:
    """Return all tensors among the arguments of a call, except `out=`."""
    return tensors((args, {name: value for name, value in kwargs.items() if name != "out"}))


def memory(tensor: Tensor, *, whole: bool = True) -> int:
    """Return the address of a tensor's storage; with whole=False, that of its first element."""
    try:
        return (tensor.untyped_storage() if whole else tensor).data_ptr()
    except RuntimeError:  # inside `vmap`
        return id(tensor)


def name_of(function) -> str:
    """Return one name for all forms of a function: "mul" for torch.mul, Tensor.mul_ and `*=`."""
    name = getattr(function, "__name__", type(function).__name__)
    if name in ("__get__", "__set__"):
        name = getattr(function.__self__, "__name__", name)
    name = name.strip("_")
    return SAME_NAME.get(name, name)


class Variable(NamedTuple):
    """A local variable in one method of one module."""

    name: str  # "module.method:variable", as given
    module: nn.Module
    code: CodeType
    variable: str
    copied: bool = False  # copy each value at once, because the code writes to it later


def find_variable(network: nn.Module, name: str) -> Variable:
    """Return the variable named "module.method:variable", or "method:variable" of the network.

    ValueError for a module, method or variable that does not exist.
    """
    path, colon, variable = name.partition(":")
    module, _, method = path.rpartition(".")
    modules = dict(network.named_modules())
    if not colon or not variable or not method:
        raise ValueError(f"expected 'module.method:variable', got '{name}'")
    if module not in modules:
        known = some(filter(None, modules), 12)
        raise ValueError(f"there is no module '{module}', expected one of: {known}")
    owner = as_written(modules[module])
    function = getattr(as_written(getattr(owner, method, None)), "__func__", None)
    if function is None or not hasattr(function, "__code__"):
        kind = type(owner).__name__
        raise ValueError(f"{kind} '{module}' has no method '{method}' written in Python")
    code = function.__code__
    if variable not in code.co_varnames + code.co_cellvars:
        known = some(code.co_varnames[1:], 12)  # without `self`
        raise ValueError(f"{method} has no variable '{variable}', it has {known}")
    return Variable(name, owner, code, variable)


@contextmanager
def watching(variables: Iterable[Variable]) -> Iterator[dict[Variable, list[Tensor]]]:
    """Collect the values of each variable, in order.

    Python's tracing function, for example a debugger's, is restored afterwards.
    """
    values: dict[Variable, list[Tensor]] = {variable: [] for variable in variables}
    if not values:
        yield values
        return

    def calls(frame: FrameType, event: str, argument):
        own = [v for v in values if frame.f_code is v.code]
        own = [v for v in own if frame.f_locals.get(v.code.co_varnames[0]) is v.module]
        return lines(dict.fromkeys(own)) if own else None

    def lines(last: dict):
        def line(frame: FrameType, event: str, argument):
            for variable in last:
                value = frame.f_locals.get(variable.variable)
                if isinstance(value, Tensor) and value is not last[variable]:
                    last[variable] = value
                    values[variable].append(value.clone() if variable.copied else value)
            return line

        return line

    before = sys.gettrace()
    sys.settrace(calls)
    try:
        yield values
    finally:
        sys.settrace(before)


def like_the_last(values: list[Tensor]) -> list[Tensor]:
    """Expand all values to the shape of the last one; leave out those that do not broadcast."""
    result = []
    for value in values:
        with suppress(RuntimeError):  # it cannot be broadcast
            result.append(value.expand(values[-1].shape))
    return result


@contextmanager
def outputs_of(module: nn.Module) -> Iterator[list[dict[str, Tensor]]]:
    """Collect copies of the tensors in each output of a module, by name."""
    outputs: list[dict[str, Tensor]] = []

    def hook(_, __, out):
        outputs.append({name: one.clone() for name, one in named_tensors(out)})

    with module.register_forward_hook(hook):
        yield outputs
