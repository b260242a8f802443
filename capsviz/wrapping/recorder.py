"""Record one forward pass of any network: every torch function, its tensors, the line that called.

    with no_grad():
        recording = record(network, lambda: network(images))
    for event in recording.events:
        print(event.name, event.where, [tuple(t.shape) for t in event.outputs])

By a TorchFunctionMode: the network is not edited, has no hooks, and is left as it was, also after
an error. What happens inside a compiled or scripted function is one event, or none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from capsviz.wrapping.compiled import uncompiled
from capsviz.wrapping.device import follow
from capsviz.wrapping.leaves import mapped, tensors

TORCH = str(Path(torch.__file__).parent)
SAME_NAME = {
    "multiply": "mul", "rmul": "mul", "imul": "mul",
    "divide": "div", "true_divide": "div", "truediv": "div", "itruediv": "div", "idiv": "div",
    "rdiv": "rdiv", "rtruediv": "rdiv",
    "radd": "add", "iadd": "add", "subtract": "sub", "isub": "sub", "rsub": "rsub",
    "bmm": "matmul", "mm": "matmul", "rmatmul": "rmatmul", "special_softmax": "softmax",
    "concat": "cat", "concatenate": "cat", "absolute": "abs", "ipow": "pow",
}  # fmt: skip


class Site(NamedTuple):
    """A place in somebody's code, the same in every pass and in every round of a loop."""

    module: str  # the innermost module whose code runs; "" is the network itself
    stack: tuple[tuple[int, int], ...]  # code object and instruction of each frame, innermost first


@dataclass(frozen=True, eq=False)
class Event:
    """One call of a torch function that returned tensors."""

    index: int
    name: str  # "softmax", "mul", "getitem": without underscores, one name for one thing
    function: Callable
    args: tuple
    kwargs: dict
    inputs: tuple[Tensor, ...]  # all tensors among the arguments, in order
    outputs: tuple[Tensor, ...]
    site: Site
    file: str
    line: int

    @property
    def where(self) -> str:
        """File and line, as "layers.py:67"."""
        return f"{Path(self.file).name}:{self.line}"

    @property
    def place(self) -> str:
        """Module, file and line, as "digitcaps, layers.py:67"."""
        return f"{self.site.module or 'the network'}, {self.where}"

    def repeat(self, change: Callable = lambda leaf: leaf):
        """Call the function once more, with `change` applied to every argument."""
        return self.function(*mapped(self.args, change), **mapped(self.kwargs, change))


class Recording(NamedTuple):
    """What a pass did, and what it returned."""

    events: list[Event]
    output: Any  # what the network gives


class Pass(TorchFunctionMode):
    """A mode for one pass: its `dispatch` gets each torch function, in place of it.

    `network` gives names to modules; tensors that the code sends to a GPU go to its own device.
    """

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
        """Call the function; a subclass looks at what it gets and gives."""
        return function(*args, **kwargs)

    def frame(self) -> FrameType:
        """The innermost frame of code that is neither torch's nor ours; without one, torch's."""
        innermost = frame = sys._getframe(2)
        while frame and frame.f_code is not RUN:
            if not frame.f_code.co_filename.startswith(OUTSIDE):
                return frame
            frame = frame.f_back
        while innermost.f_back and innermost.f_code.co_filename.startswith(str(ROOM)):
            innermost = innermost.f_back
        return innermost

    def site(self, frame: FrameType) -> Site:
        """The site of a frame."""
        stack, module = [], None
        while frame and frame.f_code is not RUN:
            code = frame.f_code
            if not code.co_filename.startswith(OUTSIDE):
                stack.append((id(code), frame.f_lasti))
                if module is None and code.co_argcount:  # whatever they call `self`
                    module = self.modules.get(id(frame.f_locals.get(code.co_varnames[0])))
            frame = frame.f_back
        return Site(module or "", tuple(stack))

    def run(self, call: Callable):
        """What `call()` returns, under this mode."""
        with uncompiled(), self:
            return call()


RUN = Pass.run.__code__
ROOM = Path(__file__).parent
OUTSIDE = (TORCH, str(ROOM), str(ROOM.parent / "checks"))  # no code of the network's


class Recorder(Pass):
    """A mode that keeps every event."""

    def __init__(self, network: nn.Module):
        super().__init__(network)
        self.events: list[Event] = []

    def dispatch(self, function, args, kwargs):
        """Call the function and keep what it got and gave."""
        result = function(*args, **kwargs)
        outputs = tuple(tensors(result))
        if outputs:
            frame = self.frame()
            self.events.append(
                Event(
                    index=len(self.events),
                    name=name_of(function),
                    function=function,
                    args=args,
                    kwargs=kwargs,
                    inputs=tuple(tensors((args, kwargs))),
                    outputs=outputs,
                    site=self.site(frame),
                    file=frame.f_code.co_filename,
                    line=frame.f_lineno,
                )
            )
        return result


def record(network: nn.Module, call: Callable) -> Recording:
    """Run `call()` and return its events and its output; what the call raises is not caught."""
    recorder = Recorder(network)
    output = recorder.run(call)
    return Recording(recorder.events, output)


def name_of(function) -> str:
    """One name for a torch function, a method and an operator: torch.mul, Tensor.mul_, `*=`."""
    name = getattr(function, "__name__", type(function).__name__)
    if name in ("__get__", "__set__"):
        name = getattr(function.__self__, "__name__", name)
    name = name.strip("_")
    return SAME_NAME.get(name, name)
