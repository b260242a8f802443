"""What training minimises."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from capsviz.checks.calling import Caller
from capsviz.checks.verdict import SkippedError
from capsviz.wrapping import without_cuda
from capsviz.wrapping.recorder import Pass

IMAGES = 4


class Loss:
    """A function (output, images, labels) -> a number."""

    def __init__(self, caller: Caller, function: Callable):
        self.caller, self.function = caller, function

    @classmethod
    def of_network(cls, caller: Caller) -> Loss | None:
        """Return the loss of one of capsviz's own networks; None for others."""
        if not hasattr(caller.network, "objective"):
            return None
        return cls(caller, lambda *args: caller.network.objective(*args).loss)

    def __call__(self, output, images: Tensor, labels: Tensor) -> float:
        """Return the loss in float64; SkippedError if it is not finite."""
        number = _number(self._value(output, images, labels))
        if not math.isfinite(number):
            raise SkippedError("the loss is not finite")
        return number

    def require_number(self) -> None:
        """Raise ValueError if it raises, or returns no number."""
        images = self.caller.images(IMAGES)
        try:
            output = self.caller.output(images)
        except Exception:  # the checks say what is wrong
            return
        labels = torch.arange(IMAGES, device=images.device) % self.caller.classes
        try:
            value = self._value(output, images, labels)
        except Exception as error:  # a user's code may raise anything
            words = " ".join(str(error).split())[:200]
            raise ValueError(
                f"loss= raises {type(error).__name__}: {words}; it is called with (output, "
                "images, labels), output is that of evaluation mode, labels are indices (N,)"
            ) from error
        _number(value)

    def _value(self, output, images: Tensor, labels: Tensor):
        inside = self.caller.inside(images)
        with without_cuda():
            return Pass(self.caller.network).run(lambda: self.function(output, inside, labels))


def _number(value) -> float:
    """A loss in float64; ValueError if it is no number."""
    try:
        return float(value.double() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError) as error:
        shape = getattr(value, "shape", None)
        form = type(value).__name__ + (f" {tuple(shape)}" if shape is not None else "")
        raise ValueError(f"loss= returns {form}, expected a number") from error
